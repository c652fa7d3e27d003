"""Sign-outs at OpenID providers: users go there after a sign-out here, and the provider reports its own sign-outs.

Sources: OpenID Connect RP-Initiated Logout 1.0; OpenID Connect Back-Channel Logout 1.0.
"""

from collections.abc import Mapping
from uuid import UUID

from core.federation.connections import logins
from core.federation.connections.model.connections import OrganizationConnection, OrganizationConnectionNotFound
from core.federation.connections.model.logins import LogoutTokenRefused, LogoutTokenUsed
from core.federation.connections.model.openid import OpenIdAnswerRefused, OpenIdClient, OpenIdFault, OpenIdProviderUnreachable, algorithm_of
from core.federation.connections.model.settings import OidcSettings
from core.federation.connections.openid import load_client
from core.kernel import uris
from core.kernel.causes import Caller
from core.kernel.values import digest
from ports import Ports


def logout_url(logout: Mapping[str, str], post_logout_redirect_uri: str, state: str) -> str | None:
    """Return the URL at which the user signs out at the provider, or None if the provider has none."""
    endpoint = logout.get("end_session_endpoint")
    if endpoint is None:
        return None
    fields = {"client_id": logout["client_id"], "post_logout_redirect_uri": post_logout_redirect_uri, "state": state}
    if "id_token" in logout:
        fields["id_token_hint"] = logout["id_token"]
    return uris.add_parameters(endpoint, fields)


async def receive(ports: Ports, caller: Caller, connection_id: UUID, token: str) -> None:
    """End the sign-ins that a logout token of the provider names. An unknown user or session is no error.

    Raises: OrganizationConnectionNotFound, OpenIdAnswerRefused, OpenIdProviderUnreachable, LogoutTokenRefused, LogoutTokenUsed, SealBroken.
    """
    async with ports.storage.reading() as read:
        connection = await read.connections.of_active_org(connection_id)
    if connection is None or not connection.is_active or not isinstance(connection.settings, OidcSettings):
        raise OrganizationConnectionNotFound
    try:
        await _receive(ports, caller, connection, await load_client(ports, connection, connection.settings), token)
    except (OpenIdAnswerRefused, OpenIdProviderUnreachable, LogoutTokenUsed) as refusal:
        await logins.record_refused_sign_out(ports, caller, connection, refusal)
        # A program reads it, and no user.
        raise LogoutTokenRefused(refusal.fault) if isinstance(refusal, OpenIdAnswerRefused) else refusal from None


async def _receive(ports: Ports, caller: Caller, connection: OrganizationConnection, client: OpenIdClient, token: str) -> None:
    metadata = await ports.openid_providers.discover(client)
    logout = await ports.openid_providers.read_logout(client, metadata, token)
    async with ports.storage.transaction(by=caller) as tx:
        user_id = None if logout.subject is None else await logins.find_user(tx, connection, logout.subject)
        login = await logins.find_newest(tx, connection, user_id, logout.session)
        algorithm = None if login is None else login.logout.get("algorithm")
        # The provider signs both with the algorithm that is registered for our client (Back-Channel Logout section 2.6).
        if algorithm is not None and algorithm != algorithm_of(token):
            raise OpenIdAnswerRefused(OpenIdFault.ALGORITHM)
        if not await tx.connections.use_message(connection.org_id, connection.id, digest(logout.token_id), logout.valid_until):
            raise LogoutTokenUsed
        if logout.subject is None or user_id is not None:  # an unknown user has no sign-ins
            await logins.end_at_provider(tx, connection, user_id, logout.session, ports.clock.now())
