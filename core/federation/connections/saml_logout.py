"""Single logout with SAML identity providers of organizations: their requests, and ours after a sign-out here.

Sources: SAML profiles section 4.4; security X-17.
"""

from datetime import datetime
from uuid import UUID

from core.federation.connections import logins
from core.federation.connections.access import load_details
from core.federation.connections.model import connections, saml, saml_responses
from core.federation.connections.model.logins import ConnectionLogin
from core.federation.connections.model.settings import SamlSettings
from core.federation.connections.saml import active_certificates, hash_session, own_service_provider
from core.federation.saml.model import messages
from core.federation.saml.model.sign_on import MAX_SESSION_INDEXES
from core.kernel.causes import Caller
from core.kernel.values import digest
from ports import Ports, storage

# Requests of identity providers


async def receive_request(
    ports: Ports,
    caller: Caller,
    connection_id: UUID,
    document: bytes,
    signature: messages.QuerySignature | None,
    relay_state: str | None,
    base_url: str,
) -> str | None:
    """End the sign-ins that a LogoutRequest names. Return the URL with our response, or None if the provider has no address for it.

    The browser that delivers the request does not matter, because the request is signed. `signature` is that of the query. A user
    or a session without a sign-in here is no error.

    Raises: OrganizationConnectionNotFound, SamlResponseRefused, RelayStateInvalid, Limited, SealBroken.
    """
    messages.check_relay_state(relay_state)
    now = ports.clock.now()
    async with ports.storage.reading() as read:
        connection = await read.connections.of_active_org(connection_id)
        if (
            connection is None
            or connection.state is not connections.ConnectionState.ACTIVE
            or not isinstance(connection.settings, SamlSettings)
        ):
            raise connections.OrganizationConnectionNotFound
        details = await load_details(read, connection, now)
    settings, own = connection.settings, own_service_provider(details, connection.settings, base_url)
    try:
        request = await ports.saml_providers.read_logout_request(document, signature, active_certificates(details))
        _check(request, settings, own, now)
        async with ports.storage.transaction(by=caller) as tx:
            used_until = request.issue_instant + messages.MAX_AGE + saml_responses.LOGOUT_SKEW
            if not await tx.connections.use_message(connection.org_id, connection.id, digest(request.id), used_until):
                raise saml_responses.SamlResponseRefused(saml_responses.SamlFault.USED)
            status = await _end(tx, connection, settings, request, now)
    except (saml_responses.SamlResponseRefused, messages.SamlMessageInvalid) as refusal:
        await logins.record_refused_sign_out(ports, caller, connection, refusal)
        raise
    address = settings.slo_response_url or settings.slo_url
    if address is None or not own.signing:
        return None
    return await ports.saml_providers.logout_response(own, address, request.id, status, relay_state, now)


def _check(request: messages.LogoutRequest, settings: SamlSettings, own: saml.OwnServiceProvider, now: datetime) -> None:
    """Check that the identity provider of the connection sent this request here, a short time ago. Raises: SamlResponseRefused."""
    if not request.id or len(request.session_indexes) > MAX_SESSION_INDEXES:
        raise saml_responses.SamlResponseRefused(saml_responses.SamlFault.MALFORMED)
    if request.issuer != settings.entity_id:
        raise saml_responses.SamlResponseRefused(saml_responses.SamlFault.ISSUER)
    if request.destination != own.slo_url:  # a signed message needs it (SAML bindings section 3.4.5.2)
        raise saml_responses.SamlResponseRefused(saml_responses.SamlFault.DESTINATION)
    if abs(request.issue_instant - now) > messages.MAX_AGE or (
        request.ends_at is not None and now >= request.ends_at + saml_responses.LOGOUT_SKEW
    ):
        raise saml_responses.SamlResponseRefused(saml_responses.SamlFault.TIME)


async def _end(
    tx: storage.Transaction,
    connection: connections.OrganizationConnection,
    settings: SamlSettings,
    request: messages.LogoutRequest,
    now: datetime,
) -> messages.SamlStatus | None:
    """End the sign-ins that a request names. Return the status for the response."""
    name_id = request.name_id.value
    for index in request.session_indexes:
        await logins.end_at_provider(tx, connection, None, hash_session(name_id, index), now)
    if not request.session_indexes:
        if settings.subject is not None:  # users are not known by their NameID
            return messages.SamlStatus.UNKNOWN_PRINCIPAL
        user_id = await logins.find_user(tx, connection, name_id)
        if user_id is not None:
            await logins.end_at_provider(tx, connection, user_id, None, now)
    return None


# Our requests


async def can_request(read: storage.Reading | storage.Transaction, login: ConnectionLogin, now: datetime) -> bool:
    """Return whether the user of this sign-in can sign out at the identity provider."""
    return await _find_provider(read, login, "", now) is not None


async def request_url(ports: Ports, login: ConnectionLogin, secret: str, base_url: str) -> str | None:
    """Return the identity provider's URL with a LogoutRequest for the browser with this secret. None: the provider takes no request."""
    now = ports.clock.now()
    async with ports.storage.reading() as read:
        provider = await _find_provider(read, login, base_url, now)
    if provider is None:
        return None
    values = login.logout
    request = saml.SamlLogoutRequest(
        id=make_request_id(secret),
        destination=provider[1],
        name_id=saml_responses.AssertedNameId(
            value=values["name_id"],
            format=values.get("format"),
            name_qualifier=values.get("name_qualifier"),
            sp_name_qualifier=values.get("sp_name_qualifier"),
        ),
        session_index=values.get("session_index"),
        issued_at=now,
    )
    return await ports.saml_providers.logout_request(provider[0], request)


async def _find_provider(
    read: storage.Reading | storage.Transaction, login: ConnectionLogin, base_url: str, now: datetime
) -> tuple[saml.OwnServiceProvider, str] | None:
    """Return our service provider, which has a key, and the address for logout requests, or None."""
    if "name_id" not in login.logout:
        return None
    connection = await read.connections.of_active_org(login.connection_id)
    if connection is None or not isinstance(connection.settings, SamlSettings) or connection.settings.slo_url is None:
        return None
    own = own_service_provider(await load_details(read, connection, now), connection.settings, base_url)
    return (own, connection.settings.slo_url) if own.signing else None


def make_request_id(secret: str) -> str:
    """Return the id for the LogoutRequest from the browser with this secret.

    A response that names it comes from this browser's sign-out.
    """
    return f"_{digest(secret).hex()}"


async def find_answered(ports: Ports, document: bytes) -> str:
    """Return the id of the request that a LogoutResponse answers. It is not verified. Raises: SamlMessageInvalid, Limited."""
    response = await ports.saml.read(document)
    if not isinstance(response, messages.LogoutResponse):
        raise messages.SamlMessageInvalid
    return response.in_response_to
