"""Organizations with years of data, one of them very large. Their pages must not get slower with their size."""

import random
import time
import uuid
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import Final

import psycopg

from core.kernel.event_catalog import EVENT_KINDS
from ops.bench.filling import FREE_TIER, Report, copy, new_uuid, reporting, without_indexes
from ops.bench.service import Service, add_accounts, tidy

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
_SERVICES: Final = 20
_BYTES_PER_ENTRY: Final = 1600  # with its indexes, the space to build them, and the write-ahead log

# Four of five entries are events about users. The others are about other objects.
_USER_EVENTS: Final = ("user.joined", "user.role_updated", "security.password.changed", "user.sessions_revoked")
_OTHER_EVENTS: Final = ("service.updated", "invitation.accepted", "organization.updated", "api_key.created")
_DETAILS: Final = {
    "user.role_updated": '{"old_role": "member", "new_role": "admin"}',
    "security.password.changed": '{"method": "change"}',
    "organization.updated": '{"changed": ["name"]}',
}
_ADD_SERVICES: Final = """
    insert into services (id, org_id, slug, name, service_type, client_id, redirect_uris, created_at, updated_at)
    select md5(%(org)s || n)::uuid, %(org)s::uuid, 'service-' || n, 'Service ' || n, 'mobile', md5('client' || %(org)s || n)::uuid, '{}',
           %(at)s, %(at)s
    from generate_series(1, %(count)s) n"""
_AGENTS: Final = tuple(
    f"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/{version}.0.0.0 Safari/537.36"
    for version in range(120, 128)
)


@dataclass(frozen=True, slots=True)
class Scale:
    """The amount of data. The large organization comes first, then the small one. The others have equal sizes."""

    organizations: int
    large_members: int
    large_entries: int
    entries: int  # of all organizations

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
        """The disk space that the data needs."""
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
    members_of_role: int  # with the role member
    entries: int
    person: str  # a user with PER_TARGET entries
    entries_of_people: int
    entries_of_itself: int
    services: int


@dataclass(frozen=True, slots=True)
class Tenants:
    """The filled organizations, and the time it took to fill them."""

    scale: Scale
    large: Tenant
    small: Tenant
    seconds: float


def add_tenants(service: Service, scale: Scale, report: Report) -> Tenants:
    """Add organizations. The first two accounts own the large one and the small one."""
    started = time.monotonic()
    add_accounts(service, 2)
    with psycopg.connect(service.conninfo) as connection:
        owners = [row[0] for row in connection.execute("select id from users where email like '%@bench.example' order by email")]
    large, small = fill(service.conninfo, scale, owners, report)
    report("  vacuum and analyze ...")
    tidy(service)
    return Tenants(scale, large, small, time.monotonic() - started)


def fill(conninfo: str, scale: Scale, owners: Sequence[uuid.UUID], report: Report) -> tuple[Tenant, Tenant]:
    """Fill a migrated database without organizations. `owners` own the large one and the small one.

    As after years of growth, rows are ordered by time, and each belongs to a random organization.
    So the rows of the small one are scattered over the whole table, and the rows of the large one
    are as dense as its share.
    """
    draw = random.Random(1)  # noqa: S311 - the same data each time
    organizations = [new_uuid(draw) for _ in range(scale.organizations)]
    people = [new_uuid(draw) for _ in range(sum(scale.members_of_each))]
    firsts = [0, *accumulate(scale.members_of_each[:-1])]  # the first person of each organization, its owner
    for first, owner in zip(firsts, owners, strict=False):
        people[first] = str(owner)
    log = _Log(draw, scale, organizations, people, firsts)
    report(f"  {scale} ...")
    with psycopg.connect(conninfo) as connection:
        connection.execute("set local maintenance_work_mem = '512MB'")
        columns = "id, slug, name, status, tier_id, max_users, member_count, created_at, updated_at, approved_at"
        copy(connection, f"copy organizations ({columns})", _organizations(scale, organizations))
        columns = "id, email, email_verified_at, first_verified_at, origin, created_at, updated_at"
        copy(connection, f"copy users ({columns})", _accounts(people, {str(owner) for owner in owners}))
        columns = "id, org_id, user_id, role, created_at, confirmed_at"
        copy(connection, f"copy memberships ({columns})", _memberships(draw, scale, organizations, people, firsts))
        for org_id, count in zip(organizations, (LARGE_SERVICES, SMALL_SERVICES), strict=False):
            connection.execute(_ADD_SERVICES, {"org": org_id, "count": count, "at": _BEGIN})
        connection.execute("truncate audit_log")  # allows COPY to write frozen rows, as a vacuum would leave them
        with without_indexes(connection, "audit_log", report):
            columns = "id, org_id, action, target_type, target_id, actor_id, address, agent, details, created_at"
            copy(connection, f"copy audit_log ({columns})", reporting(log.rows(), scale.entries, "audit entries", report), "with (freeze)")
        connection.execute(
            "insert into audit_totals (org_id, action, target_type, total) "
            "select org_id, action, target_type, count(*) from audit_log group by org_id, action, target_type"
        )
    return log.tenant(0), log.tenant(1)


def _slug(number: int) -> str:
    return ("large", "small")[number] if number < 2 else f"organization-{number}"


def _organizations(scale: Scale, ids: Sequence[str]) -> Iterator[str]:
    for number, (org_id, members) in enumerate(zip(ids, scale.members_of_each, strict=True)):
        fields = org_id, _slug(number), f"Organization {number}", "active", FREE_TIER, 2 * members, members, _BEGIN, _BEGIN, _BEGIN
        yield "\t".join(map(str, fields)) + "\n"


def _accounts(people: Sequence[str], existing: set[str]) -> Iterator[str]:
    for number, user_id in enumerate(people):
        if user_id not in existing:
            yield f"{user_id}\tmember-{number}@bench.example\t{_BEGIN}\t{_BEGIN}\tplatform\t{_BEGIN}\t{_BEGIN}\n"


def _memberships(
    draw: random.Random, scale: Scale, organizations: Sequence[str], people: Sequence[str], firsts: Sequence[int]
) -> Iterator[str]:
    so_far = [0] * scale.organizations
    for organization, at in _by_time(draw, scale.members_of_each):
        number = so_far[organization]
        so_far[organization] += 1
        role = "owner" if number == 0 else "admin" if number < _ADMINS else "member"
        person = people[firsts[organization] + number]
        yield f"{draw.getrandbits(128):032x}\t{organizations[organization]}\t{person}\t{role}\t{at}\t{at}\n"


def _by_time(draw: random.Random, of_each: Sequence[int]) -> Iterator[tuple[int, datetime]]:
    """Yield the number of each organization as often as `of_each` says, in random order, with increasing times up to now."""
    turns = array("H")
    for number, count in enumerate(of_each):
        turns.extend(array("H", [number]) * count)
    draw.shuffle(turns)
    step = (datetime.now(UTC) - _BEGIN) / len(turns)
    at = _BEGIN
    for number in turns:
        at += step
        yield number, at


class _Log:
    """The rows of the audit log."""

    def __init__(
        self, draw: random.Random, scale: Scale, organizations: Sequence[str], people: Sequence[str], firsts: Sequence[int]
    ) -> None:
        self._draw = draw
        self._scale = scale
        self._organizations = organizations
        self._people = people
        self._firsts = firsts
        self._so_far = [0] * scale.organizations
        # The number of users with entries, per organization.
        self._targets = [max(1, _user_entries(count) // PER_TARGET) for count in scale.entries_of_each]

    def rows(self) -> Iterator[str]:
        bits, so_far, firsts, people = self._draw.getrandbits, self._so_far, self._firsts, self._people
        for organization, at in _by_time(self._draw, self._scale.entries_of_each):
            number = so_far[organization]
            so_far[organization] += 1
            first, org_id = firsts[organization], self._organizations[organization]
            entry_id = f"{bits(128):032x}"
            if number % 5 < 4:
                action = _USER_EVENTS[number % 5]
                target = people[first + _user_entries(number) % self._targets[organization]]
            else:
                other = number // 5
                action = _OTHER_EVENTS[other % 4]
                target = org_id if other % 4 == 2 else f"{org_id[:-4]}{other // 4 % _SERVICES:04}" if other % 4 == 0 else entry_id
            yield (
                f"{entry_id}\t{org_id}\t{action}\t{EVENT_KINDS[action].target}\t{target}\t{people[first + number % _ADMINS]}\t"
                f"203.0.113.{number % 250}\t{_AGENTS[number % 8]}\t{_DETAILS.get(action, '{}')}\t{at}\n"
            )

    def tenant(self, number: int) -> Tenant:
        entries = self._scale.entries_of_each[number]
        return Tenant(
            id=self._organizations[number],
            slug=_slug(number),
            members=self._scale.members_of_each[number],
            members_of_role=self._scale.members_of_each[number] - _ADMINS,
            entries=entries,
            # The last one: the first ones have one entry more if the division has a remainder.
            person=self._people[self._firsts[number] + self._targets[number] - 1],
            entries_of_people=_user_entries(entries),
            entries_of_itself=(entries // 5 + 1) // 4,
            services=LARGE_SERVICES if number == 0 else SMALL_SERVICES,
        )


def _user_entries(count: int) -> int:
    """Return how many of an organization's first `count` entries are about users."""
    return count - count // 5
