"""Organizations with signed-in members, their requests, and the records about them."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final
from uuid import UUID

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.accounts.model.accounts import Account
from core.kernel.roles import ADMIN, MEMBER, OWNER, RoleName
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.support.builders import (
    EMAIL,
    Answer,
    Api,
    SignedIn,
    add_account,
    add_invitation,
    add_member,
    add_organization,
    make_vault,
    run_sql,
    sign_in,
)
from tests.support.database import Database, Snapshot

# The actions that change nothing: members' sign-ins to the platform, and refused changes.
WITHOUT_CHANGE: Final = ("user.login.success", "access.refused", "security.mfa.failed")
CAST: Final[Mapping[str, RoleName]] = {"owner": OWNER, "admin": ADMIN, "member": MEMBER}


@dataclass(slots=True)
class Tenant:
    """An organization and its members by name.

    Every person has a session with the organization selected.
    """

    api: Api
    ports: Ports
    pool: Pool
    org: UUID
    slug: str
    people: dict[str, Account] = field(default_factory=dict)
    sessions: dict[str, SignedIn] = field(default_factory=dict)

    @property
    def path(self) -> str:
        return f"/api/organizations/{self.slug}"

    @property
    def invitations(self) -> str:
        return f"{self.path}/invitations"

    def id(self, name: str) -> str:
        return str(self.people[name].id)

    def token(self, name: str) -> str:
        return self.sessions[name].access_token

    async def join(self, name: str, account: Account, role: RoleName = MEMBER) -> None:
        """Add a confirmed member."""
        await add_member(self.pool, self.org, account.id, role, confirmed=True)
        self.people[name] = account
        await self.sign_in(name)

    async def sign_in(self, name: str) -> None:
        """Start a new session for a member, for example after the last session has expired."""
        self.sessions[name] = await sign_in(self.ports, self.people[name], self.org)

    # Members

    async def set_role(self, by: str, member: str, role: str) -> Answer:
        return await self.api.patch(f"{self.path}/members/{self.id(member)}", {"role": role}, token=self.token(by))

    async def remove(self, by: str, member: str) -> Answer:
        return await self.api.post(f"{self.path}/members/{self.id(member)}", token=self.token(by))

    async def transfer(self, by: str, member: str) -> Answer:
        return await self.api.post(f"{self.path}/transfer-ownership", {"new_owner_user_id": self.id(member)}, token=self.token(by))

    async def roles(self) -> dict[str, str]:
        """Return the members' roles in the database."""
        names = {account.id: name for name, account in self.people.items()}
        rows = await run_sql(self.pool, "select user_id, role from memberships where org_id = %s", self.org)
        return {names[user]: role for user, role in rows}

    async def check(self) -> dict[str, str]:
        """Check an organization's invariants. Return its members' roles."""
        roles = await self.roles()
        assert list(roles.values()).count("owner") == 1
        assert await run_sql(self.pool, "select member_count from organizations where id = %s", self.org) == [(len(roles),)]
        return roles

    async def members(self) -> dict[str, tuple[str, bool]]:
        """Return the memberships' role and confirmation, by email address."""
        rows = await run_sql(
            self.pool,
            "select u.email, m.role, m.confirmed_at is not null from memberships m join users u on u.id = m.user_id where m.org_id = %s",
            self.org,
        )
        assert await run_sql(self.pool, "select member_count from organizations where id = %s", self.org) == [(len(rows),)]
        return {email: (role, confirmed) for email, role, confirmed in rows}

    # Invitations

    async def try_invite(self, email: str = EMAIL, role: str = "member", by: str = "owner") -> Answer:
        return await self.api.post(self.invitations, {"email": email, "role": role}, token=self.token(by))

    async def invite(self, email: str = EMAIL, role: str = "member", by: str = "owner") -> dict[str, Any]:
        """Send an invitation. Return the response."""
        answer = await self.try_invite(email, role, by)
        assert answer.status == 200, answer.text
        invitation: dict[str, Any] = answer.json
        return invitation

    async def add_pending_invitation(self, by: str, email: str, role: RoleName) -> str:
        """Return a pending invitation's id, which is inserted directly."""
        return str((await add_invitation(self.ports, self.org, email, role, invited_by=self.people[by].id)).id)

    async def list_invitations(self, query: str = "", by: str = "owner") -> Answer:
        """Return the invitations as the API shows them."""
        return await self.api.get(f"{self.invitations}{query}", token=self.token(by))

    async def statuses(self) -> dict[str, str]:
        """Return the stored status of the newest invitation per address."""
        rows = await run_sql(self.pool, "select email, status from invitations where org_id = %s order by created_at", self.org)
        return dict(rows)

    # Records

    async def log(self) -> list[dict[str, Any]]:
        """Return the entries about changes, the oldest entry first."""
        # A test's clock may stand still. Entries are then in the order of the transactions, and
        # within a transaction in the table's order.
        columns = ("action", "target_type", "target_id", "actor_id", "impersonator_id", "address", "details")
        entries = f"select {', '.join(columns)} from audit_log where org_id = %s order by created_at, xmin::text::bigint, ctid"  # noqa: S608
        rows = [dict(zip(columns, row, strict=True)) for row in await run_sql(self.pool, entries, self.org)]
        return [row for row in rows if row["action"] not in WITHOUT_CHANGE]

    async def refusals(self) -> list[tuple[Any, ...]]:
        """Return the refused changes' actor, method, route and error code, the oldest first."""
        columns = "actor_id, details->>'method', details->>'route', details->>'error_code'"
        entries = f"select {columns} from audit_log where org_id = %s and action = 'access.refused' and not success order by created_at"  # noqa: S608
        return await run_sql(self.pool, entries, self.org)

    async def recorded(self) -> list[tuple[Any, ...]]:
        """Return action, target type, target, actor and details for every entry."""
        return [tuple(entry[name] for name in ("action", "target_type", "target_id", "actor_id", "details")) for entry in await self.log()]

    async def entry(self, action: str) -> dict[str, Any]:
        """Return the only entry with this action."""
        [match] = [entry for entry in await self.log() if entry["action"] == action]
        return match

    async def webhook_events(self) -> list[tuple[Any, ...]]:
        """Return name, target and data for the webhook events about changes and about sign-ins to services."""
        rows = await run_sql(
            self.pool, "select name, target_id, data from events where org_id = %s order by created_at, xmin::text::bigint, ctid", self.org
        )
        return [row for row in rows if row[0] not in WITHOUT_CHANGE or row[2].get("service_id") is not None]

    async def actions(self) -> Counter[str]:
        """Return how often actions were recorded, after checking that log and webhooks agree."""
        actions = Counter(entry["action"] for entry in await self.log())
        assert actions == Counter(name for name, *_ in await self.webhook_events())
        return actions

    # Platform owners' decisions

    async def set_member_limit(self, seats: int) -> None:
        await run_sql(self.pool, "update organizations set max_users = %s where id = %s", seats, self.org)

    async def set_status(self, status: str) -> None:
        await run_sql(self.pool, "update organizations set status = %s where id = %s", status, self.org)


@dataclass(frozen=True, slots=True)
class Tenants:
    """Creates tenants, and checks them all."""

    api: Api
    ports: Ports
    pool: Pool

    async def add(self, slug: str = "acme", status: str = "active", cast: Mapping[str, RoleName] = CAST) -> Tenant:
        tenant = Tenant(self.api, self.ports, self.pool, await add_organization(self.pool, slug, status), slug)
        for name, role in cast.items():
            await tenant.join(name, await add_account(self.ports, f"{name}@{slug}.example", None), role)
        return tenant

    async def everything(self) -> list[tuple[Any, ...]]:
        """Return all rows that a refused request must not change.

        Refusals and requests during impersonation are recorded in any case.
        """
        recorded = "('impersonation.request', 'access.refused')"
        return [
            *await run_sql(self.pool, "select id, org_id, user_id, role, created_at from memberships order by id"),
            *await run_sql(self.pool, "select id, member_count from organizations order by id"),
            *await run_sql(self.pool, "select id, status from invitations order by id"),
            *await run_sql(self.pool, "select id, ended_at from sessions order by id"),
            *await run_sql(self.pool, f"select count(*) from audit_log where action not in {recorded}"),  # noqa: S608
            *await run_sql(self.pool, f"select count(*) from events where name not in {recorded}"),  # noqa: S608
        ]


# By the arguments that the rows depend on.
TenantSnapshots = dict[tuple[object, ...], tuple[Snapshot, Tenant]]


@dataclass(frozen=True, slots=True)
class PreparedTenants:
    """Adds tenants from snapshots, which a worker takes once."""

    tenants: Tenants
    cast: Mapping[str, RoleName]
    database: Database
    snapshots: TenantSnapshots

    async def add(self, slug: str) -> Tenant:
        api, ports, pool = self.tenants.api, self.tenants.ports, self.tenants.pool
        key = (slug, *self.cast.items(), ports.clock.now(), ports.policy)
        if key not in self.snapshots:
            self.snapshots[key] = await self._take(slug)
        snapshot, tenant = self.snapshots[key]
        self.database.restore(snapshot)
        return replace(tenant, api=api, ports=ports, pool=pool, people=dict(tenant.people), sessions=dict(tenant.sessions))

    async def _take(self, slug: str) -> tuple[Snapshot, Tenant]:
        # With its own database and clock, because other fixtures write to the test's database, and move its clock, at
        # the same time.
        clock = FakeClock(self.tenants.ports.clock.now())
        with Database(self.database.server) as empty:
            pool = Pool(empty.conninfo, size=1)
            ports = replace(self.tenants.ports, clock=clock, storage=Postgres(pool, make_vault(), clock))
            tenant = await Tenants(self.tenants.api, ports, pool).add(slug, cast=self.cast)
            await pool.aclose()
            return empty.snapshot(), tenant
