"""Sign-ins at the OpenID provider of an organization: our client there, the request, and the answer.

Sources: OpenID Connect Core section 3.1; RFC 7636; RFC 9207.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NoReturn
from uuid import UUID

from core.authentication.flow.model import FlowTarget, ProviderHints, ProviderRequest
from core.federation.connections.model import asserted, connections, openid
from core.federation.connections.model.answers import names_received, to_seconds_off
from core.federation.connections.model.logins import ProviderSession
from core.federation.connections.model.presets import DOMAIN_PARAMETERS
from core.federation.connections.model.settings import ClaimMapping, OidcSettings
from core.federation.model import sign_in
from core.federation.saml.model import configuration
from core.kernel.errors import refuse
from core.kernel.page_paths import connection_endpoint_path
from core.kernel.values import is_printable
from ports import Ports

_CODE_OR_ERROR: Final = re.compile("[ -~]{1,4096}")  # RFC 6749 appendices A.7 and A.11
MAX_HINT_LENGTH: Final = 320  # of an email address
SECOND_FACTOR: Final = "mfa"  # in `amr` (RFC 8176 section 2)


async def load_client(ports: Ports, connection: connections.OrganizationConnection, settings: OidcSettings) -> openid.OpenIdClient:
    """Return our client at the provider of a connection, with its credentials."""
    async with ports.storage.reading() as read:
        secret = await read.connections.client_secret(connection.org_id, connection.id, settings.issuer)
        keys = await read.connection_keys.of_connection(connection.org_id, connection.id, ports.clock.now())
    return to_client(connection, settings, secret, keys)


def to_client(
    connection: connections.OrganizationConnection,
    settings: OidcSettings,
    secret: str | None,
    keys: Mapping[configuration.CertificateState, configuration.SamlCertificate],
) -> openid.OpenIdClient:
    return openid.OpenIdClient(
        org_id=connection.org_id,
        connection_id=connection.id,
        issuer=settings.issuer,
        client_id=settings.client_id,
        authentication=settings.client_authentication,
        client_secret=secret,
        key=keys.get(configuration.CertificateState.ACTIVE),
        clock_skew=settings.clock_skew,
    )


def make_request(
    connection: connections.OrganizationConnection,
    settings: OidcSettings,
    provider_request: ProviderRequest,
    *,
    state: str,
    device_cookie: str,
    base_url: str,
) -> openid.CodeRequest:
    """Return the request to the provider. It is the same before the redirect and after it."""
    return openid.CodeRequest(
        redirect_uri=redirect_uri(connection, base_url),
        state=state,
        nonce=sign_in.derive_secret("nonce", state, device_cookie),
        code_verifier=sign_in.derive_secret("verifier", state, device_cookie),
        scopes=settings.scopes,
        fresh_since=provider_request.begun_at if provider_request.flow.wants_fresh else None,
        accepts_silent=provider_request.flow.target is FlowTarget.REAUTHENTICATION,
        hints=_hints(connection.preset, provider_request.hints),
    )


def _hints(preset: str | None, hints: ProviderHints | None) -> dict[str, str]:
    """Return the parameters of hints. That of the domain depends on the product."""
    if hints is None:
        return {}
    # Providers ignore parameters that they do not know (RFC 6749 section 3.1).
    sent = {"login_hint": hints.login, DOMAIN_PARAMETERS.get(preset, "domain_hint"): hints.domain}
    return {name: hint for name, hint in sent.items() if hint and len(hint) <= MAX_HINT_LENGTH and is_printable(hint)}


async def published_keys(ports: Ports, connection_id: UUID) -> list[Mapping[str, str]]:
    """Return the public keys of our client assertions as JWKs: the present key, then the next key."""
    async with ports.storage.reading() as read:
        connection = await read.connections.of_active_org(connection_id) or refuse(connections.OrganizationConnectionNotFound)
        keys = await read.connection_keys.of_connection(connection.org_id, connection.id, ports.clock.now())
    published = [
        keys[state].certificate for state in (configuration.CertificateState.ACTIVE, configuration.CertificateState.NEXT) if state in keys
    ]
    return [await ports.certificates.public_jwk(certificate) for certificate in published]


def redirect_uri(connection: connections.OrganizationConnection, base_url: str) -> str:
    """Return the URI to register at the provider. Each connection has another one, so two on one issuer cannot be mixed up."""
    return base_url + connection_endpoint_path(connection.id, "callback")


async def start(ports: Ports, client: openid.OpenIdClient, request: openid.CodeRequest) -> str:
    """Return the URL of the provider that a browser is sent to. Raises: OpenIdAnswerRefused, OpenIdProviderUnreachable."""
    return openid.authorization_url(client, await ports.openid_providers.discover(client), request)


async def complete(
    ports: Ports,
    connection: connections.OrganizationConnection,
    client: openid.OpenIdClient,
    request: openid.CodeRequest,
    answer: sign_in.ProviderAnswer,
) -> asserted.ReceivedClaims:
    """Return the claims of the user that the provider authenticated.

    Raises: OpenIdAccessDenied, OpenIdErrorReturned, OpenIdAnswerRefused, OpenIdProviderUnreachable, SubjectMissing.
    """
    mapping = connection.mapping
    needed = {name for name in (mapping.email, mapping.groups) if name is not None}
    wanted = {name for name in mapping.document.values() if name is not None}
    try:
        received = await redeem(ports, client, request, answer, needed, wanted)
    except openid.OpenIdErrorReturned as returned:
        if returned.error == "access_denied":
            await refuse_access(ports, connection)
        raise
    with names_received(openid.claim_names(received.claims)):
        claims = to_received(received.claims, mapping)
        if claims.ends_at is not None and claims.ends_at <= ports.clock.now():
            off = to_seconds_off((claims.ends_at - ports.clock.now()).total_seconds())
            raise openid.OpenIdAnswerRefused(openid.OpenIdFault.TIME, off)
    return replace(claims, session=_session_of(client, received))


async def redeem(
    ports: Ports,
    client: openid.OpenIdClient,
    request: openid.CodeRequest,
    answer: sign_in.ProviderAnswer,
    needed: Collection[str],
    wanted: Collection[str] = (),
) -> openid.OpenIdAnswer:
    """Return the verified claims for the code that a browser brings back from an identity provider.

    The sign-in can go without the `wanted` claims.

    Raises: OpenIdErrorReturned, OpenIdAnswerRefused; the errors of `exchange`.
    """
    metadata = await ports.openid_providers.discover(client)
    openid.check_response_issuer(metadata, answer.issuer)
    if not _CODE_OR_ERROR.fullmatch(answer.error or answer.code or ""):
        raise openid.OpenIdAnswerRefused(openid.OpenIdFault.RESPONSE)
    if answer.error is not None or answer.code is None:
        raise openid.OpenIdErrorReturned(answer.error or "")
    return await ports.openid_providers.exchange(client, metadata, request, answer.code, needed, wanted)


async def refuse_access(ports: Ports, connection: connections.OrganizationConnection) -> NoReturn:
    """Raise OpenIdAccessDenied, or OrganizationConnectionNotFound if the organization has been deleted."""
    async with ports.storage.reading() as read:
        organization = await read.organizations.by_id(connection.org_id) or refuse(connections.OrganizationConnectionNotFound)
    raise openid.OpenIdAccessDenied(organization.name)


def _session_of(client: openid.OpenIdClient, answer: openid.OpenIdAnswer) -> ProviderSession:
    """Return the session at the provider, with the values for `sign_out.logout_url`."""
    logout = {"client_id": client.client_id, "algorithm": openid.algorithm_of(answer.id_token)}
    if len(answer.id_token) <= openid.MAX_HINT:
        logout["id_token"] = answer.id_token
    if answer.end_session_endpoint is not None:
        logout["end_session_endpoint"] = answer.end_session_endpoint
    return ProviderSession(answer.session, logout)


def to_received(claims: Mapping[str, Any], mapping: ClaimMapping) -> asserted.ReceivedClaims:
    """Return the claims of an ID token in the common form of OpenID Connect and SAML."""
    methods, values = claims.get("amr"), {name: _texts(value) for name, value in claims.items() if name not in openid.PROTOCOL_CLAIMS}
    match claims.get("_claim_names"):
        case dict() as left_out if mapping.groups in left_out:
            values["_claim_names"] = [*left_out]
    if (ends_at := openid.read_time(expiry := claims.get("session_expiry"))) is None and expiry is not None:
        raise openid.OpenIdAnswerRefused(openid.OpenIdFault.TIME)  # the session would have no end
    return asserted.ReceivedClaims(
        subject=asserted.require_subject(claims["sub"]),
        values={name: texts for name, texts in values.items() if texts is not None},
        objects=[name for name, texts in values.items() if texts is None and isinstance(claims[name], dict)],
        # The claim is about the address in `email`, and about no other claim.
        is_email_verified=_is_verified(claims.get("email_verified")) if mapping.email == "email" else None,
        has_second_factor=isinstance(methods, list) and SECOND_FACTOR in methods,
        authenticated_at=openid.read_time(claims.get("auth_time")),
        ends_at=ends_at,
    )


def _is_verified(value: object) -> bool | None:
    """Return whether an address is verified, or None if the provider does not say. Some send a text, which is not the claim."""
    return None if value in (None, "true") else value is True


def _texts(value: object) -> Sequence[str] | None:
    """Return the values of a claim as texts, or None for an object. An empty list has no values, which is not the same as no claim."""
    match value:
        case list():
            return [text for each in value if (text := _text(each)) is not None]
        case _ if (text := _text(value)) is not None:
            return [text]
    return None


def _text(value: object) -> str | None:
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
    return None
