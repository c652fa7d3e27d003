"""Services with years of end users and logins, among them a very large service, for the rows about searches and analytics."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import psycopg

from adapters.postgres.authentication.logins import SHARDS
from core.applications.model.api_keys import generate_key
from core.kernel.roles import Permission
from core.kernel.values import digest
from core.maintenance.model.housekeeping import LOGIN_SHARDS_KEPT
from ops.bench.filling import AGENTS, FREE_TIER, filling, id_of, without_indexes
from ops.bench.people import add_accounts
from ops.bench.row import Filling, Say
from ops.bench.service import Service

SMALL_USERS: Final = 50
SMALL_FAILURES: Final = 1000  # by the small service's users
SERVICES_OF_EACH: Final = 3  # services per organization; the large and the small service have organizations to themselves
DEACTIVATED: Final = 100  # a service deactivates every hundredth user
DOMAIN: Final = "people.example"  # in every end user's address

LIFE: Final = timedelta(days=2 * 365)
_LOGINS_AT_ONCE: Final = 2_000_000
_BYTES_PER_LOGIN: Final = 750  # with its indexes and its share of the totals, the space to build these, and the write-ahead log
_BYTES_PER_USER: Final = 2000  # with the rows in services and subscriptions
_PROVIDERS: Final = ["password"] * 4 + ["codehost"] * 2 + ["websuite"] * 2 + ["officesuite", "saml"]
_PASSWORD_HASH: Final = f"$argon2id$v=19$m=19456,t=2,p=1${'a' * 22}${'b' * 43}"  # a placeholder, as long as a real hash


@dataclass(frozen=True, slots=True)
class Scale:
    """How much data there is. The large service comes first, then the small service. All other services have equal sizes."""

    others: int  # services
    other_users: int  # per service
    large_users: int
    logins: int  # in all services, without failures
    large_logins: int  # approximately, because logins are random
    small_logins: int  # approximately
    large_failures: int  # in the last 90 days

    @property
    def users(self) -> int:
        return self.large_users + SMALL_USERS + self.others * self.other_users

    @property
    def organizations(self) -> int:
        return 2 + -(-self.others // SERVICES_OF_EACH)

    @property
    def gigabytes(self) -> float:
        return 1 + ((self.logins + self.large_failures) * _BYTES_PER_LOGIN + self.users * _BYTES_PER_USER) / 2**30

    def __str__(self) -> str:
        return (
            f"{self.organizations:,} organizations, {2 + self.others:,} services, {self.users:,} end users, {self.logins:,} logins; "
            f"of them {self.large_users:,} and about {self.large_logins:,} in the large one, {SMALL_USERS} and about "
            f"{self.small_logins:,} in the small one; failures in 90 days: {self.large_failures:,} and {SMALL_FAILURES:,}"
        )


FULL: Final = Scale(
    others=1800, other_users=500, large_users=100_000, logins=10_000_000, large_logins=3_000_000, small_logins=1000, large_failures=300_000
)
QUICK: Final = Scale(others=6, other_users=20, large_users=1000, logins=20_000, large_logins=6000, small_logins=1000, large_failures=2000)
# A small amount, for rows that only need a service.
LITTLE: Final = Scale(others=1, other_users=10, large_users=64, logins=1000, large_logins=640, small_logins=200, large_failures=1000)


@dataclass(frozen=True, slots=True)
class Application:
    """A filled service. A filled service that is the only service in its organization."""

    id: str
    org_id: str
    slug: str  # the organization's slug
    key: str  # an API key with all permissions
    users: int
    logins: int
    people: Sequence[str]  # some users
    part: str  # a part of exactly one user's address

    @property
    def active(self) -> int:
        """How many users are not deactivated."""
        return self.users - self.users // DEACTIVATED


def add_applications(service: Service, scale: Scale, say: Say) -> Sequence[Application]:
    """Add services. The first two accounts own the large and the small service's organizations."""
    add_accounts(service, 2)
    return fill(service.conninfo, scale, say)


def add_roles(service: Service, application: Application) -> None:
    """Add 50 permissions and three roles with them to an application, and give every user a role."""
    service.query(
        """
        with declared as (
            insert into service_permissions (org_id, service_id, name)
            select %(org)s, %(service)s, name
            from (select 'documents:read' as name union all select 'documents:p' || n from generate_series(1, 49) n) p
            returning name),
        roles as (
            insert into service_roles (id, org_id, service_id, slug, name, permissions, created_at, updated_at)
            select gen_random_uuid(), %(org)s, %(service)s, 'role' || n, 'Role', (select array_agg(name) from declared), now(), now()
            from generate_series(0, 2) n
            returning id, slug)
        insert into service_role_users (org_id, service_id, role_id, user_id, assigned_at)
        select %(org)s, %(service)s, r.id, u.user_id, now()
        from (select user_id, row_number() over (order by user_id) as n from service_users where service_id = %(service)s) u
        join roles r on r.slug = 'role' || u.n %% 3""",
        org=application.org_id,
        service=application.id,
    )


def fill(conninfo: str, scale: Scale, say: Say) -> Sequence[Application]:
    """Fill a migrated database without organizations, and return the large and the small service.

    As after years of growth, rows are ordered by time. Users join a service at even intervals, and every login is by a
    random user who joined before. Users without a login were created by an API key.
    """
    keys = [generate_key(), generate_key()]
    values = _parameters(scale, keys, datetime.now(UTC))
    with filling(conninfo) as connection:
        for statement in (_SHARES, _ACCOUNTS, _ORGANIZATIONS, _SERVICES, _PLANS, _API_KEYS, _CROWD, "analyze crowd"):
            connection.execute(statement, values)
        with without_indexes(connection, "login_events", say):
            for first in range(1, scale.logins + 1, _LOGINS_AT_ONCE):
                last = min(first + _LOGINS_AT_ONCE - 1, scale.logins)
                connection.execute(_LOGINS, {**values, "first": first, "last": last})
                say(f"  {last:,} of {scale.logins:,} logins ...")
            connection.execute(_FAILURES, values)
        say("  logins of each day, users, with their services and subscriptions ...")
        for statement in (_SEEN, "analyze seen", _USERS):
            connection.execute(statement, values)
        for table, statement in _INDEXED.items():
            with without_indexes(connection, table, lambda _: None):
                connection.execute(statement, values)
        connection.execute(_END_USER_TOTALS)
        connection.execute(_SERVICE_TOTALS)
        connection.execute(_OWNERS, values)
        connection.execute(_PLATFORM_OWNER)
        return [_large_or_small(connection, scale, number, key) for number, (key, _) in enumerate(keys)]


def _parameters(scale: Scale, keys: Sequence[tuple[str, str]], end: datetime) -> dict[str, Any]:
    """Return the parameters for all statements. `keys` are the API keys for the two services, with their prefixes."""
    return {
        "begin": end - LIFE,
        "end": end,
        "life": LIFE,
        "logins": scale.logins,
        "large_share": scale.large_logins / scale.logins,
        "small_share": scale.small_logins / scale.logins,
        "large_users": scale.large_users,
        "small_users": SMALL_USERS,
        "large_failures": scale.large_failures,
        "small_failures": SMALL_FAILURES,
        "others": scale.others,
        "other_users": scale.other_users,
        "services_of_each": SERVICES_OF_EACH,
        "tier": FREE_TIER,
        "prefixes": [prefix for _, prefix in keys],
        "key_hashes": [digest(key) for key, _ in keys],
        "permissions": list(map(str, Permission)),
        "providers": _PROVIDERS,
        "agents": AGENTS,
        "password_hash": _PASSWORD_HASH,
        "domain": DOMAIN,
        "deactivated": DEACTIVATED,
        "shards": SHARDS,
        "apart": LOGIN_SHARDS_KEPT,
    }


def _large_or_small(connection: psycopg.Connection[Any], scale: Scale, number: int, key: str) -> Application:
    """Return the filled large service (number 0) or small service (number 1)."""
    first, users = ((0, scale.large_users), (scale.large_users, SMALL_USERS))[number]
    service_id = id_of(f"service {number}")
    [(logins,)] = connection.execute("select count(*) from login_events where service_id = %s and success", [service_id]).fetchall()
    return Application(
        id=service_id,
        org_id=id_of(f"organization {number}"),
        slug=("large", "small")[number],
        key=key,
        users=users,
        logins=logins,
        people=[id_of(f"person {first + place}") for place in range(min(users, SMALL_USERS))],
        part=f"-{first + users // 2}@",
    )


# A service with its organization, its first user's number, and its user count
_SHARES: Final = """
    create temporary table shares on commit drop as
    select n, md5('service ' || n)::uuid as service_id, org, md5('organization ' || org)::uuid as org_id,
           case n when 0 then 0 when 1 then %(large_users)s else %(large_users)s + %(small_users)s + (n - 2) * %(other_users)s end as first,
           case n when 0 then %(large_users)s when 1 then %(small_users)s else %(other_users)s end as size
    from generate_series(0, %(others)s + 1) n,
         lateral (select case when n < 2 then n else 2 + (n - 2) / %(services_of_each)s end as org) orgs"""
_ORGANIZATIONS: Final = """
    insert into organizations (id, slug, name, status, tier_id, member_count, created_at, updated_at, approved_at)
    select distinct org_id, case org when 0 then 'large' when 1 then 'small' else 'organization-' || org end, 'Organization ' || org,
           'active', %(tier)s::uuid, 1, %(begin)s, %(begin)s, %(begin)s
    from shares"""
_SERVICES: Final = """
    insert into services (id, org_id, slug, name, service_type, client_id, redirect_uris, user_count, created_at, updated_at)
    select service_id, org_id, 'shop-' || n, 'Shop ' || n, 'mobile', gen_random_uuid(),
           array['https://shop-' || n || '.example.com/callback'], size, %(begin)s, %(begin)s
    from shares"""
_PLANS: Final = """
    insert into plans (id, org_id, service_id, name, price_cents, currency, features, created_at, updated_at)
    select gen_random_uuid(), org_id, service_id, name, price, 'eur', features, %(begin)s, %(begin)s
    from shares, (values ('Free', 0, '{}'::text[]), ('Gold', 999, '{exports,reports}')) plan (name, price, features)"""
_ACCOUNTS: Final = """
    create temporary table accounts on commit drop as
    select id, row_number() over (order by email) - 1 as n from users where email like '%%@bench.example'"""
_API_KEYS: Final = """
    insert into api_keys (id, org_id, service_id, name, prefix, key_hash, permissions, created_by, created_at)
    select gen_random_uuid(), org_id, service_id, 'Robot', (%(prefixes)s::text[])[1 + n], (%(key_hashes)s::bytea[])[1 + n],
           %(permissions)s::text[], o.id, %(begin)s
    from shares join accounts o using (n)"""
_OWNERS: Final = """
    insert into memberships (id, org_id, user_id, email, role, created_at, confirmed_at)
    select distinct on (org_id) gen_random_uuid(), org_id, u.id, u.email, 'owner', %(begin)s, %(begin)s
    from shares left join accounts o using (n) join users u on u.id = coalesce(o.id, md5('person ' || first)::uuid)
    order by org_id, n"""
_PLATFORM_OWNER: Final = "update users set is_platform_owner = true where id = (select id from accounts where n = 0)"
# The statements below generate their rows in the database, because sending millions takes minutes.
# Generate all users, numbered service by service. `place` is their order within the service.
_CROWD: Final = """
    create temporary table crowd on commit drop as
    select s.first + place as number, place, md5('person ' || s.first + place)::uuid as user_id, s.org_id, s.service_id,
           'customer-' || s.first + place || '@' || %(domain)s as email, place %% %(deactivated)s = %(deactivated)s - 1 as deactivated,
           %(begin)s + %(life)s * place / s.size as born
    from shares s cross join lateral generate_series(0, s.size - 1) place
    order by born"""
# A login's id is also its session's id; the session ended long ago. It is a hash of the number,
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
_FAILURES: Final = """
    insert into login_events (id, user_id, org_id, service_id, provider, success, reason, address, agent, created_at, request_id)
    select md5('failure ' || s.n || ' ' || f)::uuid, md5('person ' || s.first + f %% s.size)::uuid, s.org_id, s.service_id, 'password',
           false, (array['credentials', 'locked', 'mfa'])[1 + f %% 3], '203.0.113.' || f %% 250, (%(agents)s::text[])[1 + f %% 8],
           %(end)s - interval '90 days' * (1 - f::float8 / failures), md5('request ' || s.n || ' ' || failures - f)
    from shares s
    cross join lateral (select case s.n when 0 then %(large_failures)s else %(small_failures)s end as failures) each
    cross join lateral generate_series(1, failures) f
    where s.n < 2 order by f::float8 / failures"""
# Past days have a single shard, as after the housekeeper has run.
_LOGIN_TOTALS: Final = """
    insert into login_totals (org_id, service_id, day, provider, shard, total)
    select org_id, service_id, (created_at at time zone 'UTC')::date, provider,
           case when created_at < date_trunc('day', %(end)s - %(apart)s, 'UTC') then 0 else floor(random() * %(shards)s) end, count(*)
    from login_events where success group by 1, 2, 3, 4, 5 order by 3"""
_SEEN: Final = """
    create temporary table seen on commit drop as
    select user_id, min(created_at) as first, max(created_at) as last from login_events where success group by user_id"""
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
# Every second user has or had a subscription. A payment provider manages half the subscriptions.
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
# Tables with indexes that are built at the end, in filling order
_INDEXED: Final = {
    "login_totals": _LOGIN_TOTALS,
    "service_users": _SERVICE_USERS,
    "end_users": _END_USERS,
    "subscriptions": _SUBSCRIPTIONS,
}

APPLICATIONS: Final = Filling("end users", FULL, QUICK, add_applications)
