"""An application's settings as an OAuth client: its keys, token lifetimes and sign-in requirements, and names for external clients.

Sources: RFC 6749 section 2.3, RFC 7517, RFC 7523, and OpenID Connect Dynamic Client Registration section 2 for the names.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Literal

from core.kernel import outbound, proofs, uris, values
from core.kernel.errors import Invalid
from core.kernel.policy import Policy

Jwk = Mapping[str, str]

# The algorithms for client assertions. No algorithm is symmetric: a server that stores client
# secrets could be made to take a public key for a secret (RFC 8725 section 3.1).
ASSERTION_ALGORITHMS: Final = ("RS256", "PS256", "ES256", "EdDSA")
MAX_KEYS: Final = 20
MAX_KID_LENGTH: Final = 255
MAX_SECRET_OVERLAP: Final = 7 * 86400  # seconds
MIN_TOKEN_SECONDS: Final = 60  # shorter lifetimes would end on the way
# By key type: the members that make up the public key (RFC 7518 section 6, RFC 8037), and the algorithms.
_PUBLIC_MEMBERS: Final = {"RSA": ("e", "kty", "n"), "EC": ("crv", "kty", "x", "y"), "OKP": ("crv", "kty", "x")}
_ALGORITHMS: Final = {"RSA": ("RS256", "PS256"), "EC": ("ES256",), "OKP": ("EdDSA",)}
_PRIVATE_MEMBERS: Final = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})


class ClientKeysInvalid(Invalid):
    """Send 1 to 20 public keys (RFC 7517): RSA of 2048 to 8192 bits, P-256 or Ed25519. Each kid is unique: 1 to 255 visible characters."""


class PrivateKeySent(Invalid):
    """The keys contain a private or symmetric key. Send public keys only, and replace this key, because it is no longer secret."""


class ClientKeysUriInvalid(Invalid):
    """The URL of the public keys (jwks_uri) must start with https:// and contain a public host, but no user name and no fragment."""


class InitiateLoginUriInvalid(Invalid):
    """The login URL (initiate_login_uri) must start with https:// and contain a host, but no user name and no fragment."""


class LogoUriInvalid(Invalid):
    """The logo URL (logo_uri) must start with https:// and contain a host, but no user name and no fragment."""


class PolicyUriInvalid(Invalid):
    """The privacy policy URL (policy_uri) must start with https:// and contain a host, but no user name and no fragment."""


class TosUriInvalid(Invalid):
    """The terms of service URL (tos_uri) must start with https:// and contain a host, but no user name and no fragment."""


class ClientKeysTwice(Invalid):
    """An application has either jwks or jwks_uri. Remove the other one."""


class PublicClientHasKeys(Invalid):
    """Applications of the type spa, mobile or desktop have no keys because they cannot keep a private key. Use PKCE instead."""


class EnterpriseSettingsInvalid(Invalid):
    """High security (IPSIE SL1) does not allow http redirect URIs, the token endpoint as audience, or PKCE instead of the client secret."""


class SecretOverlapInvalid(Invalid):
    """The old client secret can work for 0 to 604800 seconds (7 days) beside the new one."""


class TokenSecondsInvalid(Invalid):
    """The lifetimes of an application's tokens must be at least 60 seconds. They cannot be longer than the lifetimes of the platform."""


LINKS: Final = ("policy_uri", "tos_uri", "logo_uri")  # that the consent page shows, in this order


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """An application's settings as an OAuth client."""

    jwks: tuple[Jwk, ...] | None = None  # public keys for client assertions, with the members that `parse_keys` returns
    jwks_uri: str | None = None  # where the client's keys are instead
    accepts_token_endpoint_audience: bool = False  # as the audience in client assertions, in addition to the issuer
    access_token_seconds: int | None = None  # None: as on the platform
    refresh_token_seconds: int | None = None
    enterprise: bool = False  # IPSIE SL1: PKCE always, no http redirect URI, assertions for the issuer only
    required_acr: Literal["mfa", "phr"] | None = None  # every sign-in needs at least this authentication class
    require_pushed_authorization_requests: bool = False  # RFC 9126 section 6
    dpop_bound_access_tokens: bool = False  # every token is bound to a key (RFC 9449 section 5.2)
    initiate_login_uri: str | None = None  # where the application starts a sign-in (OpenID Connect Core section 4)
    always_ask_consent: bool = False  # in every sign-in, even for users who agreed before or are exempt by `is_trusted`

    # Linked on the consent page (RFC 7591 section 2). Browsers load no logo from there: it could be changed, and count visitors.
    logo_uri: str | None = None
    policy_uri: str | None = None
    tos_uri: str | None = None

    @property
    def required_strength(self) -> proofs.Strength:
        """How strong `required_acr` is."""
        return proofs.Strength.ONE if self.required_acr is None else proofs.Acr(self.required_acr).strength

    @property
    def has_keys(self) -> bool:
        return self.jwks is not None or self.jwks_uri is not None


def parse_keys(keys: Sequence[Mapping[str, object]]) -> tuple[Jwk, ...]:
    """Return the public keys in a JWK set with the members that are used, in the same order.

    Keys with other types, for encryption, or for other algorithms are ignored (RFC 7517 section 5). The numbers in the
    keys are not checked here (`ports.crypto.ClientAssertions.check_keys`).

    Raises: ClientKeysInvalid, PrivateKeySent.
    """
    if any(_PRIVATE_MEMBERS & key.keys() or key.get("kty") == "oct" for key in keys):
        raise PrivateKeySent
    parsed = tuple(_parse_key(key) for key in keys if _is_signature_key(key))
    ids = [key["kid"] for key in parsed if "kid" in key]
    if not 0 < len(parsed) <= MAX_KEYS or len(set(ids)) < len(ids):
        raise ClientKeysInvalid
    return parsed


def usable_keys(keys: Sequence[Mapping[str, object]]) -> tuple[Jwk, ...]:
    """Return the first MAX_KEYS keys in a published JWK set that could verify an assertion, with the members that are used."""
    usable: list[Jwk] = []
    for key in keys:
        with suppress(ClientKeysInvalid):
            if _is_signature_key(key) and len(usable) < MAX_KEYS:
                usable.append(_parse_key(key))
    return tuple(usable)


def _is_signature_key(key: Mapping[str, object]) -> bool:
    algorithms = _ALGORITHMS.get(str(key.get("kty")), ())
    return key.get("use", "sig") == "sig" and key.get("alg", next(iter(algorithms), None)) in algorithms


def _parse_key(key: Mapping[str, object]) -> Jwk:
    type_ = str(key["kty"])
    members = {name: key[name] for name in (*_PUBLIC_MEMBERS[type_], "kid", "use", "alg") if name in key}
    texts = {name: value for name, value in members.items() if isinstance(value, str)}
    is_complete = len(texts) == len(members) and texts.keys() >= set(_PUBLIC_MEMBERS[type_])
    kid = texts.get("kid")
    if not is_complete or (kid is not None and (len(kid) > MAX_KID_LENGTH or not values.is_printable(kid) or not values.is_visible(kid))):
        raise ClientKeysInvalid
    return texts


def thumbprint(key: Jwk) -> str:
    """Return a key's SHA-256 thumbprint (RFC 7638)."""
    required = {name: key[name] for name in _PUBLIC_MEMBERS[key["kty"]]}
    return values.base64url(values.digest(json.dumps(required, separators=(",", ":"))))


def check(settings: ClientSettings, redirect_uris: Sequence[str], *, is_public: bool, pkce_without_secret: bool) -> None:
    """Check an application's settings with these redirect URIs.

    Raises: PublicClientHasKeys, ClientKeysTwice, ClientKeysUriInvalid, InitiateLoginUriInvalid, LogoUriInvalid,
    PolicyUriInvalid, TosUriInvalid, EnterpriseSettingsInvalid.
    """
    if settings.has_keys and is_public:
        raise PublicClientHasKeys
    if settings.jwks is not None and settings.jwks_uri is not None:
        raise ClientKeysTwice
    _check_uri(settings.jwks_uri, "jwks_uri", ClientKeysUriInvalid)
    _check_uri(settings.initiate_login_uri, "initiate_login_uri", InitiateLoginUriInvalid)
    _check_uri(settings.logo_uri, "logo_uri", LogoUriInvalid)
    _check_uri(settings.policy_uri, "policy_uri", PolicyUriInvalid)
    _check_uri(settings.tos_uri, "tos_uri", TosUriInvalid)
    weak_settings = {
        "http redirect URIs": any(redirect_uri.lower().startswith("http:") for redirect_uri in redirect_uris),
        "the token endpoint as audience": settings.accepts_token_endpoint_audience,
        "PKCE instead of the client secret": pkce_without_secret,
    }
    weak = [name for name, is_used in weak_settings.items() if is_used]
    if settings.enterprise and weak:
        raise EnterpriseSettingsInvalid(f"High security (IPSIE SL1) does not allow {' and '.join(weak)}. Turn one or the other off.")


def check_keys_uri(jwks_uri: str, policy: Policy) -> None:
    """Check the URL at which a client publishes its keys. Raises: ClientKeysUriInvalid, KeyPortNotAllowed."""
    _check_uri(jwks_uri, "jwks_uri", ClientKeysUriInvalid)
    if not uris.has_port_of(jwks_uri, policy.key_ports):
        raise outbound.KeyPortNotAllowed


def _check_uri(uri: str | None, name: str, refusal: type[Invalid]) -> None:
    if uri is None:
        return
    flaw = uris.web_flaw(uri)
    if len(uri) > outbound.LONGEST_URL or not uri.startswith("https:") or flaw is uris.NOT_WEB:
        raise refusal
    if flaw:
        raise refusal(f"The {name} is not allowed: {flaw}")


def check_limits(settings: ClientSettings, policy: Policy) -> None:
    """Check the settings against the platform's limits: token lifetimes, and the port at which keys are fetched."""
    if settings.jwks_uri is not None and not uris.has_port_of(settings.jwks_uri, policy.key_ports):
        raise outbound.KeyPortNotAllowed
    for seconds, limit in (
        (settings.access_token_seconds, policy.access_token_ttl),
        (settings.refresh_token_seconds, policy.refresh_token_ttl),
    ):
        if seconds is not None and not MIN_TOKEN_SECONDS <= seconds <= limit.total_seconds():
            raise TokenSecondsInvalid


SELF_REGISTERED: Final = "Self-registered application"  # for a client that registered itself, in place of a host
LABEL_LENGTH: Final = 64  # the start of a sealed client id: its random part is in it


def client_host(address: str) -> str | None:
    """Return the host in a client's address in A-labels and lower case, with a port other than 443, or None if it is not https."""
    start = uris.start_of(address)
    return start.removeprefix("https://").removesuffix("/") if start and start.startswith("https://") else None


def known_name(client_uri: str) -> str:
    """Return a name for an external client that it did not choose: its host, or that it registered itself."""
    return client_host(client_uri) or SELF_REGISTERED


def client_label(client_uri: str) -> str:
    """Return the text that names a client in events and logs: its address, or the start of its client id if it registered itself."""
    return client_uri if client_host(client_uri) else f"{client_uri[:LABEL_LENGTH]}..."
