"""Organizations with years of data, among them a very large organization. Their pages must not get slower with their size."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import Any, Final
from uuid import UUID

from core.kernel.event_catalog import EVENT_KINDS
from ops.bench.filling import AGENTS, FREE_TIER, filling, id_of, without_indexes
from ops.bench.people import add_accounts
from ops.bench.row import Filling, Say
from ops.bench.service import Service

SMALL_MEMBERS: Final = 50
SMALL_ENTRIES: Final = 1000
LARGE_SERVICES: Final = 1000
SMALL_SERVICES: Final = 50
OTHER_MEMBERS: Final = 50
# Audit log entries per object in every organization. An organization and its services have many
# more.
PER_TARGET: Final = 30

_BEGIN: Final = datetime.now(UTC) - timedelta(days=2 * 365)
_ADMINS: Final = 10  # per organization, including its owner; they are the actors in the audit log
_SERVICES: Final = 20  # per organization, in the audit log
_BYTES_PER_ENTRY: Final = 1600  # with its indexes, the space to build them, and the write-ahead log

# Four in five entries are events about users. All other entries are about other objects.
_USER_EVENTS: Final = ("user.joined", "user.role_updated", "security.password.changed", "user.sessions_revoked")
_OTHER_EVENTS: Final = ("service.updated", "invitation.accepted", "organization.updated", "api_key.created")
_ACTIONS: Final = [_USER_EVENTS[number % 5] if number % 5 < 4 else _OTHER_EVENTS[number // 5] for number in range(20)]
_DETAILS: Final = {
    "user.role_updated": '{"old_role": "member", "new_role": "admin"}',
    "security.password.changed": '{"method": "change"}',
    "organization.updated": '{"changed": ["name"]}',
}


@dataclass(frozen=True, slots=True)
class Scale:
    """How much data there is.

    The large organization comes first, then the small organization. All other organizations have equal sizes.
    """

    organizations: int
    large_members: int
    large_entries: int
    entries: int  # in all organizations

    @property
    def members_of_each(self) -> list[int]:
        return [self.large_members, SMALL_MEMBERS, *[OTHER_MEMBERS] * (self.organizations - 2)]

    @property
    def entries_of_each(self) -> list[int]:
        others = self.organizations - 2
        each, more = divmod(self.entries - self.large_entries - SMALL_ENTRIES, others)
        return [self.large_entries, SMALL_ENTRIES, *[each + (number < more) for number in range(others)]]

    @property
    def gigabytes(self) -> float:
        return 1 + self.entries * _BYTES_PER_ENTRY / 2**30

    def __str__(self) -> str:
        return (
            f"{self.organizations:,} organizations, {sum(self.members_of_each):,} members, {self.entries:,} audit entries; "
            f"of them {self.large_members:,} and {self.large_entries:,} in the large one, "
            f"{SMALL_MEMBERS} and {SMALL_ENTRIES:,} in the small one, with {LARGE_SERVICES:,} and {SMALL_SERVICES} services"
        )


FULL: Final = Scale(organizations=10_000, large_members=100_000, large_entries=3_000_000, entries=10_000_000)
QUICK: Final = Scale(organizations=20, large_members=1000, large_entries=6000, entries=20_000)


@dataclass(frozen=True, slots=True)
class Tenant:
    """A filled organization."""

    id: str
    slug: str
    members: int
    entries: int
    person: str  # a user with PER_TARGET entries
    services: int

    @property
    def members_of_role(self) -> int:
        """How many members have the role member."""
        return self.members - _ADMINS

    @property
    def entries_of_people(self) -> int:
        return _user_entries(self.entries)

    @property
    def entries_of_itself(self) -> int:
        return (self.entries // 5 + 1) // 4


def add_tenants(service: Service, scale: Scale, say: Say) -> Sequence[Tenant]:
    """Add organizations. The first two accounts own the large and the small organization."""
    add_accounts(service, 2, [UUID(id_of("person 0")), UUID(id_of(f"person {scale.large_members}"))])
    return fill(service.conninfo, scale, say)


def fill(conninfo: str, scale: Scale, say: Say) -> Sequence[Tenant]:
    """Fill a migrated database without organizations, and return the large and the small organization.

    As after years of growth, rows are ordered by time, and every row belongs to a random organization. So the small
    organization's rows are scattered over the whole table, and the large organization's rows are as dense as its share.
    """
    members, entries = scale.members_of_each, scale.entries_of_each
    firsts = list(accumulate(members[:-1], initial=0))
    targets = [_targets(count) for count in entries]
    slugs = ["large", "small", *(f"organization-{number}" for number in range(2, scale.organizations))]
    values: dict[str, Any] = {
        "slugs": slugs,
        "members": members,
        "entries": entries,
        "firsts": firsts,
        "targets": targets,
        "begin": _BEGIN,
        "tier": FREE_TIER,
        "people": sum(members),
        "all_entries": scale.entries,
        "admins": _ADMINS,
        "services": [LARGE_SERVICES, SMALL_SERVICES],
        "log_services": _SERVICES,
        "actions": _ACTIONS,
        "target_types": [EVENT_KINDS[action].target for action in _ACTIONS],
        "details": [_DETAILS.get(action, "{}") for action in _ACTIONS],
        "agents": AGENTS,
    }
    with filling(conninfo) as connection:
        for statement in (_PLACES, _ORGANIZATIONS, _USERS, _SERVICES_OF_ORGANIZATIONS, _MEMBERSHIPS):
            connection.execute(statement, values)
        with without_indexes(connection, "audit_log", say):
            say("  audit entries ...")
            connection.execute(_AUDIT_LOG, values)
        connection.execute(_AUDIT_TOTALS)
    return [
        Tenant(
            id=id_of(f"organization {number}"),
            slug=slugs[number],
            members=members[number],
            entries=entries[number],
            # The last person: if the division has a remainder, the first persons have an entry
            # more.
            person=id_of(f"person {firsts[number] + targets[number] - 1}"),
            services=services,
        )
        for number, services in enumerate((LARGE_SERVICES, SMALL_SERVICES))
    ]


def _user_entries(count: int) -> int:
    """Return how many of an organization's first `count` entries are about users."""
    return count - count // 5


def _targets(entries: int) -> int:
    """Return how many users have entries."""
    return max(1, _user_entries(entries) // PER_TARGET)


# `first` is the number for an organization's first person, its owner. `targets` is how many users have entries.
_PLACES: Final = """
    create temporary table places on commit drop as
    select n, md5('organization ' || n - 1)::uuid as org_id, slug, members, entries, first, targets
    from unnest(%(slugs)s::text[], %(members)s::int[], %(entries)s::int[], %(firsts)s::int[], %(targets)s::int[])
         with ordinality place (slug, members, entries, first, targets, n)"""
_ORGANIZATIONS: Final = """
    insert into organizations (id, slug, name, status, tier_id, max_users, member_count, created_at, updated_at, approved_at)
    select org_id, slug, 'Organization ' || n, 'active', %(tier)s, 2 * members, members, %(begin)s, %(begin)s, %(begin)s from places"""
_USERS: Final = """
    insert into users (id, email, email_verified_at, first_verified_at, origin, created_at, updated_at)
    select md5('person ' || n)::uuid, 'member-' || n || '@bench.example', %(begin)s, %(begin)s, 'platform', %(begin)s, %(begin)s
    from generate_series(0, %(people)s - 1) n on conflict (id) do nothing"""
_SERVICES_OF_ORGANIZATIONS: Final = """
    insert into services (id, org_id, slug, name, service_type, client_id, redirect_uris, created_at, updated_at)
    select gen_random_uuid(), org_id, 'service-' || s, 'Service ' || s, 'mobile', gen_random_uuid(), '{}', %(begin)s, %(begin)s
    from places p, generate_series(1, (%(services)s::int[])[p.n]) s"""
_MEMBERSHIPS: Final = """
    insert into memberships (id, org_id, user_id, email, role, created_at, confirmed_at)
    select gen_random_uuid(), org_id, user_id, (select email from users where id = user_id),
           case when n = 0 then 'owner' when n < %(admins)s then 'admin' else 'member' end, at, at
    from (
        select org_id, md5('person ' || first + m)::uuid as user_id, m as n,
               %(begin)s + (now() - %(begin)s) * row_number() over (order by random()) / %(people)s as at
        from places, generate_series(0, members - 1) m) joined"""
# Users who are targets take turns. A service's id in the log starts like its organization's id. An
# entry's id is a hash of its number, because generating random ids would take as long as everything
# else.
_AUDIT_LOG: Final = """
    insert into audit_log (id, org_id, action, target_type, target_id, actor_id, address, agent, details, created_at)
    select id, org_id, (%(actions)s::text[])[1 + n %% 20], (%(target_types)s::text[])[1 + n %% 20],
           case when n %% 5 < 4 then md5('person ' || first + (n - n / 5) %% targets)::uuid::text
                when n / 5 %% 4 = 2 then org_id::text
                when n / 5 %% 4 = 0 then left(org_id::text, -4) || lpad((n / 20 %% %(log_services)s)::text, 4, '0')
                else id::text end,
           md5('person ' || first + n %% %(admins)s)::uuid, '203.0.113.' || n %% 250, (%(agents)s::text[])[1 + n %% 8],
           (%(details)s::jsonb[])[1 + n %% 20], %(begin)s + (now() - %(begin)s) * (turn / %(all_entries)s::float8)
    from (
        select md5('entry ' || turn)::uuid as id, drawn.*
        from (
            select org_id, first, targets, e as n, row_number() over (order by random()) as turn
            from places, generate_series(0, entries - 1) e) drawn) entry"""
_AUDIT_TOTALS: Final = """
    insert into audit_totals (org_id, action, target_type, total)
    select org_id, action, target_type, count(*) from audit_log group by org_id, action, target_type"""


TENANTS: Final = Filling("organizations", FULL, QUICK, add_tenants)
