"""SAML sign-ons, and the names by which services know users."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from adapters.postgres.accounts.accounts import ACCOUNT, ACCOUNT_IS_USABLE
from adapters.postgres.applications.services import CLIENT, to_client
from adapters.postgres.authentication.flows import FLOW
from adapters.postgres.authentication.session_contexts import SESSION_NOT_ENDED
from adapters.postgres.engine import statements
from adapters.postgres.federation.saml import configuration
from adapters.postgres.federation.saml.configuration import SETUP, SETUP_TABLES
from adapters.postgres.kernel.shared_sql import NO_PROOFS
from adapters.postgres.tenancy.members import CONFIRM
from core.accounts.model.accounts import Account
from core.applications.model.services import Service
from core.authentication.flow.model import Flow
from core.federation.saml.model.configuration import SamlSetup
from core.federation.saml.model.messages import NameId
from core.kernel.callers import ServiceContext

LOCK_ACCOUNT: Final = f"select {ACCOUNT.columns} from users u where u.id = %(user_id)s for no key update"
# A foreign or deleted service begins nothing. The request id is kept as long as the service may send the request.
BEGIN: Final = f"""
    with used as (
        insert into client_assertions (client_id, jti_hash, expires_at)
        select v.id, %(request_id_hash)s, %(expires_at)s from services v where v.org_id = %(org_id)s and v.id = %(service_id)s
        on conflict do nothing returning 1)
    {FLOW.insert("sign_in_flows", source="from used")}"""
PENDING: Final = """f.secret_hash = %(state_hash)s and f.target = 'saml'
    and f.closed_at is null and f.expires_at > %(now)s and f.begun_at > %(begun_after)s"""
to_flow_if_any: Final = FLOW.if_any("id")
ORGANIZATION: Final = "(select id from organizations where slug = %(org_slug)s)"
MAX_FORMER_NAMES: Final = 20  # for a single SAML session


class SamlSignOns(statements.SealingRepository):
    """SAML sign-ons and persistent names in PostgreSQL."""

    async def begin(self, flow: Flow, request_id_hash: bytes) -> bool:
        return await self._run(BEGIN, **FLOW.values(flow), request_id_hash=request_id_hash) > 0

    async def find(
        self, org_slug: str, service_slug: str, state_hash: bytes, browser_hashes: Sequence[bytes], begun_after: datetime, now: datetime
    ) -> tuple[SamlSetup, Flow | None] | None:
        return await self._one(
            lambda row: (configuration.to_setup(self._vault, row), to_flow_if_any(row[configuration.SETUP_WIDTH :])),
            f"""
            select {SETUP}, {FLOW.columns} from {SETUP_TABLES}
            left join sign_in_flows f on {PENDING} and f.browser_hash = any(%(browser_hashes)s)
                and f.org_id = v.org_id and f.service_id = v.id
            where vo.slug = %(org_slug)s and v.slug = %(service_slug)s""",
            org_slug=org_slug,
            service_slug=service_slug,
            state_hash=state_hash,
            browser_hashes=list(browser_hashes),
            begun_after=begun_after,
            now=now,
        )

    async def pending_service(self, state_hash: bytes, begun_after: datetime, now: datetime) -> tuple[Service, ServiceContext] | None:
        sql = f"{CLIENT} join sign_in_flows f on f.service_id = v.id where {PENDING}"
        return await self._one(to_client, sql, state_hash=state_hash, begun_after=begun_after, now=now)

    async def complete_sign_in(
        self, state_hash: bytes, user_id: UUID, session_id: UUID, ticket_hash: bytes, begun_after: datetime, now: datetime
    ) -> tuple[UUID, str, UUID, str] | None:
        # What another user has proved in the browser must not join this user.
        return await self._one(
            lambda row: (row[0], row[1], row[2], row[3]),
            f"""
            update sign_in_flows f set
                user_id = %(user_id)s, session_id = %(session_id)s, ticket_hash = %(ticket_hash)s,
                {NO_PROOFS}
            from services v join organizations o on o.id = v.org_id
            where {PENDING} and v.id = f.service_id
            returning o.id, o.slug, v.id, v.slug""",
            state_hash=state_hash,
            user_id=user_id,
            session_id=session_id,
            ticket_hash=ticket_hash,
            begun_after=begun_after,
            now=now,
        )

    def lock_user(self, org_slug: str, user_id: UUID, now: datetime, *, confirm_membership: bool) -> statements.Answer[Account | None]:
        # Lock order: membership, account. Every statement also sees the changes that were committed
        # while the previous statement waited for its lock.
        confirm = f"with confirmed as ({CONFIRM}{ORGANIZATION})" if confirm_membership else ""
        sql = f"""
            {confirm}
            select 1 from memberships where org_id = {ORGANIZATION} and user_id = %(user_id)s for no key update"""
        self._run(sql, org_slug=org_slug, user_id=user_id, now=now)
        return self._one(ACCOUNT.read, LOCK_ACCOUNT, user_id=user_id)

    def lock_session(self, session_id: UUID, user_id: UUID, now: datetime) -> statements.Answer[bool]:
        # Lock order: later locks are on rows of the session, on the user's name at the service, and on the totals of
        # logins and the audit log. A transaction that locks such rows before the session has locked the account first,
        # so there is no deadlock.
        sql = f"""
            select 1 from sessions s join users u on u.id = s.user_id
            where s.id = %(session_id)s and s.user_id = %(user_id)s and {SESSION_NOT_ENDED}
              and s.impersonator_id is null and s.service_id is null and {ACCOUNT_IS_USABLE}
            for share of s"""
        return self._exists(sql, session_id=session_id, user_id=user_id, now=now)

    async def known_persistent_name_id(self, org_id: UUID, service_id: UUID, user_id: UUID) -> str | None:
        sql = "select name_id from saml_name_ids where org_id = %(org_id)s and service_id = %(service_id)s and user_id = %(user_id)s"
        return await self._one(lambda row: str(row[0]), sql, org_id=org_id, service_id=service_id, user_id=user_id)

    async def persistent_name_id(self, org_id: UUID, service_id: UUID, user_id: UUID, new: str, now: datetime) -> str:
        sql = """
            insert into saml_name_ids as n (service_id, user_id, org_id, name_id, created_at)
            values (%(service_id)s, %(user_id)s, %(org_id)s, %(new)s, %(now)s)
            on conflict (service_id, user_id) do update set name_id = n.name_id
            returning name_id"""
        name = await self._one(lambda row: str(row[0]), sql, org_id=org_id, service_id=service_id, user_id=user_id, new=new, now=now)
        assert name is not None, "the statement returns a row in both cases"
        return name

    def add_session(
        self, session_id: UUID, org_id: UUID, service_id: UUID, session_index: str, name_id: NameId, now: datetime
    ) -> statements.Answer[str | None]:
        return self._one(
            lambda row: str(row[0]),
            """
            insert into saml_sessions as p (session_id, service_id, org_id, session_index, name_id, name_id_format, created_at)
            values (%(session_id)s, %(service_id)s, %(org_id)s, %(session_index)s, %(name_id)s, %(format)s, %(now)s)
            on conflict (session_id, service_id) do update
            set name_id = excluded.name_id, name_id_format = excluded.name_id_format,
                former_names = case when p.name_id = excluded.name_id then p.former_names
                                    else (p.name_id || p.former_names)[:%(former_names)s] end
            returning session_index""",
            session_id=session_id,
            service_id=service_id,
            org_id=org_id,
            session_index=session_index,
            name_id=name_id.value,
            format=name_id.format,
            former_names=MAX_FORMER_NAMES,
            now=now,
        )
