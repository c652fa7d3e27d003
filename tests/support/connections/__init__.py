"""Organizations' connections, as rows."""

from typing import Any, Final
from uuid import UUID

from core.federation.connections.model.connections import ConnectionState, OrganizationConnection
from core.federation.connections.model.logins import ConnectionLogin
from core.federation.connections.model.settings import ClaimMapping, OidcSettings
from core.kernel.causes import SYSTEM
from core.kernel.values import Slug, new_id
from ports.storage import Storage
from tests.support.rows import DAY, NOW

# The parameters are the ids for the organization, the connection and the user, and the subject.
LINK: Final = """
    insert into connection_identities (org_id, connection_id, user_id, subject, linked_at, last_used_at)
    values (%s, %s, %s, %s, now(), now()) on conflict do nothing"""


def make_connection(org_id: UUID, slug: str = "okta", **changes: Any) -> OrganizationConnection:
    """Return an active connection with OpenID Connect."""
    values: dict[str, Any] = {
        "id": new_id(),
        "org_id": org_id,
        "slug": Slug(slug),
        "name": slug.title(),
        "preset": None,
        "state": ConnectionState.ACTIVE,
        "mapping": ClaimMapping(),
        "created_at": NOW,
        "first_activated_at": NOW,
        "settings": OidcSettings(issuer=f"https://{slug}.example", client_id="gatehouse"),
    }
    return OrganizationConnection(**{**values, **changes})


async def add_connection(storage: Storage, org_id: UUID, slug: str = "okta", **changes: Any) -> OrganizationConnection:
    """Add a connection to the organization: an active OpenID Connect connection, unless `changes` say otherwise."""
    connection = make_connection(org_id, slug, **changes)
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.connections.add(connection)
    return connection


async def add_login(storage: Storage, connection: OrganizationConnection, user_id: UUID, **changes: Any) -> ConnectionLogin:
    """Add the user's sign-in at the connection, in the session s1 there."""
    values: dict[str, Any] = {"provider_session": "s1", "logout": {}, "created_at": NOW, "ends_at": NOW + DAY}
    ids = {"id": new_id(), "org_id": connection.org_id, "connection_id": connection.id, "user_id": user_id}
    login = ConnectionLogin(**{**ids, **values, **changes})
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.connection_logins.add(login)
    return login
