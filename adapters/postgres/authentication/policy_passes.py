"""Sign-in policies with the facts about a user, and the sessions' passes."""

from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

from adapters.postgres.accounts.accounts import ACCOUNT
from adapters.postgres.accounts.passkeys import KEY_HOSTS, to_key_hosts
from adapters.postgres.authentication import sign_in_proofs
from adapters.postgres.engine import statements
from adapters.postgres.engine.records import Columns
from adapters.postgres.kernel import connections
from adapters.postgres.kernel.connections import linked_providers
from adapters.postgres.kernel.roles import rights_columns, to_rights
from core.authentication.model import policy
from core.kernel.callers import PolicyState
from core.kernel.display import PRODUCT
from core.kernel.proofs import in_session, proved_at
from core.kernel.roles import RoleName
from core.kernel.sign_in_policy.rules import EffectivePolicy, PolicyPart, Rules

PLATFORM: Final = UUID(int=0)  # stands for the platform in the column `policy_passes.org_id`
# The application, if it requires a connection. Then the application's id stands in that column for uses at the application in a user's
# session: the application's rule replaces the organization's, so such a use must not open the organization. The application's session opens
# nothing else.
REPLACING: Final = "case when q.rules ? 'required_connection' then v.id end"
# For a session `s` and an organization `a`. Without a policy, no other table is read.
STATE: Final = Columns(
    """
    a.sign_in_policy_version,
    case when a.sign_in_policy_version is not null then admin_networks(a.id) end,
    case when a.sign_in_policy_version is not null then has_policy_pass(s.id, a.id, s.user_id, a.sign_in_policy_version, %(now)s) end""",
    3,
    lambda row: to_state(row),
)
# Whether the session `s`, in the organization `o` if any, has a live pass for its user's roles, or needs none. A new
# policy version asks for a new pass.
POLICY_MET: Final = """
    (o.sign_in_policy_version is null or s.impersonator_id is not null
     or has_policy_pass(s.id, o.id, s.user_id, o.sign_in_policy_version, %(now)s))"""
PROOFS: Final = sign_in_proofs.proof_columns("s")
SESSION: Final = (
    f"s.id, {PROOFS.sql}, s.mfa_missing, d.mfa_at, d.trust_hash, d.trust_expires_at, s.risk_is_high, y.used_at, u.policy_reminded_at"
)
SESSION_WIDTH: Final = 8 + PROOFS.width
CONNECTIONS: Final = connections.connection_facts("p.org_id", "u")
FACTS_WIDTH: Final = 16 + CONNECTIONS.width
LOAD: Final = f"""
    select p.org_id, p.version, p.rules, o.name, o.slug, v.slug, v.name, q.rules, v.email_sign_in, {REPLACING},
        m.role, roles_key(m.org_id, m.user_id), {rights_columns("m", "o").sql},
        {linked_providers("u.id", "p.org_id")},
        {CONNECTIONS.sql},
        {SESSION}, {KEY_HOSTS.sql}, {ACCOUNT.columns}
    from sign_in_policies p
    join users u on u.id = %(user_id)s
    left join organizations o on o.id = p.org_id
    left join services v on v.org_id = p.org_id and v.id = %(service_id)s::uuid
    left join sign_in_policies q on q.org_id = p.org_id and q.service_id = v.id
    left join memberships m on m.org_id = p.org_id and m.user_id = u.id
    left join sessions s on s.id = %(session_id)s::uuid and s.user_id = u.id
    left join devices d on d.id = s.device_id and d.user_id = u.id and d.revoked_at is null
    left join policy_passes y on y.session_id = s.id
        and y.org_id = case when s.service_id is null then coalesce({REPLACING}, %(pass_of)s) else %(pass_of)s end
    where p.service_id is null"""
SAVE: Final = """
    insert into policy_passes (session_id, org_id, version, role, valid_until, used_at)
    select s.id, case when s.service_id is null then %(pass_of)s else %(org_id)s end, %(version)s, %(role)s, %(valid_until)s, %(used_at)s
    from sessions s where s.id = %(session_id)s
    on conflict (session_id, org_id) do update
    set version = excluded.version, role = excluded.role, valid_until = excluded.valid_until, used_at = excluded.used_at"""


def to_state(row: statements.Row) -> PolicyState | None:
    version, networks, is_met = row
    return None if version is None else PolicyState(is_met, tuple(networks or ()))


def to_subject(row: statements.Row) -> policy.PolicySubject:
    org_id, version, rules, org_name, org_slug, *service, email_sign_in, replacing, role, roles_key = row[:12]
    (service_slug, service_name, service_rules), rights, providers, rest = service, to_rights(row[12:15]), row[15], row[FACTS_WIDTH:]
    parts = [PolicyPart(org_name or PRODUCT, Rules.read(rules))]
    if service_rules is not None:
        parts.append(PolicyPart(service_name, Rules.read(service_rules)))
    session, keys = rest[:SESSION_WIDTH], rest[SESSION_WIDTH : SESSION_WIDTH + KEY_HOSTS.width]
    account = ACCOUNT.read(rest[SESSION_WIDTH + KEY_HOSTS.width :])
    return policy.PolicySubject(
        policy=EffectivePolicy(org_id, version, tuple(parts)),
        org_slug=org_slug,
        service_slug=service_slug,
        replacing_service_id=replacing,
        role=None if role is None else RoleName(role),
        roles_key=roles_key,
        rights=rights,
        account=account,
        keys=to_key_hosts(keys),
        providers=frozenset(providers),
        connections=connections.to_connection_facts(row[16:FACTS_WIDTH]),
        email_sign_in=email_sign_in,
        session=_to_session(session, has_second=bool(account.second_factors)),
    )


def _to_session(row: statements.Row, *, has_second: bool) -> policy.PolicySession | None:
    if row[0] is None:
        return None
    proofs = sign_in_proofs.to_proofs(row[1 : 1 + PROOFS.width])
    mfa_missing, mfa_at, trust_hash, trust_expires_at, is_high, used_at, reminded_at = row[1 + PROOFS.width :]
    # A session without its account's second factor began on a trusted device. A later proof on such a device says nothing about the second
    # factor.
    began = proved_at(seen) if (seen := in_session(proofs)) else None
    is_trusted = has_second and not mfa_missing and trust_hash is not None and began is not None and mfa_at is not None
    is_trusted = is_trusted and mfa_at <= began < trust_expires_at
    return policy.PolicySession(proofs, mfa_at if is_trusted else None, is_high, used_at, reminded_at)


class PolicyPasses(statements.Repository):
    """Implements `ports.storage.authentication.sign_ins.PolicyPasses` and `PolicyPassUse`."""

    def load(
        self, org_id: UUID | None, service_id: UUID | None, user_id: UUID, session_id: UUID | None
    ) -> statements.Answer[policy.PolicySubject | None]:
        return self._one(to_subject, _load(org_id), **_values(org_id, service_id, user_id, session_id))

    async def state_on_platform(self, session_id: UUID, now: datetime) -> PolicyState | None:
        return await self._one(
            to_state,
            """
            select p.version, p.rules -> 'admin_networks', coalesce(y.version = p.version and y.valid_until > %(now)s, false)
            from sign_in_policies p left join policy_passes y on y.session_id = %(session_id)s and y.org_id = %(platform)s
            where p.org_id is null and p.service_id is null""",
            session_id=session_id,
            platform=PLATFORM,
            now=now,
        )

    async def save(self, new: policy.PolicyPass) -> None:
        await self._write(
            SAVE,
            session_id=new.session_id,
            org_id=new.org_id or PLATFORM,
            pass_of=new.replacing_service_id or new.org_id or PLATFORM,
            version=new.version,
            role=new.roles_key,
            valid_until=new.valid_until,
            used_at=new.used_at,
        )

    async def add_break_glass_use(self, org_id: UUID, session_id: UUID, now: datetime) -> bool:
        sql = """
            insert into break_glass_uses (session_id, org_id, used_at)
            select coalesce(b.id, s.id), %(org_id)s, %(now)s
            from sessions s left join sessions b on b.id = s.browser_session_id
            where s.id = %(session_id)s
            on conflict (session_id, org_id) do nothing"""
        return await self._run(sql, org_id=org_id, session_id=session_id, now=now) == 1

    async def claim_reminder(self, user_id: UUID, now: datetime, before: datetime) -> bool:
        sql = """
            update users set policy_reminded_at = %(now)s
            where id = %(user_id)s and (policy_reminded_at is null or policy_reminded_at <= %(before)s)"""
        return await self._run(sql, user_id=user_id, now=now, before=before) == 1


def _load(org_id: UUID | None) -> LiteralString:
    # The two cases need two conditions: an index on `org_id` does not serve "is not distinct from".
    return LOAD + (" and p.org_id is null" if org_id is None else " and p.org_id = %(org_id)s")


def _values(org_id: UUID | None, service_id: UUID | None, user_id: UUID, session_id: UUID | None) -> dict[str, UUID | None]:
    return {"org_id": org_id, "service_id": service_id, "user_id": user_id, "session_id": session_id, "pass_of": org_id or PLATFORM}
