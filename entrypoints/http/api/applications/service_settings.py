"""A service's settings, as parts of its request and response models."""

import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from core.accounts.model.passkeys import NoPasskeysHere
from core.applications.model import client_settings, services
from core.kernel import connections
from core.kernel.errors import Invalid
from core.kernel.outbound import KeyPortNotAllowed
from core.tenancy.model.sign_in_policies import SettingsBeyondPolicies
from entrypoints.http import kit
from entrypoints.http.edge.bodies import MAX_ITEMS


@dataclass(frozen=True, slots=True)
class OnPage:
    """A setting's field on the application's page. A hint can name `{shortest}` and `{longest}`."""

    group: str
    label: str
    hint: str | None
    lines: int  # lines in a text area
    inputmode: str
    refusals: tuple[type[Invalid], ...]  # the choices that stand beside the field


def setting(
    group: str,
    label: str,
    hint: str | None,
    description: str,
    *,
    lines: int = 0,
    inputmode: str = "text",
    refusals: tuple[type[Invalid], ...] = (),
    **limits: Any,
) -> Any:
    """Return the definition of a setting, as `optional` does, with its field on the application's page."""
    field = kit.optional(description=description, **limits)
    field.metadata.append(OnPage(group, label, hint, lines, inputmode, refusals))
    return field


def scopes_at(slug: connections.ConnectionSlug) -> Any:
    """Return the definition of the setting for a connection's scopes."""
    description = f"The scopes to request at `{slug}`; null for the platform's defaults, an empty array for none."
    return setting("scopes", f"Scopes at {slug}", None, description)


# Not strict, because JSON can express an enumeration only by its values.
Type = Annotated[services.ServiceType, Field(strict=False)]


class JwkSetRequest(kit.RequestModel):
    """Public keys (RFC 7517)."""

    keys: Annotated[list[dict[str, Any]], Field(max_length=MAX_ITEMS)] = Field(description="1 to 20 keys.")


class ServiceSettingsRequest(kit.RequestModel):
    """The settings that can be chosen when a service is created, and changed later."""

    name: kit.Name = setting("general", "Name", "Your users see it when they sign in.", "The name of the service.")
    service_type: Type = setting(
        "general",
        "Type",
        "Single-page, mobile and desktop applications have no secret. If you choose one of them, the secret and the keys end at once.",
        "The type of the application.",
    )
    redirect_uris: kit.Texts | None = setting(
        "sign-in",
        "Redirect URIs",
        "One per line. Users return here after they sign in. They must match exactly what your application sends, such as "
        "https://app.example.com/callback.",
        "The allowed redirect URIs; null for none. They start with https:// or http://localhost, or with a private scheme in mobile and "
        "desktop applications.",
        lines=3,
        examples=[["https://shop.example.com/callback"]],
        refusals=(services.RedirectUriInvalid, services.DuplicateRedirectUri),
    )
    post_logout_redirect_uris: kit.Texts | None = setting(
        "sign-in",
        "Post-logout redirect URIs",
        "One per line. Users can return here after they sign out.",
        "The URIs to which the application can return users after a sign-out (RP-Initiated Logout); null for none.",
        lines=2,
        refusals=(services.PostLogoutRedirectUriInvalid,),
    )
    backchannel_logout_uri: kit.Text | None = setting(
        "sign-in",
        "Back-channel logout URI",
        "We tell this URL when a user's session ends, so that your application can end its own. Leave it empty if your application doesn't"
        " support it.",
        "The URL that receives a logout token when a session of the application ends (Back-Channel Logout); null for none. It must start "
        "with https://, or in `web` and `api` applications with http://.",
        inputmode="url",
        refusals=(services.BackchannelLogoutUriInvalid,),
    )
    device_activation_uri: kit.Text | None = setting(
        "sign-in",
        "Device activation URL",
        "Where users of this application enter the code that a device shows. Leave it empty for our page.",
        "The page where users enter the code of a device; null for the platform's own page.",
        inputmode="url",
        refusals=(services.ActivationUriInvalid,),
    )
    initiate_login_uri: kit.Text | None = setting(
        "sign-in",
        "Login URL",
        "Where your application starts a sign-in. Users start again there if their sign-in took too long. It starts with "
        "https://, or is empty.",
        "The URL at which the application starts a sign-in (OpenID Connect Core section 4); null for none. It must start with https://. "
        "Users are led there if their sign-in took too long.",
        inputmode="url",
        refusals=(client_settings.InitiateLoginUriInvalid,),
    )
    email_sign_in: bool | None = setting(
        "sign-in",
        "Sign-in by email",
        "Users can sign in with a code or link that we email to them.",
        "Whether users can sign in with a link or a code in an email; null for the platform's setting.",
    )
    is_trusted: bool = setting(
        "consent",
        "Trust this application",
        "Members of your organization aren't asked to agree, if the redirect URI is https. Other users are asked the first time.",
        "Whether confirmed members of the organization are not asked for their consent. It counts for https redirect URIs only. Other "
        "users are asked the first time.",
    )
    always_ask_consent: bool = setting(
        "consent",
        "Ask in every sign-in",
        "All users are asked to agree each time, for example before payments. Use it only if you must: users stop reading.",
        "Whether each sign-in asks the user to agree, even if they agreed before, or `is_trusted` exempts them. `prompt=none` then always "
        "returns `consent_required`.",
    )
    policy_uri: kit.Text | None = setting(
        "consent",
        "Privacy policy URL",
        "The page that asks users to agree links to it. It starts with https://, or is empty.",
        "The URL of the application's privacy policy, which the consent page links to; null for none. It must start with https://.",
        inputmode="url",
        refusals=(client_settings.PolicyUriInvalid,),
    )
    tos_uri: kit.Text | None = setting(
        "consent",
        "Terms of service URL",
        "The page that asks users to agree links to it. It starts with https://, or is empty.",
        "The URL of the application's terms of service, which the consent page links to; null for none. It must start with https://.",
        inputmode="url",
        refusals=(client_settings.TosUriInvalid,),
    )
    logo_uri: kit.Text | None = setting(
        "consent",
        "Logo URL",
        "The page that asks users to agree links to it. It shows uploaded logos only. It starts with https://, or is empty.",
        "The URL of a logo, which the consent page links to; null for none. It must start with https://. Only uploads are shown there.",
        inputmode="url",
        refusals=(client_settings.LogoUriInvalid,),
    )
    id_token_claims: bool = setting(
        "consent",
        "Put claims in the ID token",
        "Otherwise your application reads them at the userinfo endpoint. Kubernetes reads only the ID token.",
        "Whether the claims of granted scopes are also in the ID token. Some clients, such as Kubernetes, read nothing else.",
    )
    required_acr: Literal["mfa", "phr"] | None = setting(
        "security",
        "Required sign-in",
        "Users without these factors can't sign in to this application. When you require more, their weaker sessions there end.",
        "`mfa` if every sign-in needs a second factor, `phr` if it needs a passkey, which only the authorization code flow can ask for; "
        "null if the application decides itself. SAML sign-ins without one are refused.",
        refusals=(SettingsBeyondPolicies, NoPasskeysHere),
    )
    require_pushed_authorization_requests: bool = setting(
        "security",
        "Require pushed authorization requests",
        "The application sends its sign-in requests to this server first (PAR), so users can't change them.",
        "Whether the application must push its authorization requests to `POST /auth/par` (RFC 9126). Then it gets no tokens for "
        "passwords.",
    )
    dpop_bound_access_tokens: bool = setting(
        "security",
        "Require tokens that are bound to a key",
        "The application proves with each request that it has the key (DPoP). A stolen token alone is useless.",
        "Whether all its tokens are bound to a key (DPoP, RFC 9449), so that it needs a proof at `POST /auth/token`. Then it gets no "
        "tokens for passwords.",
    )
    enterprise: bool = setting(
        "security",
        "High security (IPSIE SL1)",
        "PKCE with S256 in every sign-in, no http redirect URIs, assertions only for the issuer, and no device flow (IPSIE SL1).",
        "Whether the rules of high security (IPSIE SL1) apply: PKCE always, no http redirect URIs, assertions only for the issuer, and "
        "the authorization code flow only.",
    )
    pkce_without_secret: bool = setting(
        "security",
        "Allow PKCE instead of the client secret",
        "For an application that can't keep a secret. PKCE with S256 is always accepted in addition to the secret.",
        "Whether a `web` or `api` client may use PKCE instead of its client secret.",
    )
    jwks: JwkSetRequest | None = setting(
        "keys",
        "Public keys",
        "A JWK set with 1 to 20 public keys: RSA, P-256 or Ed25519. Never paste a private key.",
        "The public keys of client assertions (RFC 7523): RSA with 2048 to 8192 bits, P-256 or Ed25519. Not together with `jwks_uri`.",
        lines=4,
        refusals=(client_settings.ClientKeysInvalid, client_settings.PrivateKeySent),
    )
    jwks_uri: kit.Text | None = setting(
        "keys",
        "URL of the public keys",
        "We fetch the keys from this https:// URL, so your application can replace them by itself.",
        "The https URL of these keys. They are cached for an hour, and fetched again for an unknown `kid`.",
        inputmode="url",
        refusals=(client_settings.ClientKeysUriInvalid, client_settings.ClientKeysTwice, KeyPortNotAllowed),
    )
    accepts_token_endpoint_audience: bool = setting(
        "keys",
        "Accept the token endpoint as audience",
        "Only for libraries that can't name the issuer as the audience of their assertions.",
        "Whether assertions may have the URL of the token endpoint as `aud`, instead of the issuer.",
    )
    access_token_seconds: int | None = setting(
        "lifetimes",
        "Access tokens, in seconds",
        "From {shortest} to {longest}. Leave it empty for {longest}.",
        "The lifetime of access tokens, from 60 seconds to the platform's lifetime. Null: the platform's lifetime.",
        inputmode="numeric",
    )
    refresh_token_seconds: int | None = setting(
        "lifetimes",
        "Refresh tokens, in seconds",
        "How long an unused refresh token works, from {shortest} to {longest}. Leave it empty for {longest}.",
        "The lifetime of an unused refresh token, from 60 seconds to the platform's lifetime. Null: the platform's lifetime.",
        inputmode="numeric",
    )
    codehost_scopes: kit.Texts | None = scopes_at(connections.CODEHOST)
    websuite_scopes: kit.Texts | None = scopes_at(connections.WEBSUITE)
    officesuite_scopes: kit.Texts | None = scopes_at(connections.OFFICESUITE)

    def to_settings(self) -> services.SettingChanges:
        """Return the settings for the use cases. Fields that were not sent keep their values."""
        settings = {name: getattr(self, name) for name in services.SETTINGS}
        if isinstance(self.jwks, JwkSetRequest):
            settings["jwks"] = self.jwks.keys
        return settings


class JwkSetResponse(kit.ResponseModel):
    """Public keys (RFC 7517)."""

    keys: list[dict[str, str]] = Field(description="The keys.")


def stored(name: str, default: object = None) -> Any:
    """Return the definition of a setting in a response, which leaves it out at its default."""
    description = f"{ServiceSettingsRequest.model_fields[name].description} Left out if {json.dumps(default)}."
    return Field(default=default, exclude_if=lambda value: value == default, description=description)
