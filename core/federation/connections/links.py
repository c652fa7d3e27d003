"""The links of accounts to connections, as admins and users see and remove them."""

from collections.abc import Sequence
from uuid import UUID

from core.accounts import required_connections
from core.accounts.factors import own_proofs
from core.accounts.own_account import lock_own_account
from core.federation.connections import access
from core.federation.connections.model import people
from core.federation.connections.model.connections import OrganizationConnectionNotFound
from core.kernel import callers, values
from core.kernel.errors import refuse
from core.tenancy import connection_links
from core.tenancy.model.members import MemberHasMoreRights
from ports import Ports


async def list_page(
    ports: Ports, caller: callers.OrganizationCaller, slug: str, page: values.Page, *, search: str | None = None
) -> values.PageResult[people.ConnectionPerson]:
    """Return a page of the people that a connection knows."""
    async with ports.storage.reading() as read:
        connection = await read.connections.by_slug(caller.acts_in.id, slug) or refuse(OrganizationConnectionNotFound)
        lowered = (search or "").strip().lower() or None
        return await read.connection_identities.page(connection.org_id, connection.id, page, search=lowered)


async def remove(ports: Ports, caller: callers.OrganizationCaller, slug: str, user_id: UUID) -> None:
    """Unlink a user from a connection, and end their sign-ins there. The next sign-in is like a first one.

    The caller needs all rights of the member. Otherwise, they could unlink an admin, and then add a certificate of their own, which
    `connections.require_power_over_trust` refuses while the connection knows the admin.
    """
    async with ports.storage.transaction(by=caller) as tx:
        connection = await access.lock(tx, caller, slug)
        await access.require_rights_of_people(tx, caller, connection, MemberHasMoreRights, user_id)
        if not await connection_links.remove(tx, connection.org_id, connection.id, user_id, ports.clock.now()):
            raise people.ConnectionPersonNotFound


async def list_own(ports: Ports, caller: callers.Person) -> Sequence[people.OwnConnectionLink]:
    """Return the connections that know the caller's account."""
    async with ports.storage.reading() as read:
        return await read.connection_identities.of_user(caller.user_id)


async def remove_own(ports: Ports, caller: callers.Person, connection_id: UUID) -> None:
    """Unlink the caller's account from a connection, and end sign-ins through it. A link is never the only way into an account."""
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        own = {link.connection_id: link.org_id for link in await tx.connection_identities.of_user(caller.user_id)}
        org_id = own.get(connection_id) or refuse(people.ConnectionNotLinked)
        account = await lock_own_account(tx, caller, now)
        await own_proofs.require_strongest_proof(ports, tx, caller, account, now)
        await required_connections.give_up_link(tx, account, connection_id, now)
        if not await connection_links.remove(tx, org_id, connection_id, caller.user_id, now):
            raise people.ConnectionNotLinked
