"""SAML sign-ons, and the names by which services know users."""

from datetime import datetime
from typing import Final
from uuid import UUID

from adapters.postgres.accounts.accounts import ACCOUNT
from adapters.postgres.applications.services import CLIENT, to_client
from adapters.postgres.authentication.live_sessions import ACCOUNT_IS_USABLE, SESSION_NOT_ENDED
from adapters.postgres.engine.records import Column, Record
from adapters.postgres.engine.statements import DeferredRow, SealingRepository
from adapters.postgres.federation.saml.configuration import SETUP, SETUP_TABLES, SETUP_WIDTH, to_setup
from adapters.postgres.tenancy.members import CONFIRM
from core.accounts.model.accounts import Account
from core.applications.model.services import Service
from core.federation.saml.model.configuration import NameIdFormat, SamlSetup
from core.federation.saml.model.messages import NameId, SamlStatus
from core.federation.saml.model.sign_on import SamlSignOn
from core.kernel.callers import ServiceContext

LOCK_ACCOUNT: Final = f"select {ACCOUNT.columns} from users u where u.id = %(user_id)s for no key update"
SIGN_ON: Final = Record(
    SamlSignOn,
    "a",
    status=SamlStatus,
    subject=Record(NameId, "a", value="a.subject", format=Column(sql="a.subject_format", read=NameIdFormat)).as_field(if_any="value"),
)
# Lock the service with `for key share`: it must not be deleted before this row, which refers to it,
# is committed.
INSERT: Final = SIGN_ON.insert(
    "saml_sign_ons",
    source="""
    from services v where v.org_id = %(org_id)s and v.id = %(service_id)s for key share
    on conflict on constraint saml_sign_ons_request_key do nothing""",
)
to_sign_on_if_any: Final = SIGN_ON.if_any("state_hash")
ORGANIZATION: Final = "(select id from organizations where slug = %(org_slug)s)"
FINISH: Final = """
    update saml_sign_ons set answered_at = %(now)s
    where state_hash = %(state_hash)s and org_id = %(org_id)s and service_id = %(service_id)s
      and answered_at is null and expires_at > %(now)s
    returning 1"""
MAX_FORMER_NAMES: Final = 20  # of one SAML session


class SamlSignOns(SealingRepository):
    """SAML sign-ons and persistent names in PostgreSQL."""

    async def add(self, sign_on: SamlSignOn) -> bool:
        return await self._run(INSERT, **SIGN_ON.values(sign_on)) > 0

    async def find(
        self, org_slug: str, service_slug: str, state_hash: bytes, browser_hash: bytes, now: datetime
    ) -> tuple[SamlSetup, SamlSignOn | None] | None:
        return await self._one(
            lambda row: (to_setup(self._vault, row), to_sign_on_if_any(row[SETUP_WIDTH:])),
            f"""
            select {SETUP}, {SIGN_ON.columns} from {SETUP_TABLES}
            left join saml_sign_ons a on a.state_hash = %(state_hash)s and a.browser_hash = %(browser_hash)s
                and a.org_id = v.org_id and a.service_id = v.id and a.answered_at is null and a.expires_at > %(now)s
            where vo.slug = %(org_slug)s and v.slug = %(service_slug)s""",
            org_slug=org_slug,
            service_slug=service_slug,
            state_hash=state_hash,
            browser_hash=browser_hash,
            now=now,
        )

    async def pending_service(self, state_hash: bytes, now: datetime) -> tuple[Service, ServiceContext] | None:
        sql = f"""
            {CLIENT} join saml_sign_ons s on s.service_id = v.id
            where s.state_hash = %(state_hash)s and s.answered_at is null and s.expires_at > %(now)s"""
        return await self._one(to_client, sql, state_hash=state_hash, now=now)

    async def fresh_sign_in_since(self, state_hash: bytes, now: datetime) -> datetime | None:
        sql = """
            select created_at from saml_sign_ons
            where state_hash = %(state_hash)s and force_authn and answered_at is null and expires_at > %(now)s"""
        return await self._one(lambda row: row[0], sql, state_hash=state_hash, now=now)

    async def record_fresh_sign_in(self, state_hash: bytes, user_id: UUID) -> None:
        sql = "update saml_sign_ons set vouched_for = %(user_id)s where state_hash = %(state_hash)s"
        await self._run(sql, state_hash=state_hash, user_id=user_id)

    async def complete_sign_in(
        self, state_hash: bytes, user_id: UUID, session_id: UUID, ticket_hash: bytes, now: datetime
    ) -> tuple[UUID, str, UUID, str] | None:
        return await self._one(
            lambda row: (row[0], row[1], row[2], row[3]),
            """
            update saml_sign_ons s set user_id = %(user_id)s, session_id = %(session_id)s, ticket_hash = %(ticket_hash)s
            from services v join organizations o on o.id = v.org_id
            where s.state_hash = %(state_hash)s and s.answered_at is null and s.expires_at > %(now)s and v.id = s.service_id
            returning o.id, o.slug, v.id, v.slug""",
            state_hash=state_hash,
            user_id=user_id,
            session_id=session_id,
            ticket_hash=ticket_hash,
            now=now,
        )

    async def finish(self, org_id: UUID, service_id: UUID, state_hash: bytes, now: datetime) -> bool:
        return await self._exists(FINISH, org_id=org_id, service_id=service_id, state_hash=state_hash, now=now)

    def finish_deferred(self, org_id: UUID, service_id: UUID, state_hash: bytes, now: datetime) -> DeferredRow[bool]:
        return self._one_deferred(lambda _: True, FINISH, org_id=org_id, service_id=service_id, state_hash=state_hash, now=now)

    async def reopen(self, org_id: UUID, service_id: UUID, state_hash: bytes) -> None:
        sql = """
            update saml_sign_ons set answered_at = null
            where state_hash = %(state_hash)s and org_id = %(org_id)s and service_id = %(service_id)s"""
        await self._run(sql, org_id=org_id, service_id=service_id, state_hash=state_hash)

    def lock_user_deferred(self, org_slug: str, user_id: UUID, now: datetime, *, confirm_membership: bool) -> DeferredRow[Account]:
        # Lock order: membership, account. Each statement also sees the changes that were committed
        # while the previous statement waited for its lock.
        confirm = f"with confirmed as ({CONFIRM}{ORGANIZATION})" if confirm_membership else ""
        sql = f"""
            {confirm}
            select 1 from memberships where org_id = {ORGANIZATION} and user_id = %(user_id)s for no key update"""
        self._one_deferred(lambda _: True, sql, org_slug=org_slug, user_id=user_id, now=now)
        return self._one_deferred(ACCOUNT.read, LOCK_ACCOUNT, user_id=user_id)

    def lock_session_deferred(self, session_id: UUID, user_id: UUID, now: datetime) -> DeferredRow[bool]:
        # Lock order: later locks are on rows of the session, on the user's name at the service, and on
        # totals of logins and of the audit log. A transaction that locks one of these before the session
        # has locked the account first, so there is no deadlock.
        sql = f"""
            select 1 from sessions s join users u on u.id = s.user_id
            where s.id = %(session_id)s and s.user_id = %(user_id)s and {SESSION_NOT_ENDED}
              and s.impersonator_id is null and s.service_id is null and {ACCOUNT_IS_USABLE}
            for share of s"""
        return self._one_deferred(lambda _: True, sql, session_id=session_id, user_id=user_id, now=now)

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

    def add_session_deferred(
        self, session_id: UUID, org_id: UUID, service_id: UUID, session_index: str, name_id: NameId, now: datetime
    ) -> DeferredRow[str]:
        return self._one_deferred(
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
