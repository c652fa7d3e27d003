"""Services with years of end users and logins, one of them very large, for the rows about searches and analytics."""

import hashlib
import random
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import Any, Final

import psycopg

from adapters.postgres.authentication.logins import SHARDS
from core.applications.model.api_keys import generate_key
from core.kernel.roles import Permission
from core.kernel.values import digest
from core.maintenance.model.housekeeping import LOGIN_SHARDS_KEPT
from ops.bench.filling import FREE_TIER, Report, copy, new_uuid, without_indexes
from ops.bench.service import Service, add_accounts, tidy

SMALL_USERS: Final = 50
SERVICES_OF_EACH: Final = 3  # services per organization; the large and the small service are the only ones of their organizations
DEACTIVATED: Final = 100  # every hundredth user of a service is deactivated
DOMAIN: Final = "people.example"  # of every end user's address

LIFE: Final = timedelta(days=2 * 365)
_LOGINS_AT_ONCE: Final = 2_000_000
_BYTES_PER_LOGIN: Final = 750  # with its indexes and its share of the totals, the space to build these, and the write-ahead log
_BYTES_PER_USER: Final = 2000  # with the rows of services and subscriptions
_PROVIDERS: Final = ["password"] * 4 + ["codehost"] * 2 + ["websuite"] * 2 + ["officesuite", "saml"]
_AGENTS: Final = [
    f"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/{version}.0.0.0 Safari/537.36"
    for version in range(120, 128)
]
_PASSWORD_HASH: Final = f"$argon2id$v=19$m=19456,t=2,p=1${'a' * 22}${'b' * 43}"  # a placeholder with the length of a real hash


@dataclass(frozen=True, slots=True)
class Scale:
    """The amount of data. The large service comes first, then the small one. The others have equal sizes."""

    others: int  # services
    other_users: int  # per service
    large_users: int
    logins: int  # of all services, without failures
    large_logins: int  # approximately, because logins are random
    small_logins: int  # approximately

    @property
    def users_of_each(self) -> list[int]:
        return [self.large_users, SMALL_USERS, *[self.other_users] * self.others]

    @property
    def users(self) -> int:
        return sum(self.users_of_each)

    @property
    def organizations(self) -> int:
        return 2 + -(-self.others // SERVICES_OF_EACH)

    @property
    def gigabytes(self) -> float:
        """The disk space that the data needs."""
        return 1 + (self.logins * _BYTES_PER_LOGIN + self.users * _BYTES_PER_USER) / 2**30

    def __str__(self) -> str:
        return (
            f"{self.organizations:,} organizations, {2 + self.others:,} services, {self.users:,} end users, {self.logins:,} logins; "
            f"of them {self.large_users:,} and about {self.large_logins:,} in the large one, {SMALL_USERS} and about "
            f"{self.small_logins:,} in the small one"
        )


FULL: Final = Scale(others=1800, other_users=500, large_users=100_000, logins=10_000_000, large_logins=3_000_000, small_logins=1000)
QUICK: Final = Scale(others=6, other_users=20, large_users=1000, logins=20_000, large_logins=6000, small_logins=1000)
# A small amount, for rows that only need a service of any size.
LITTLE: Final = Scale(others=1, other_users=10, large_users=64, logins=1000, large_logins=640, small_logins=200)


@dataclass(frozen=True, slots=True)
class Application:
    """A filled service. Its organization has no other service."""

    id: str
    org_id: str
    org_slug: str
    key: str  # an API key with all permissions
    users: int
    logins: int
    people: Sequence[str]  # some of them
    part: str  # a part of the address of exactly one user

    @property
    def active(self) -> int:
        """The number of users that are not deactivated."""
        return self.users - self.users // DEACTIVATED


@dataclass(frozen=True, slots=True)
class Applications:
    """The filled services, and the time it took to fill them."""

    scale: Scale
    large: Application
    small: Application
    seconds: float


def add_applications(service: Service, scale: Scale, report: Report) -> Applications:
    """Add services. The first two accounts own the organizations of the large one and the small one."""
    started = time.monotonic()
    add_accounts(service, 2)
    with psycopg.connect(service.conninfo) as connection:
        owners = [row[0] for row in connection.execute("select id from users where email like '%@bench.example' order by email")]
    large, small = fill(service.conninfo, scale, owners, report)
    report("  vacuum and analyze ...")
    tidy(service)
    return Applications(scale, large, small, time.monotonic() - started)


def fill(conninfo: str, scale: Scale, owners: Sequence[uuid.UUID], report: Report) -> tuple[Application, Application]:
    """Fill a migrated database without organizations. `owners` own the organizations of the large and the small service.

    As after years of growth, rows are ordered by time. The users of a service join at even
    intervals, and each login is by a random user who has joined before. Users without a login were
    created by an API key.
    """
    plot = _Plot(scale, owners)
    report(f"  {scale} ...")
    # ClientCursor puts the values into the statements, which then need no types.
    with psycopg.connect(conninfo, cursor_factory=psycopg.ClientCursor) as connection:
        # The foreign keys are correct, and checking each of millions of rows would take minutes.
        connection.execute("set local session_replication_role = replica")
        connection.execute("set local maintenance_work_mem = '512MB'")
        connection.execute("set local work_mem = '256MB'")
        connection.execute("set local enable_mergejoin = off")  # it would sort rows that are already ordered by time
        connection.execute("select setseed(0.5)")  # reproducible data
        _add_services(connection, plot)
        connection.execute("create temporary table shares (service_id uuid, org_id uuid, first integer, size integer) on commit drop")
        copy(connection, "copy shares (service_id, org_id, first, size)", _shares(plot))
        connection.execute(
            "create temporary table crowd (number integer, place integer, user_id uuid, org_id uuid, service_id uuid, email text, "
            "deactivated boolean, born timestamptz) on commit drop"
        )
        connection.execute(_CROWD, plot.parameters)
        connection.execute("analyze crowd")
        _add_logins(connection, plot, report)
        report("  users, with their services and subscriptions ...")
        connection.execute(_USERS, plot.parameters)
        for table, statement in (("service_users", _SERVICE_USERS), ("end_users", _END_USERS), ("subscriptions", _SUBSCRIPTIONS)):
            with without_indexes(connection, table, _nothing):
                connection.execute(statement, plot.parameters)
        connection.execute(_END_USER_TOTALS)
        connection.execute(_SERVICE_TOTALS)
        _add_owners(connection, plot)
        logins = [
            connection.execute("select count(*) from login_events where service_id = %s", [service]).fetchall()[0][0]
            for service in plot.services[:2]
        ]
    return plot.application(0, logins[0]), plot.application(1, logins[1])


def _nothing(_: str) -> None:
    pass


class _Plot:
    """The distribution of users over services and organizations."""

    def __init__(self, scale: Scale, owners: Sequence[uuid.UUID]) -> None:
        draw = random.Random(1)  # noqa: S311 - reproducible data
        self.scale = scale
        self.organizations = [new_uuid(draw) for _ in range(scale.organizations)]
        self.services = [new_uuid(draw) for _ in range(2 + scale.others)]
        self.keys = [generate_key(), generate_key()]
        self.end = datetime.now(UTC)
        self.parameters: dict[str, Any] = {
            "owners": list(owners),
            "begin": self.end - LIFE,
            "end": self.end,
            "life": LIFE,
            "logins": scale.logins,
            "large_share": scale.large_logins / scale.logins,
            "small_share": scale.small_logins / scale.logins,
            "large_users": scale.large_users,
            "small_users": SMALL_USERS,
            "others": scale.others,
            "other_users": scale.other_users,
            "providers": _PROVIDERS,
            "agents": _AGENTS,
            "password_hash": _PASSWORD_HASH,
            "domain": DOMAIN,
            "deactivated": DEACTIVATED,
        }

    def organization_of(self, service: int) -> str:
        return self.organizations[service if service < 2 else 2 + (service - 2) // SERVICES_OF_EACH]

    def places(self) -> Iterator[tuple[str, int]]:
        """Yield the organization and the number of the first user of each service."""
        for service, first in enumerate(accumulate(self.scale.users_of_each[:-1], initial=0)):
            yield self.organization_of(service), first

    def application(self, service: int, logins: int) -> Application:
        users = self.scale.users_of_each[service]
        first = sum(self.scale.users_of_each[:service])
        return Application(
            id=self.services[service],
            org_id=self.organizations[service],
            org_slug=_slug(service),
            key=self.keys[service][0],
            users=users,
            logins=logins,
            people=[_person(first + number) for number in range(min(users, SMALL_USERS))],
            part=f"-{first + users // 2}@",
        )


def _slug(organization: int) -> str:
    return ("large", "small")[organization] if organization < 2 else f"organization-{organization}"


# Organizations and services


def _add_services(connection: psycopg.Connection[Any], plot: _Plot) -> None:
    columns = "id, slug, name, status, tier_id, member_count, created_at, updated_at, approved_at"
    copy(connection, f"copy organizations ({columns})", _organizations(plot))
    columns = "id, org_id, slug, name, service_type, client_id, redirect_uris, user_count, created_at, updated_at"
    copy(connection, f"copy services ({columns})", _services(plot))
    columns = "id, org_id, service_id, name, price_cents, currency, features, created_at, updated_at"
    copy(connection, f"copy plans ({columns})", _plans(plot))
    columns = "id, org_id, service_id, name, prefix, key_hash, permissions, created_by, created_at"
    copy(connection, f"copy api_keys ({columns})", _keys(plot))


def _add_owners(connection: psycopg.Connection[Any], plot: _Plot) -> None:
    connection.execute("set local session_replication_role = origin")  # a trigger sets the address of a member
    columns = "id, org_id, user_id, role, created_at, confirmed_at"
    copy(connection, f"copy memberships ({columns})", _owners(plot))


def _line(*fields: object) -> str:
    return "\t".join(map(str, fields)) + "\n"


def _organizations(plot: _Plot) -> Iterator[str]:
    begin = plot.parameters["begin"]
    for number, org_id in enumerate(plot.organizations):
        yield _line(org_id, _slug(number), f"Organization {number}", "active", FREE_TIER, 1, begin, begin, begin)


def _services(plot: _Plot) -> Iterator[str]:
    begin = plot.parameters["begin"]
    for number, (service_id, users) in enumerate(zip(plot.services, plot.scale.users_of_each, strict=True)):
        org_id, client_id = plot.organization_of(number), uuid.uuid4()
        uris = f"{{https://shop-{number}.example.com/callback}}"
        yield _line(service_id, org_id, f"shop-{number}", f"Shop {number}", "mobile", client_id, uris, users, begin, begin)


def _plans(plot: _Plot) -> Iterator[str]:
    begin = plot.parameters["begin"]
    for number, service_id in enumerate(plot.services):
        org_id = plot.organization_of(number)
        for name, price, features in (("Free", 0, "{}"), ("Gold", 999, "{exports,reports}")):
            yield _line(uuid.uuid4(), org_id, service_id, name, price, "eur", features, begin, begin)


def _keys(plot: _Plot) -> Iterator[str]:
    begin, everything = plot.parameters["begin"], f"{{{','.join(Permission)}}}"
    for service_id, org_id, (key, prefix), owner in zip(
        plot.services, plot.organizations, plot.keys, plot.parameters["owners"], strict=False
    ):
        yield _line(uuid.uuid4(), org_id, service_id, "Robot", prefix, f"\\\\x{digest(key).hex()}", everything, owner, begin)


def _owners(plot: _Plot) -> Iterator[str]:
    begin, owners, owned = plot.parameters["begin"], plot.parameters["owners"], set[str]()
    for service, (org_id, first) in enumerate(plot.places()):
        if org_id not in owned:
            owned.add(org_id)
            yield _line(uuid.uuid4(), org_id, owners[service] if service < len(owners) else _person(first), "owner", begin, begin)


def _shares(plot: _Plot) -> Iterator[str]:
    for service_id, (org_id, first), users in zip(plot.services, plot.places(), plot.scale.users_of_each, strict=True):
        yield _line(service_id, org_id, first, users)


# Users and logins


def _person(number: int) -> str:
    """Return the id of an end user, as _CROWD computes it."""
    return str(uuid.UUID(hashlib.md5(f"person {number}".encode(), usedforsecurity=False).hexdigest()))


# The statements below generate their rows in the database, because sending millions of rows would
# take minutes. This one generates all users of services, numbered service by service. `place` is
# their order within the service.
_CROWD: Final = """
    insert into crowd (number, place, user_id, org_id, service_id, email, deactivated, born)
    select s.first + place, place, md5('person ' || s.first + place)::uuid, s.org_id, s.service_id,
           'customer-' || s.first + place || '@' || %(domain)s, place %% %(deactivated)s = %(deactivated)s - 1,
           %(begin)s + %(life)s * place / s.size
    from shares s cross join lateral generate_series(0, s.size - 1) place
    order by 8"""
# The id of a login is also the id of its session, which ended long ago. It is a hash of the number,
# because generating random ids would take as long as everything else.
_LOGINS: Final = """
    insert into login_events (id, user_id, session_id, org_id, service_id, provider, success, address, agent, created_at)
    select d.id, c.user_id, d.id, c.org_id, c.service_id, (%(providers)s::text[])[1 + n %% 10], true,
           '203.0.113.' || n %% 250, (%(agents)s::text[])[1 + n %% 8], %(begin)s + %(life)s * part
    from (
        select n, part, md5('login ' || n)::uuid as id, case
            when lot < %(large_share)s then floor(one * part * %(large_users)s)
            when lot < %(large_share)s + %(small_share)s then %(large_users)s + floor(one * part * %(small_users)s)
            else %(large_users)s + %(small_users)s + floor(service * %(others)s) * %(other_users)s + floor(one * part * %(other_users)s)
            end::integer as number
        from (
            select n, n::float8 / %(logins)s as part, random() as lot, random() as one, random() as service
            from generate_series(%(first)s, %(last)s) n) drawn) d
    join crowd c on c.number = d.number"""
# Past days have one shard, as after a run of the housekeeper.
_LOGIN_TOTALS: Final = """
    insert into login_totals (org_id, service_id, day, provider, shard, total)
    select org_id, service_id, (created_at at time zone 'UTC')::date, provider,
           case when created_at < date_trunc('day', %(end)s - %(apart)s, 'UTC') then 0 else floor(random() * %(shards)s) end, count(*)
    from login_events group by 1, 2, 3, 4, 5 order by 3"""
_SEEN: Final = """
    create temporary table seen on commit drop as
    select user_id, min(created_at) as first, max(created_at) as last from login_events group by user_id"""
_USERS: Final = """
    insert into users (id, email, email_verified_at, first_verified_at, password_hash, origin, origin_org_id, deactivated_at, created_at,
                       updated_at)
    select c.user_id, c.email, s.first, s.first, case when s.first is not null then %(password_hash)s end,
           case when s.first is null then 'api_key' else 'platform' end, case when s.first is null then c.org_id end,
           case when c.deactivated then %(end)s end, c.born, c.born
    from crowd c left join seen s on s.user_id = c.user_id order by c.born"""
_SERVICE_USERS: Final = """
    insert into service_users (service_id, user_id, org_id, email, deactivated, created_at, first_login_at, last_login_at)
    select c.service_id, c.user_id, c.org_id, c.email, c.deactivated, coalesce(s.first, c.born), s.first, s.last
    from crowd c left join seen s on s.user_id = c.user_id order by coalesce(s.first, c.born)"""
_END_USERS: Final = """
    insert into end_users (org_id, user_id, email, deactivated, created_at)
    select org_id, user_id, email, deactivated, created_at from service_users order by created_at"""
# Every second user has or had a subscription. A payment provider manages every second one of these.
_SUBSCRIPTIONS: Final = """
    insert into subscriptions (id, org_id, service_id, user_id, plan_id, status, current_period_end, provider_subscription_id, created_at,
                               updated_at)
    select md5('subscription ' || number)::uuid, org_id, service_id, user_id, plan_id, status,
           case when status = 'active' then %(end)s + interval '1 day' * (1 + place %% 30) else born + interval '30 days' end,
           case when place %% 4 = 0 then 'sub_' || number end, born, born
    from (
        select c.*, p.id as plan_id,
               (array['past_due', 'cancelled', 'cancelled', 'expired', 'active'])[least(1 + place / 2 %% 20, 5)] as status
        from crowd c join plans p on p.service_id = c.service_id and p.name = 'Gold' where place %% 2 = 0) subscribed
    order by born"""
_END_USER_TOTALS: Final = "insert into end_user_totals (org_id, total) select org_id, count(*) from end_users group by org_id"
_SERVICE_TOTALS: Final = """
    update services v set subscription_count = counted.total
    from (select service_id, count(*) as total from subscriptions group by service_id) counted where v.id = counted.service_id"""


def _add_logins(connection: psycopg.Connection[Any], plot: _Plot, report: Report) -> None:
    started = time.monotonic()
    with without_indexes(connection, "login_events", report):
        for first in range(1, plot.scale.logins + 1, _LOGINS_AT_ONCE):
            last = min(first + _LOGINS_AT_ONCE - 1, plot.scale.logins)
            connection.execute(_LOGINS, {**plot.parameters, "first": first, "last": last})
            report(f"  {last:,} of {plot.scale.logins:,} logins after {time.monotonic() - started:.0f} s ...")
    report("  logins of each day ...")
    with without_indexes(connection, "login_totals", _nothing):
        connection.execute(_LOGIN_TOTALS, {**plot.parameters, "shards": SHARDS, "apart": LOGIN_SHARDS_KEPT})
    connection.execute(_SEEN)
    connection.execute("analyze seen")
