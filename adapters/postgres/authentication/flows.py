"""Storage for sign-ins in progress. The identities in them are encrypted."""

import json
from dataclasses import asdict, replace
from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

from psycopg.types.json import Jsonb

from adapters.postgres.accounts import mfa
from adapters.postgres.accounts.accounts import ACCOUNT
from adapters.postgres.accounts.attempt_limits import attempt_parameters, count_attempt_sql
from adapters.postgres.accounts.mfa import ENROLLMENT
from adapters.postgres.authentication import sign_in_proofs
from adapters.postgres.engine import records, statements
from adapters.postgres.engine.statements import ASYNC_COMMIT
from adapters.postgres.kernel.shared_sql import NO_CHALLENGE, NO_PROOFS
from core.accounts.model import attempt_limits
from core.authentication.flow.model import CLOSED_TTL, MAX_OPEN, CodeAttempt, Flow, FlowEnded, FlowTarget, read_stored
from core.authentication.model.identities import PendingIdentity
from core.kernel import connections
from core.kernel.values import Email
from ports.crypto import SecretContext

FLOW: Final = records.Record(
    Flow,
    "f",
    target=FlowTarget,
    proofs=records.Column(
        read=lambda proofs: tuple(sign_in_proofs.to_proof(proof) for proof in proofs),
        write=lambda proofs: Jsonb([sign_in_proofs.to_json(proof) for proof in proofs]),
    ),
    identity=None,  # sealed
    connection_link=records.Column(write=Jsonb),
    is_stored=None,
    service=None,
)
OPEN: Final = "id = %(id)s and browser_hash is not distinct from %(browser_hash)s and closed_at is null"
CLOSE: Final = f"""
    update sign_in_flows set closed_at = %(now)s, expires_at = %(now)s + %(ttl)s where {OPEN} and expires_at > %(now)s returning 1"""
# Lock the row first. Then every concurrent attempt that is counted for the account is also counted
# for the flow. The commit does not wait for the disk, so a crash can take back the last counts, as
# for all counters (docs/adr/0002).
COUNT_ATTEMPT: Final = f"""
    with {ASYNC_COMMIT},
    f as (
        select sign_in_flows.* from sign_in_flows cross join async_commit
        where {OPEN} and user_id = %(user_id)s and failures < %(tries)s and proofs_expire_at > %(now)s for update of sign_in_flows),
    charged as ({count_attempt_sql("%(subject)s::bytea", "from f")}),
    tried as (
        update sign_in_flows s set failures = s.failures + 1 from f, charged
        where s.id = f.id and charged.blocked_until is null)
    select {FLOW.columns}, f.identity, charged.blocked_until, {ENROLLMENT}, {ACCOUNT.columns}
    from f cross join charged join users u on u.id = f.user_id left join mfa m on m.user_id = u.id"""


def add_flow_sql(insert: LiteralString) -> LiteralString:
    """Return the statement that adds a browser's flow, and closes the oldest flows.

    The statement leaves out flows that another transaction is about to change, so that a new flow never waits.
    """
    return f"""
    with pushed_out as (
        update sign_in_flows set closed_at = %(begun_at)s, expires_at = %(begun_at)s + %(closed_ttl)s
        where id = any(array(
            select id from sign_in_flows where closed_at is null and id = any(array(
                select id from sign_in_flows where browser_hash = %(browser_hash)s and closed_at is null
                order by begun_at desc, id desc offset %(max_open)s - 1))
            for update skip locked)))
    {insert}"""


def push_out_parameters() -> dict[str, object]:
    return {"max_open": MAX_OPEN, "closed_ttl": CLOSED_TTL}


MOVE: Final = add_flow_sql("""
    update sign_in_flows set browser_hash = %(browser_hash)s, first_session_id = %(first_session_id)s, expires_at = %(expires_at)s
    where id = %(id)s and browser_hash = %(former_hash)s and closed_at is null and expires_at > %(now)s""")
ADD: Final = add_flow_sql(FLOW.insert("sign_in_flows", "identity"))


def identity_context(flow_id: UUID) -> SecretContext:
    return SecretContext("sign_in_flows", str(flow_id), "identity")


def code_context(flow_id: UUID) -> SecretContext:
    return SecretContext("sign_in_flows", str(flow_id), "challenge_code")


def _to_identity(stored: bytes) -> PendingIdentity:
    """Return the identity. Raises: FlowEnded."""

    def to_tokens(tokens: object) -> connections.ProviderTokens:
        return read_stored(connections.ProviderTokens, tokens, expires_at=datetime.fromisoformat, scopes=tuple)

    return read_stored(
        PendingIdentity, json.loads(stored), service_id=UUID, provider=connections.ConnectionSlug, email=Email, tokens=to_tokens
    )


class StoredFlows(statements.SealingRepository):
    """The methods in `ports.storage.authentication.flows.Flows` and `FlowSteps` that are not about challenges."""

    __slots__ = ()

    def _sealed(self, flow: Flow) -> bytes | None:
        if flow.identity is None:
            return None
        return self._vault.seal(json.dumps(asdict(flow.identity), default=str).encode(), identity_context(flow.id))

    def _to_flow(self, row: statements.Row) -> Flow:
        """Convert the FLOW columns and the identity. If another release stored it differently, the proofs do not count.

        Raises: SealBroken.
        """
        flow, sealed = FLOW.read(row), row[FLOW.width]
        if sealed is None:
            return flow
        try:
            return replace(flow, identity=_to_identity(self._vault.open(sealed, identity_context(flow.id))))
        except FlowEnded:
            return replace(flow, user_id=None, proofs=(), proofs_expire_at=None)

    async def load(self, flow_id: UUID, browser_hash: bytes) -> Flow | None:
        sql = f"select {FLOW.columns}, f.identity from sign_in_flows f where f.id = %(id)s and f.browser_hash = %(browser_hash)s"
        return await self._one(self._to_flow, sql, id=flow_id, browser_hash=browser_hash)

    async def by_secret(self, secret_hash: bytes, browser_hash: bytes, now: datetime) -> Flow | None:
        sql = f"""
            select {FLOW.columns}, f.identity from sign_in_flows f
            where f.secret_hash = %(secret_hash)s and f.browser_hash = %(browser_hash)s
              and f.closed_at is null and f.expires_at > %(now)s"""
        return await self._one(self._to_flow, sql, secret_hash=secret_hash, browser_hash=browser_hash, now=now)

    async def add(self, flow: Flow) -> None:
        await self._write(ADD, **FLOW.values(flow), identity=self._sealed(flow), **push_out_parameters())

    async def ask_to_link(self, flow: Flow) -> bool:
        if not flow.is_stored:
            await self.add(flow)
            return True
        sql = f"""
            update sign_in_flows set
                connection_link = %(connection_link)s, keeps_trust = %(keeps_trust)s, expires_at = %(expires_at)s, user_id = null,
                {NO_PROOFS}, {NO_CHALLENGE}
            where {OPEN}"""
        return await self._run(sql, **FLOW.values(flow)) == 1

    async def drop_link(self, flow: Flow) -> None:
        await self._run(f"update sign_in_flows set connection_link = null where {OPEN}", id=flow.id, browser_hash=flow.browser_hash)

    async def save_proofs(self, flow: Flow) -> bool:
        if not flow.is_stored:
            await self.add(flow)
            return True
        # An email for this flow must not stay: attempts at its code would start again, too.
        sql = f"""
            update sign_in_flows set
                user_id = %(user_id)s, proofs = %(proofs)s, proofs_expire_at = %(proofs_expire_at)s, identity = %(identity)s,
                request = %(request)s, expires_at = %(expires_at)s, {NO_CHALLENGE}
            where {OPEN}"""
        return await self._run(sql, **FLOW.values(flow), identity=self._sealed(flow)) == 1

    def close(self, flow: Flow, now: datetime) -> statements.Answer[bool]:
        return self._exists(CLOSE, id=flow.id, browser_hash=flow.browser_hash, now=now, ttl=CLOSED_TTL)

    async def reopen(self, flow: Flow) -> None:
        sql = """
            update sign_in_flows set closed_at = null, expires_at = %(expires_at)s
            where id = %(id)s and browser_hash is not distinct from %(browser_hash)s"""
        await self._run(sql, id=flow.id, browser_hash=flow.browser_hash, expires_at=flow.expires_at)

    async def move(self, flow: Flow, browser_hash: bytes, now: datetime) -> bool:
        values = {**FLOW.values(flow), "browser_hash": browser_hash, "former_hash": flow.browser_hash, "begun_at": now}
        return await self._run(MOVE, **values, now=now, **push_out_parameters()) == 1

    async def ask_for_more(self, flow: Flow, *, wants_fresh: bool) -> None:
        sql = f"update sign_in_flows set keeps_trust = false, wants_fresh = %(wants_fresh)s where {OPEN}"
        await self._run(sql, id=flow.id, browser_hash=flow.browser_hash, wants_fresh=wants_fresh)

    async def ask_for_fresh(self, flow: Flow, *, wants_fresh: bool) -> None:
        sql = f"update sign_in_flows set wants_fresh = %(wants_fresh)s where {OPEN}"
        await self._run(sql, id=flow.id, browser_hash=flow.browser_hash, wants_fresh=wants_fresh)

    async def forget_user(self, user_id: UUID) -> None:
        sql = f"""
            with of_clients as (delete from sign_in_flows where user_id = %(user_id)s and browser_hash is null)
            update sign_in_flows set user_id = null, {NO_PROOFS}, {NO_CHALLENGE}
            where user_id = %(user_id)s and browser_hash is not null or challenge_user_id = %(user_id)s and challenge_id is not null"""
        await self._write(sql, user_id=user_id)

    async def count_attempt(
        self, flow: Flow, tries: int, subject: bytes, attempt_limit: attempt_limits.AttemptLimit, now: datetime
    ) -> CodeAttempt | None:
        return await self._one(
            self._to_attempt,
            COUNT_ATTEMPT,
            id=flow.id,
            user_id=flow.user_id,
            browser_hash=flow.browser_hash,
            tries=tries,
            subject=subject,
            **attempt_parameters(attempt_limits.SecretKind.MFA, attempt_limit, now),
        )

    def _to_attempt(self, row: statements.Row) -> CodeAttempt | None:
        flow, (blocked_until, *rest) = self._to_flow(row), row[FLOW.width + 1 :]
        if not flow.proofs:
            return None
        account = ACCOUNT.read(tuple(rest[mfa.ENROLLMENT_COLUMN_COUNT :]))
        enrollment = tuple(rest[: mfa.ENROLLMENT_COLUMN_COUNT])
        return CodeAttempt(
            flow=flow,
            account=account,
            enrollment=mfa.to_enrollment(self._vault, account.id, enrollment),
            blocked_until=blocked_until,
        )
