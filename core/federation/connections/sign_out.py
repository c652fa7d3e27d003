"""Sign-outs of browsers that go on at the identity provider, after the session here has ended.

Applications that sign out over SAML come first, because a provider may not send the browser back. A provider that fails changes
nothing here.
"""

from typing import TypeGuard
from uuid import UUID

from core.federation.connections import saml_logout
from core.federation.connections.model.logins import BACK_FROM_LOGOUT, START_LOGOUT, ConnectionLogin, ProviderSignOut
from core.federation.connections.openid_logout import logout_url
from core.kernel.callers import Visitor
from core.kernel.causes import Caller
from core.kernel.page_paths import CONNECTIONS_PATH, connection_endpoint_path
from core.kernel.proofs import named_login
from core.kernel.values import digest, new_secret
from ports import Ports


async def begin(ports: Ports, visitor: Visitor | None, cookie: str | None, after: str) -> ProviderSignOut | None:
    """Return the sign-out that goes on at the identity provider of the visitor, or None if there is none. It ends at the path `after`.

    Without a visitor, for example after a double click, the sign-out with the secret in this cookie goes on.
    """
    if visitor is None:
        login = await _find(ports, cookie)
        if login is None or cookie is None:
            return None
        return ProviderSignOut(connection_endpoint_path(login.connection_id, START_LOGOUT), cookie)
    named = named_login(visitor.browser.proofs)
    if named is None:
        return None
    secret = new_secret()
    async with ports.storage.transaction(by=visitor) as tx:
        login = await tx.connection_logins.find(*named, visitor.user_id)
        if login is None:
            return None
        if logout_url(login.logout, "", "") is None and not await saml_logout.can_request(tx, login, ports.clock.now()):
            return None
        await tx.connection_logins.save_sign_out(login.org_id, login.id, digest(secret), after)
    return ProviderSignOut(connection_endpoint_path(login.connection_id, START_LOGOUT), secret)


def is_sign_out_at_provider(path: str | None) -> TypeGuard[str]:
    """Return whether this path of a finished sign-out leads on to an identity provider."""
    return path is not None and path.startswith(f"{CONNECTIONS_PATH}/") and path.endswith(f"/{START_LOGOUT}")


async def find_url(ports: Ports, connection_id: UUID, secret: str | None, base_url: str) -> str | None:
    """Return the URL at which the browser with this secret signs out at the provider, or None if it has no sign-out to do."""
    login = await _find(ports, secret)
    if login is None or secret is None or login.connection_id != connection_id:
        return None
    if "name_id" in login.logout:
        return await saml_logout.request_url(ports, login, secret, base_url)
    return logout_url(login.logout, base_url + connection_endpoint_path(connection_id, BACK_FROM_LOGOUT), secret)


async def _find(ports: Ports, secret: str | None) -> ConnectionLogin | None:
    if secret is None:
        return None
    async with ports.storage.reading() as read:
        return await read.connection_logins.by_sign_out(digest(secret))


async def finish(ports: Ports, caller: Caller, connection_id: UUID, secret: str | None, state: str | None) -> str | None:
    """End the sign-out of the browser with this secret, and return the path at which it continues.

    Return None if the browser did not begin it, or brings another state. The answer of the provider changes nothing else.
    """
    if secret is None or state not in (secret, saml_logout.make_request_id(secret)):
        return None
    async with ports.storage.transaction(by=caller) as tx:
        return await tx.connection_logins.finish_sign_out(connection_id, digest(secret))
