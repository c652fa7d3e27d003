"""Sign-in policies."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final, LiteralString
from uuid import UUID

from psycopg.types.json import Jsonb

from adapters.postgres.accounts.accounts import ACCOUNT, ACCOUNT_IS_USABLE
from adapters.postgres.accounts.passkeys import KEY_HOSTS, to_key_hosts
from adapters.postgres.engine import records, statements
from adapters.postgres.kernel.connections import connection_facts, is_listed, linked_providers, to_connection_facts
from adapters.postgres.kernel.roles import is_admin
from adapters.postgres.kernel.shared_sql import JOIN_PLATFORM_OWNER, REGISTERED
from core.accounts.model.required_connections import ConnectionRequirement
from core.kernel import proofs, values
from core.kernel.display import PRODUCT
from core.kernel.roles import OWNER
from core.kernel.sign_in_policy.rules import EffectivePolicy, PolicyOfUser, PolicyPart, Rules
from core.tenancy.model import sign_in_policies

RULES: Final = records.Column(read=Rules.read, write=lambda rules: Jsonb(rules.document))
REQUIREMENTS_IMPOSED: Final = records.Column(read=frozenset, write=sorted)
POLICY: Final = records.Record(
    sign_in_policies.SignInPolicy, "p", rules=RULES, owner_rules=RULES, owner_listed=tuple, imposed_requirements=REQUIREMENTS_IMPOSED
)
# The version comes from the sequence.
STORED: Final = records.Record(
    sign_in_policies.SignInPolicy, "p", rules=RULES, owner_rules=RULES, imposed_requirements=REQUIREMENTS_IMPOSED, version=None
)
# Copies an organization's policy version, from the rows `renewed`, to where every request reads it.
COPY_VERSION: Final = """
    update organizations o set sign_in_policy_version = renewed.version
    from renewed where o.id = renewed.org_id and renewed.service_id is null"""
PUT: Final = f"""
    with renewed as (
        {STORED.insert("sign_in_policies")}
        on conflict on constraint sign_in_policies_key do update
        set version = excluded.version, {STORED.overwrites(without=("id", "org_id", "service_id"))}
        returning org_id, service_id, version),
    copied as ({COPY_VERSION})
    select version from renewed"""
ADD_OF_PLATFORM: Final = f"""
    {STORED.insert("sign_in_policies", source="where not exists (select from sign_in_policies where org_id is null)")}
    on conflict do nothing"""
# The organization's policy version stands for its applications' policies, too.
RENEW: Final = f"""
    with renewed as (
        insert into sign_in_policies (id, org_id, rules, changed_at)
        values (%(new_id)s, %(org_id)s, '{{}}', %(changed_at)s)
        on conflict on constraint sign_in_policies_key do update set version = excluded.version
        returning org_id, service_id, version)
    {COPY_VERSION}"""
NEXT_VERSION: Final = f"""
    with renewed as (
        update sign_in_policies p set version = nextval('sign_in_policy_versions')
        where p.org_id = %(org_id)s and p.service_id is null
        returning p.org_id, p.service_id, p.version)
    {COPY_VERSION}"""
EFFECTIVE: Final = """
    select coalesce(v.name, o.name), p.rules, p.version
    from sign_in_policies p join organizations o on o.id = p.org_id
    left join services v on v.id = p.service_id and v.org_id = o.id
    where p.org_id = %(org_id)s and (p.service_id is null or p.service_id = %(service_id)s)
    order by p.service_id nulls first"""
# An unconfirmed membership gives its organization no power over the account (security R-5).
OF_USER: Final = f"""
    select o.id, o.name, p.rules, p.version, {is_admin("m", "o.id")}, {is_listed("o.id", "%(user_id)s")},
           {linked_providers("%(user_id)s", "o.id")}
    from memberships m join organizations o on o.id = m.org_id
    join sign_in_policies p on p.org_id = o.id and p.service_id is null
    where m.user_id = %(user_id)s and m.confirmed_at is not null
    union all
    select null, null, p.rules, p.version, true, false, {linked_providers("%(user_id)s", "null")}
    from users u join sign_in_policies p on p.org_id is null
    where u.id = %(user_id)s and u.is_platform_owner
    order by 2 nulls last, 1"""
# The user uses these applications, has a role there, or may open them as an assigned user or a confirmed member. For the users on its
# break-glass list, all the organization's applications count.
OF_OWN_APPLICATIONS: Final = f"""
    with c as materialized (
        select service_id from service_users where user_id = %(user_id)s
        union select service_id from service_role_users where user_id = %(user_id)s
        union select g.service_id from group_members i join service_groups_assigned g on g.group_id = i.group_id
        where i.user_id = %(user_id)s
        union select g.service_id from group_members i join service_role_groups g on g.group_id = i.group_id where i.user_id = %(user_id)s
        union select v.id from memberships m join services v on v.org_id = m.org_id and v.access_policy <> 'assigned' and {REGISTERED}
        where m.user_id = %(user_id)s and m.confirmed_at is not null
        union select v.id from memberships m join services v on v.org_id = m.org_id and {REGISTERED}
        where m.user_id = %(user_id)s and {is_listed("m.org_id", "m.user_id")})
    select v.org_id, o.name, coalesce(p.rules, '{{}}'), coalesce({is_admin("m", "v.org_id")}, false),
           {is_listed("v.org_id", "%(user_id)s")},
           {linked_providers("%(user_id)s", "v.org_id")}, v.id, v.name, v.email_sign_in, v.required_acr, coalesce(q.rules, '{{}}')
    from c join services v on v.id = c.service_id join organizations o on o.id = v.org_id
    left join sign_in_policies p on p.org_id = v.org_id and p.service_id is null
    left join sign_in_policies q on q.org_id = v.org_id and q.service_id = v.id
    left join memberships m on m.org_id = v.org_id and m.user_id = %(user_id)s and m.confirmed_at is not null
    where (p.id is not null or q.id is not null or v.required_acr is not null)"""
FACTS: Final = connection_facts("o.id", "u")
REQUIREMENTS: Final = f"""
    select o.id, o.name, p.rules, x.is_end_user,
           x.takes_part and not exists (select from directory_blocks b where b.org_id = o.id and b.user_id = u.id), {FACTS.sql}
    from (select %(user_id)s::uuid as id, %(email)s::text as email) u
    cross join lateral (
        select y.org_id, bool_and(y.is_end_user) as is_end_user, bool_or(y.takes_part) as takes_part from (
            select m.org_id, false as is_end_user, true as takes_part from memberships m where m.user_id = u.id
            union all
            select e.org_id, true, not exists (select from end_user_blocks b where b.org_id = e.org_id and b.user_id = e.user_id)
            from end_users e where e.user_id = u.id
            union all select b.org_id, false, false from directory_blocks b where b.user_id = u.id) y
        group by y.org_id) x
    join organizations o on o.id = x.org_id
    join sign_in_policies p on p.org_id = o.id and p.service_id is null and p.rules -> 'required_connections' is not null
    order by o.id"""
APPLICATIONS: Final = f"""
    select v.id, v.name, v.email_sign_in, v.required_acr, coalesce(p.rules, '{{}}')
    from services v left join sign_in_policies p on p.org_id = v.org_id and p.service_id = v.id
    where v.org_id = %(org_id)s and {REGISTERED}"""
OF_APPLICATIONS: Final = f"""
    {APPLICATIONS} and (p.id is not null or v.required_acr is not null or v.email_sign_in is not null) order by v.slug"""
PROVIDERS: Final = linked_providers("u.id", "%(org_id)s")
OWN_PROVIDERS: Final = linked_providers("u.id", "null")
NEWEST_SESSION: Final = """
    (select s.* from sessions s where s.user_id = m.user_id and not s.personal_token and s.impersonator_id is null
     order by s.created_at desc limit 1) l"""
NEWEST_ADDRESS: Final = f"(select l.address from {NEWEST_SESSION})"
USES_SERVICE: Final = """
    and exists (
        select from service_users x where x.org_id = %(org_id)s and x.service_id = %(service_id)s and x.user_id = m.user_id)"""
IS_MEMBER: Final = "select from memberships m where m.org_id = e.org_id and m.user_id = e.user_id and m.confirmed_at is not null"
# Keep the lateral join with a limit: with a plain join the planner may read all the database's accounts for a batch.
THE_ACCOUNT: Final = "cross join lateral (select * from users a where a.id = m.user_id limit 1) u"
CONNECTIONS: Final = connection_facts("%(org_id)s", "u")
PERSON: Final = f"{CONNECTIONS.sql}, {KEY_HOSTS.sql}, {ACCOUNT.columns}"
# A network preview must not tell an organization where a platform owner is.
MEMBER_ADDRESS: Final = f"(select case when w.id is null then l.address end from {NEWEST_SESSION} {JOIN_PLATFORM_OWNER})"
MEMBER: Final = f"select m.role, {is_admin('m', '%(org_id)s')}, {PROVIDERS}, {MEMBER_ADDRESS}, {PERSON} from"
OWNER_OF_PLATFORM: Final = f"null, '{{}}'::uuid[], false, {KEY_HOSTS.sql}, {ACCOUNT.columns}"  # in no organization
ONE_MEMBER: Final = f"""
    {MEMBER} memberships m {THE_ACCOUNT} where m.org_id = %(org_id)s and m.confirmed_at is not null and m.user_id = %(user_id)s"""
PLATFORM_OWNERS: Final = f"""
    select '{OWNER}', true, {OWN_PROVIDERS}, {NEWEST_ADDRESS}, {OWNER_OF_PLATFORM}
    from (select u.id as user_id from users u where u.is_platform_owner) m {THE_ACCOUNT}
    where u.id > coalesce(%(last)s, '00000000-0000-0000-0000-000000000000'::uuid) order by u.id limit %(limit)s"""
PLATFORM_OWNER: Final = f"""
    select '{OWNER}', true, {OWN_PROVIDERS}, null, {OWNER_OF_PLATFORM}
    from users u where u.id = %(user_id)s and u.is_platform_owner"""


def _next_members(service_id: UUID | None, last: UUID | None) -> LiteralString:
    later = "" if last is None else "and m.user_id > %(last)s"
    return f"""
        {MEMBER} (
            select m.org_id, m.user_id, m.role, m.role_id from memberships m
            where m.org_id = %(org_id)s and m.confirmed_at is not null {later} {"" if service_id is None else USES_SERVICE}
            order by m.user_id limit %(limit)s) m
        {THE_ACCOUNT} order by m.user_id"""


def _next_end_users(service_id: UUID | None, last: UUID | None) -> LiteralString:
    later = "" if last is None else "and e.user_id > %(last)s"
    users = "end_users e where" if service_id is None else "service_users e where e.service_id = %(service_id)s and"
    return f"""
        select null, false, {PROVIDERS}, null, {PERSON} from (
            select e.user_id from {users} e.org_id = %(org_id)s and not e.deactivated {later} and not exists ({IS_MEMBER})
            order by e.user_id limit %(limit)s) m
        {THE_ACCOUNT} order by m.user_id"""


BREAK_GLASS_USER: Final = records.Record(sign_in_policies.BreakGlassUser, "u", user_id="u.id", is_admin=is_admin("m", "m.org_id"))
# Confirmed members, by address
LISTED: Final = f"""
    select {BREAK_GLASS_USER.columns}
    from memberships m join users u on u.id = m.user_id
    where m.org_id = %(org_id)s and m.confirmed_at is not null"""


class SignInPolicies(statements.Repository):
    """Implements `ports.storage.tenancy.sign_in_policies.SignInPolicies`."""

    async def find(self, org_id: UUID | None, service_id: UUID | None = None) -> sign_in_policies.SignInPolicy | None:
        of_org = "p.org_id is null" if org_id is None else "p.org_id = %(org_id)s"
        of_service = "p.service_id is null" if service_id is None else "p.service_id = %(service_id)s"
        sql = f"select {POLICY.columns} from sign_in_policies p where {of_org} and {of_service}"
        return await self._one(POLICY.read, sql, org_id=org_id, service_id=service_id)

    async def imposed(self, org_id: UUID) -> Sequence[tuple[sign_in_policies.SignInPolicy, str | None]]:
        sql = f"""
            select v.slug, {POLICY.columns} from sign_in_policies p left join services v on v.id = p.service_id and v.org_id = p.org_id
            where p.org_id = %(org_id)s and (p.owner_rules is not null or p.owner_listed is not null) order by v.slug nulls first"""
        return await self._all(lambda row: (POLICY.read(row[1:]), row[0]), sql, org_id=org_id)

    async def effective(self, org_id: UUID, service_id: UUID | None = None) -> EffectivePolicy | None:
        rows = await self._rows(EFFECTIVE, org_id=org_id, service_id=service_id)
        parts = tuple(PolicyPart(name, Rules.read(rules)) for name, rules, _ in rows)
        return EffectivePolicy(org_id, rows[0][2], parts) if rows else None

    async def of_applications(self, org_id: UUID) -> Sequence[tuple[sign_in_policies.PolicyApplication, Rules]]:
        return await self._all(_to_application, OF_APPLICATIONS, org_id=org_id)

    async def application(self, org_id: UUID, service_id: UUID) -> sign_in_policies.PolicyApplication | None:
        found = await self._one(_to_application, f"{APPLICATIONS} and v.id = %(service_id)s", org_id=org_id, service_id=service_id)
        return None if found is None else found[0]

    async def application_ways(self, org_id: UUID, service_id: UUID | None = None) -> sign_in_policies.ApplicationWays:
        one = "" if service_id is None else "and v.id = %(service_id)s"
        services = f"services v where v.org_id = %(org_id)s and {REGISTERED} {one}"
        sql = f"""
            select exists (select from {services} and v.email_sign_in), array(
                select distinct c.slug from service_connections x join connections c on c.id = x.connection_id and c.org_id is null
                where x.org_id = %(org_id)s and x.service_id in (select v.id from {services}))"""
        ways = await self._one(
            lambda row: sign_in_policies.ApplicationWays(row[0], frozenset(row[1])), sql, org_id=org_id, service_id=service_id
        )
        assert ways is not None, "the statement has one row"
        return ways

    async def person(self, org_id: UUID, user_id: UUID) -> sign_in_policies.PolicyPerson | None:
        return await self._one(_to_person, ONE_MEMBER, org_id=org_id, user_id=user_id)

    async def platform_owner(self, user_id: UUID) -> sign_in_policies.PolicyPerson | None:
        return await self._one(_to_person, PLATFORM_OWNER, user_id=user_id)

    async def platform_owners(self, last: UUID | None, limit: int) -> Sequence[sign_in_policies.PolicyPerson]:
        return await self._all(_to_person, PLATFORM_OWNERS, last=last, limit=limit)

    async def platform_owner_has_signed_in(self) -> bool:
        sql = """
            select 1 from users u where u.is_platform_owner and (
                exists (select from sessions s where s.user_id = u.id)
                or exists (select from login_events l where l.user_id = u.id and l.success)) limit 1"""
        return await self._exists(sql)

    async def people(
        self, org_id: UUID, service_id: UUID | None, last: UUID | None, limit: int, *, are_members: bool
    ) -> Sequence[sign_in_policies.PolicyPerson]:
        sql = (_next_members if are_members else _next_end_users)(service_id, last)
        return await self._all(_to_person, sql, org_id=org_id, service_id=service_id, last=last, limit=limit)

    async def of_user(self, user_id: UUID) -> Sequence[PolicyOfUser]:
        return await self._all(_to_policy_of_user, OF_USER, user_id=user_id)

    async def anywhere(self, user_id: UUID, org_id: UUID | None) -> Sequence[PolicyOfUser]:
        of_org = "" if org_id is None else " and v.org_id = %(org_id)s"
        of_applications = await self._all(_to_policies_of_application, OF_OWN_APPLICATIONS + of_org, user_id=user_id, org_id=org_id)
        return [*await self.of_user(user_id), *chain.from_iterable(of_applications)]

    async def requirements(self, user_id: UUID, email: values.Email) -> Sequence[ConnectionRequirement]:
        return await self._all(_to_requirement, REQUIREMENTS, user_id=user_id, email=email)

    async def requiring(self, org_id: UUID, connection_id: UUID) -> Sequence[sign_in_policies.SignInPolicy]:
        sql = f"""
            select {POLICY.columns} from sign_in_policies p
            where p.org_id = %(org_id)s and exists (
                select from (values (p.rules), (p.owner_rules)) r (rules)
                where r.rules -> 'required_connection' ->> 'id' = %(connection_id)s::text or exists (
                    select from jsonb_each(r.rules -> 'required_connections') each where each.value ->> 'id' = %(connection_id)s::text))
            order by p.service_id nulls first"""
        return await self._all(POLICY.read, sql, org_id=org_id, connection_id=connection_id)

    async def requires_domain(self, org_id: UUID, domain: values.Domain) -> bool:
        sql = """
            select 1 from sign_in_policies p
            where p.org_id = %(org_id)s and p.service_id is null
              and coalesce(p.rules -> 'required_connections' -> %(domain)s, p.owner_rules -> 'required_connections' -> %(domain)s)
                  is not null"""
        return await self._exists(sql, org_id=org_id, domain=domain)

    async def break_glass_users(self, org_id: UUID) -> Sequence[sign_in_policies.BreakGlassUser]:
        listed = "exists (select from break_glass_users b where b.org_id = m.org_id and b.user_id = m.user_id)"
        return await self._all(BREAK_GLASS_USER.read, f"{LISTED} and {listed} order by u.email", org_id=org_id)

    async def admins(self, org_id: UUID) -> Sequence[sign_in_policies.BreakGlassUser]:
        sql = f"{LISTED} and {is_admin('m', 'm.org_id')} and {ACCOUNT_IS_USABLE} order by u.email limit 100"
        return await self._all(BREAK_GLASS_USER.read, sql, org_id=org_id)

    async def put_break_glass_users(self, org_id: UUID, user_ids: Collection[UUID]) -> None:
        await self._run(
            """
            with gone as (delete from break_glass_users where org_id = %(org_id)s and user_id <> all (%(user_ids)s))
            insert into break_glass_users (org_id, user_id) select %(org_id)s, unnest(%(user_ids)s) on conflict do nothing""",
            org_id=org_id,
            user_ids=sorted(user_ids),
        )

    async def end_break_glass(self, org_id: UUID) -> tuple[Collection[UUID], Collection[UUID]]:
        is_left = f"""
            exists (
                select from memberships m join users u on u.id = m.user_id and {ACCOUNT_IS_USABLE}
                where m.org_id = b.org_id and m.user_id = b.user_id and m.confirmed_at is not null and {is_admin("m", "%(org_id)s")})"""
        sql = f"""
            with judged as materialized (select b.user_id, {is_left} as is_left from break_glass_users b where b.org_id = %(org_id)s),
            gone as (
                delete from break_glass_users b using judged j
                where b.org_id = %(org_id)s and b.user_id = j.user_id and not j.is_left)
            select user_id, is_left from judged"""
        rows = await self._rows(sql, org_id=org_id)
        return [user_id for user_id, left in rows if left], [user_id for user_id, left in rows if not left]

    async def renew(self, org_id: UUID) -> None:
        await self._run(NEXT_VERSION, org_id=org_id)

    async def put(self, policy: sign_in_policies.SignInPolicy) -> int:
        if policy.service_id is not None:
            await self._run(RENEW, new_id=values.new_id(), org_id=policy.org_id, changed_at=policy.changed_at)
        return await self._count(PUT, **STORED.values(policy))

    async def add_of_platform(self, policy: sign_in_policies.SignInPolicy) -> None:
        await self._run(ADD_OF_PLATFORM, **STORED.values(policy))

    async def mark_reminded(self, number: int) -> bool:
        sql = "update sign_in_policies set reminded = %(number)s where org_id is null and reminded < %(number)s"
        return await self._run(sql, number=number) == 1

    async def remove(self, org_id: UUID, service_id: UUID) -> bool:
        sql = f"""
            with gone as (delete from sign_in_policies where org_id = %(org_id)s and service_id = %(service_id)s returning org_id),
            renewed as (
                update sign_in_policies p set version = nextval('sign_in_policy_versions')
                from gone where p.org_id = gone.org_id and p.service_id is null
                returning p.org_id, p.service_id, p.version)
            {COPY_VERSION}"""
        return await self._run(sql, org_id=org_id, service_id=service_id) > 0


def _to_application(row: statements.Row) -> tuple[sign_in_policies.PolicyApplication, Rules]:
    service_id, name, email_sign_in, required_acr, rules = row
    required = proofs.Strength.ONE if required_acr is None else proofs.Acr(required_acr).strength
    return sign_in_policies.PolicyApplication(service_id, name, email_sign_in, required), Rules.read(rules)


def _to_person(row: statements.Row) -> sign_in_policies.PolicyPerson:
    role, counts_as_admin, providers, address = row[:4]
    connections, rest = to_connection_facts(row[4 : 4 + CONNECTIONS.width]), row[4 + CONNECTIONS.width :]
    keys, account = to_key_hosts(rest[: KEY_HOSTS.width]), ACCOUNT.read(rest[KEY_HOSTS.width :])
    return sign_in_policies.PolicyPerson(account, keys, role, counts_as_admin, frozenset(providers), address, connections)


def _to_requirement(row: statements.Row) -> ConnectionRequirement:
    org_id, name, rules, is_end_user, takes_part = row[:5]
    facts = to_connection_facts(row[5:])
    facts = facts if takes_part else replace(facts, domain=None)
    return ConnectionRequirement(org_id, name, Rules.read(rules), is_end_user, not takes_part, facts)


def _to_policies_of_application(row: statements.Row) -> list[PolicyOfUser]:
    """Return an application's policy together with its organization's policy, and the policy in the application's settings, if any."""
    org_id, name, rules, counts_as_admin, listed, providers = row[:6]
    application, own_rules = _to_application(row[6:])
    parts = PolicyPart(name, Rules.read(rules)), PolicyPart(application.name, own_rules)
    policy = PolicyOfUser(
        EffectivePolicy(org_id, 0, parts),
        counts_as_admin,
        application.id,
        frozenset(providers),
        application.email_sign_in,
        is_for_break_glass=_is_for_break_glass(parts, counts_as_admin=counts_as_admin, listed=listed),
    )
    of_settings = application.settings_part
    if of_settings is None:
        return [policy]
    return [policy, replace(policy, policy=EffectivePolicy(org_id, 0, (of_settings,)), is_of_settings=True)]


def _to_policy_of_user(row: statements.Row) -> PolicyOfUser:
    org_id, name, rules, version, counts_as_admin, listed, providers = row
    policy = EffectivePolicy(org_id, version, (PolicyPart(name or PRODUCT, Rules.read(rules)),))
    is_for_break_glass = _is_for_break_glass(policy.parts, counts_as_admin=counts_as_admin, listed=listed)
    return PolicyOfUser(policy, counts_as_admin, providers=frozenset(providers), is_for_break_glass=is_for_break_glass)


def _is_for_break_glass(parts: Sequence[PolicyPart], *, counts_as_admin: bool, listed: bool) -> bool:
    # This also counts if the user does not have to use the connection yet: a new address, or a link to the connection, would change that.
    return counts_as_admin and listed and any(part.rules.requires_connection for part in parts)
