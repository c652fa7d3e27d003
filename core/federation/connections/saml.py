"""Sign-ins at the SAML identity provider of an organization: our service provider there, the request, and the response.

Sources: SAML profiles section 4.1; security X-12 to security X-16.
"""

from collections.abc import Awaitable
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from core.authentication.flow.model import ProviderRequest
from core.federation.connections import metadata
from core.federation.connections.access import load_details
from core.federation.connections.model import asserted, connections, saml, saml_responses
from core.federation.connections.model.answers import MAX_CLOCK_SKEW, to_seconds_off
from core.federation.connections.model.details import ConnectionDetails
from core.federation.connections.model.logins import ProviderSession
from core.federation.connections.model.settings import SamlSettings
from core.federation.saml.model.configuration import CertificateState
from core.kernel.causes import Caller
from core.kernel.errors import refuse
from core.kernel.page_paths import connection_endpoint_path
from core.kernel.values import digest
from ports import Ports

# The contexts that state a second factor. Entra ID states it in an attribute, and always sends the same context.
SECOND_FACTOR_CONTEXTS: Final = frozenset({"https://refeds.org/profile/mfa", "http://schemas.microsoft.com/claims/multipleauthn"})
METHODS_ATTRIBUTE: Final = "http://schemas.microsoft.com/claims/authnmethodsreferences"


def own_service_provider(details: ConnectionDetails, settings: SamlSettings, base_url: str) -> saml.OwnServiceProvider:
    """Return our service provider. The next key is published before it signs. Only the active one is for encryption: ADFS takes one."""
    keys, connection = details.keys, details.connection
    return saml.OwnServiceProvider(
        entity_id=base_url + connection_endpoint_path(connection.id),
        acs_url=base_url + connection_endpoint_path(connection.id, "acs"),
        slo_url=base_url + connection_endpoint_path(connection.id, "slo"),
        name_id_format=settings.name_id_format if settings.subject is None else None,
        signs_requests=settings.signs_requests,
        signing=[keys[state] for state in (CertificateState.ACTIVE, CertificateState.NEXT) if state in keys],
        encryption=[keys[CertificateState.ACTIVE]] if CertificateState.ACTIVE in keys else [],
    )


async def own_metadata(ports: Ports, connection_id: UUID, base_url: str) -> bytes:
    """Return our metadata for the identity provider of a connection."""
    async with ports.storage.reading() as read:
        connection = await read.connections.of_active_org(connection_id) or refuse(connections.OrganizationConnectionNotFound)
        if not isinstance(connection.settings, SamlSettings):
            raise connections.OrganizationConnectionNotFound
        details = await load_details(read, connection, ports.clock.now())
    return await ports.saml_providers.own_metadata(own_service_provider(details, connection.settings, base_url))


async def start(
    ports: Ports, details: ConnectionDetails, settings: SamlSettings, provider_request: ProviderRequest, request_id: str, base_url: str
) -> saml.ProviderRedirect:
    """Return the place at the identity provider to which the browser takes our request."""
    request = saml.SamlSignInRequest(
        id=request_id,
        destination=settings.sso_url,
        binding=settings.sso_binding,
        force_authn=provider_request.flow.wants_fresh,
        issued_at=provider_request.begun_at,
    )
    return await ports.saml_providers.sign_in_request(own_service_provider(details, settings, base_url), request)


async def verify(
    ports: Ports, details: ConnectionDetails, settings: SamlSettings, answer: saml.SamlAnswer, base_url: str, *, expected: str
) -> saml_responses.AssertedIdentity:
    """Return the identity that the identity provider asserts. `expected` is the id of our request.

    Raises: SamlResponseRefused, SamlStatusReturned, Limited, SealBroken.
    """
    return await ports.saml_providers.read(answer, _partner(details, settings, base_url), ports.clock.now(), expected=expected)


async def verify_or_refetch(
    ports: Ports, details: ConnectionDetails, settings: SamlSettings, answer: saml.SamlAnswer, base_url: str, *, expected: str
) -> saml_responses.AssertedIdentity:
    """Return the identity as `verify` does. The identity provider of a stored connection may have a new certificate in its metadata."""
    connection = details.connection
    try:
        return await verify(ports, details, settings, answer, base_url, expected=expected)
    except saml_responses.SamlResponseRefused as refusal:
        if refusal.fault is not saml_responses.SamlFault.SIGNATURE_WRONG or not await metadata.refetch(ports, connection, settings):
            raise
    async with ports.storage.reading() as read:
        details = await load_details(read, connection, ports.clock.now())
    return await verify(ports, details, settings, answer, base_url, expected=expected)


async def use_up(
    ports: Ports, caller: Caller, connection: connections.OrganizationConnection, assertion: asserted.OneTimeAssertion | None
) -> None:
    """Use up an assertion at once. Raises: SamlResponseRefused if it was used before."""
    if assertion is not None:
        async with ports.storage.transaction(by=caller) as tx:
            used = tx.connections.use_message(connection.org_id, connection.id, assertion.hash, assertion.kept_until)
        await require_unused(used)


async def require_unused(used: Awaitable[bool] | None) -> None:
    """Check the result of `use_message`, if there was an assertion."""
    if used is not None and not await used:
        raise saml_responses.SamlResponseRefused(saml_responses.SamlFault.USED)


def _partner(details: ConnectionDetails, settings: SamlSettings, base_url: str) -> saml_responses.SamlPartner:
    own = own_service_provider(details, settings, base_url)
    return saml_responses.SamlPartner(
        entity_id=settings.entity_id,
        certificates=active_certificates(details),
        audience=own.entity_id,
        acs_url=own.acs_url,
        # The previous key decrypts until the identity provider has read the new metadata.
        decryption_keys=tuple(key.private_key for key in details.keys.values()),
        clock_skew=settings.clock_skew,
    )


def active_certificates(details: ConnectionDetails) -> tuple[str, ...]:
    """Return the certificates (PEM) that verify messages of the identity provider."""
    return tuple(each.certificate for each in details.certificates if each.is_active)


def check_fresh(identity: saml_responses.AssertedIdentity, since: datetime, skew: timedelta) -> None:
    """Check that the identity provider authenticated the user after `since`."""
    if identity.authenticated_at < since - skew:
        off = to_seconds_off((identity.authenticated_at - since).total_seconds())
        raise saml_responses.SamlResponseRefused(saml_responses.SamlFault.AUTHN_INSTANT, off)


def to_received(identity: saml_responses.AssertedIdentity, settings: SamlSettings) -> asserted.ReceivedClaims:
    """Return the identity in the common form of OpenID Connect and SAML."""
    values: dict[str, list[str]] = {}
    for attribute in identity.attributes:
        values.setdefault(attribute.name, []).extend(attribute.values)
    name_id = None if identity.name_id is None else (identity.name_id.value, identity.name_id.format)
    return asserted.ReceivedClaims(
        subject=asserted.saml_subject(settings, name_id, values),
        values=values,
        has_second_factor=not SECOND_FACTOR_CONTEXTS.isdisjoint((identity.context_class, *values.get(METHODS_ATTRIBUTE, ()))),
        authenticated_at=identity.authenticated_at,
        ends_at=identity.session_ends_at,
        session=_session_of(identity),
        # An admin can raise the tolerated skew after the sign-in. The assertion must not work again then.
        assertion=asserted.OneTimeAssertion(digest(identity.assertion_id), identity.valid_until + MAX_CLOCK_SKEW),
    )


def _session_of(identity: saml_responses.AssertedIdentity) -> ProviderSession | None:
    """Return the session at the identity provider, with the values that a logout request has (SAML core section 3.7.1)."""
    name_id = identity.name_id
    if name_id is None:
        return None
    named = {
        "name_id": name_id.value,
        "format": name_id.format,
        "name_qualifier": name_id.name_qualifier,
        "sp_name_qualifier": name_id.sp_name_qualifier,
        "session_index": identity.session_index,
    }
    session_id = None if identity.session_index is None else hash_session(name_id.value, identity.session_index)
    return ProviderSession(session_id, {name: value for name, value in named.items() if value is not None})


def hash_session(name_id: str, session_index: str) -> str:
    """Return the id of a session at an identity provider. A SessionIndex alone can be the same for many users (SAML core section 2.7.2)."""
    return digest(f"{name_id}\n{session_index}").hex()
