"""Sign-outs of browsers that go on at the identity provider, and sign-outs that OpenID providers report.

Applications that sign out over SAML come first, because a provider may not send the browser back. A provider that fails changes
nothing here.

Sources: OpenID Connect RP-Initiated Logout 1.0; OpenID Connect Back-Channel Logout 1.0.
"""

from collections.abc import Mapping
from typing import TypeGuard
from uuid import UUID

from core.federation.connections import logins, saml_logout
from core.federation.connections.model import connections, openid
from core.federation.connections.model import logins as logins_model
from core.federation.connections.model.settings import OidcSettings
from core.federation.connections.openid import load_client
from core.kernel import uris, values
from core.kernel.callers import Visitor
from core.kernel.causes import Caller
from core.kernel.page_paths import CONNECTIONS_PATH, connection_endpoint_path
from core.kernel.proofs import named_login
from ports import Ports


async def begin(ports: Ports, visitor: Visitor | None, cookie: str | None, after: str) -> logins_model.ProviderSignOut | None:
    """Return the sign-out that goes on at the identity provider of the visitor, or None if there is none. It ends at the path `after`.

    Without a visitor, for example after a double click, the sign-out with the secret in this cookie goes on.
    """
    if visitor is None:
        login = await _find(ports, cookie)
        if login is None or cookie is None:
            return None
        return logins_model.ProviderSignOut(connection_endpoint_path(login.connection_id, logins_model.START_LOGOUT), cookie)
    named = named_login(visitor.browser.proofs)
    if named is None:
        return None
    secret = values.new_secret()
    async with ports.storage.transaction(by=visitor) as tx:
        login = await tx.connection_logins.find(*named, visitor.user_id)
        if login is None:
            return None
        if logout_url(login.logout, "", "") is None and not await saml_logout.can_request(tx, login, ports.clock.now()):
            return None
        await tx.connection_logins.save_sign_out(login.org_id, login.id, values.digest(secret), after)
    return logins_model.ProviderSignOut(connection_endpoint_path(login.connection_id, logins_model.START_LOGOUT), secret)


def is_sign_out_at_provider(path: str | None) -> TypeGuard[str]:
    """Return whether this path of a finished sign-out leads on to an identity provider."""
    return path is not None and path.startswith(f"{CONNECTIONS_PATH}/") and path.endswith(f"/{logins_model.START_LOGOUT}")


async def find_url(ports: Ports, connection_id: UUID, secret: str | None, base_url: str) -> str | None:
    """Return the URL at which the browser with this secret signs out at the provider, or None if it has no sign-out to do."""
    login = await _find(ports, secret)
    if login is None or secret is None or login.connection_id != connection_id:
        return None
    if "name_id" in login.logout:
        return await saml_logout.request_url(ports, login, secret, base_url)
    return logout_url(login.logout, base_url + connection_endpoint_path(connection_id, logins_model.BACK_FROM_LOGOUT), secret)


async def _find(ports: Ports, secret: str | None) -> logins_model.ConnectionLogin | None:
    if secret is None:
        return None
    async with ports.storage.reading() as read:
        return await read.connection_logins.by_sign_out(values.digest(secret))


async def finish(ports: Ports, caller: Caller, connection_id: UUID, secret: str | None, state: str | None) -> str | None:
    """End the sign-out of the browser with this secret, and return the path at which it continues.

    Return None if the browser did not begin it, or brings another state. The answer of the provider changes nothing else.
    """
    if secret is None or state not in (secret, saml_logout.make_request_id(secret)):
        return None
    async with ports.storage.transaction(by=caller) as tx:
        return await tx.connection_logins.finish_sign_out(connection_id, values.digest(secret))


def logout_url(logout: Mapping[str, str], post_logout_redirect_uri: str, state: str) -> str | None:
    """Return the URL at which the user signs out at the provider, or None if the provider has none."""
    endpoint = logout.get("end_session_endpoint")
    if endpoint is None:
        return None
    fields = {"client_id": logout["client_id"], "post_logout_redirect_uri": post_logout_redirect_uri, "state": state}
    if "id_token" in logout:
        fields["id_token_hint"] = logout["id_token"]
    return uris.add_parameters(endpoint, fields)


async def receive_logout(ports: Ports, caller: Caller, connection_id: UUID, token: str) -> None:
    """End the sign-ins that a logout token of the provider names. An unknown user or session is no error."""
    async with ports.storage.reading() as read:
        connection = await read.connections.of_active_org(connection_id)
    if connection is None or not connection.is_active or not isinstance(connection.settings, OidcSettings):
        raise connections.OrganizationConnectionNotFound
    try:
        await _receive_logout(ports, caller, connection, await load_client(ports, connection, connection.settings), token)
    except (openid.OpenIdAnswerRefused, openid.OpenIdProviderUnreachable, logins_model.LogoutTokenUsed) as refusal:
        await logins.record_refused_sign_out(ports, caller, connection, refusal)
        # A program reads it, and no user.
        raise logins_model.LogoutTokenRefused(refusal.fault) if isinstance(refusal, openid.OpenIdAnswerRefused) else refusal from None


async def _receive_logout(
    ports: Ports, caller: Caller, connection: connections.OrganizationConnection, client: openid.OpenIdClient, token: str
) -> None:
    metadata = await ports.openid_providers.discover(client)
    logout = await ports.openid_providers.read_logout(client, metadata, token)
    async with ports.storage.transaction(by=caller) as tx:
        user_id = None if logout.subject is None else await logins.find_user(tx, connection, logout.subject)
        login = await logins.find_newest(tx, connection, user_id, logout.session)
        algorithm = None if login is None else login.logout.get("algorithm")
        # The provider signs both with the algorithm that is registered for our client (Back-Channel Logout section 2.6).
        if algorithm is not None and algorithm != openid.algorithm_of(token):
            raise openid.OpenIdAnswerRefused(openid.OpenIdFault.ALGORITHM)
        if not await tx.connections.use_message(connection.org_id, connection.id, values.digest(logout.token_id), logout.valid_until):
            raise logins_model.LogoutTokenUsed
        if logout.subject is None or user_id is not None:  # an unknown user has no sign-ins
            await logins.end_at_provider(tx, connection, user_id, logout.session, ports.clock.now())
