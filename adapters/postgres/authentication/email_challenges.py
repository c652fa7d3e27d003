"""Storage of the emails of sign-ins in progress. The codes are encrypted."""

from dataclasses import replace
from datetime import datetime
from typing import Any, Final, LiteralString
from uuid import UUID

from psycopg.types.json import Jsonb

from adapters.postgres.accounts.attempt_limits import attempt_parameters, count_attempt_sql, subject_sql
from adapters.postgres.authentication.flows import FLOW, NO_CHALLENGE, OPEN, FlowRepository, add_flow_sql, code_context, push_out_parameters
from adapters.postgres.engine.records import Column, Record
from adapters.postgres.engine.statements import Row
from core.accounts.model.attempt_limits import AttemptLimit, SecretKind
from core.accounts.model.devices import KnownBy, Location
from core.authentication.flow.model import ChallengeOrigin, EmailAttempt, EmailChallenge
from core.kernel.values import Email


def _to_json(origin: ChallengeOrigin) -> Jsonb:
    location = origin.location
    place = {} if location is None else {"city": location.city, "country": location.country}
    return Jsonb({"address": origin.address, "agent": origin.agent, **place})


def _to_origin(stored: dict[str, Any]) -> ChallengeOrigin:
    country = stored.get("country")
    return ChallengeOrigin(stored["address"], stored["agent"], None if country is None else Location(stored["city"], country))


CHALLENGE: Final = Record(
    EmailChallenge,
    "f",
    id="f.challenge_id",
    email=Column(sql="f.challenge_email", read=Email),
    origin=Column(sql="f.challenge", read=_to_origin, write=_to_json),
    begun_at="f.challenge_begun_at",
    expires_at="f.challenge_expires_at",
    user_id="f.challenge_user_id",
    flow=FLOW.as_field(),
)
COLUMNS: Final = f"{CHALLENGE.columns}, f.identity"
WIDTH: Final = CHALLENGE.width + 1
LIVE: Final = "f.challenge_id is not null and f.challenge_expires_at > %(now)s"
ADD: Final = add_flow_sql(CHALLENGE.insert("sign_in_flows"))
# Attempts at the code start again, so the proofs of an earlier step must not stay: their attempts would, too.
START: Final = f"""
    update sign_in_flows set
        challenge_id = %(challenge_id)s, challenge = %(challenge)s, challenge_email = %(challenge_email)s,
        challenge_begun_at = %(challenge_begun_at)s, challenge_expires_at = %(challenge_expires_at)s,
        challenge_user_id = null, challenge_hash = null, challenge_code = null, failures = 0,
        org_id = %(org_id)s, service_id = %(service_id)s, expires_at = %(expires_at)s,
        user_id = null, proofs = '[]', identity = null, proofs_expire_at = null
    where {OPEN}"""
CLEAR: Final = f"update sign_in_flows f set {NO_CHALLENGE}"
OF_BROWSER: Final = "f.id = %(flow_id)s and f.browser_hash = %(holder_hash)s"
OF_CLIENT: Final = "f.secret_hash = %(holder_hash)s and f.browser_hash is null"


def _count_attempt_sql(condition: LiteralString) -> LiteralString:
    # Lock the row first. Then every concurrent attempt that is counted for the address is also counted
    # for the flow.
    return f"""
    with f as (
        select * from sign_in_flows f where {condition} and f.failures < %(tries)s and f.closed_at is null and {LIVE} for update),
    counted as (select {subject_sql("f.challenge_user_id", "f.challenge_email")} as subject from f),
    charged as ({count_attempt_sql("subject", "from counted")}),
    tried as (
        update sign_in_flows s set failures = s.failures + 1 from f, charged where s.id = f.id and charged.blocked_until is null)
    select {COLUMNS}, f.challenge_code, counted.subject, charged.blocked_until from f cross join counted cross join charged"""


COUNT_OF_BROWSER: Final = _count_attempt_sql(OF_BROWSER)
COUNT_OF_CLIENT: Final = _count_attempt_sql(OF_CLIENT)


class EmailChallenges(FlowRepository):
    """Implements `ports.storage.authentication.flows.EmailChallenges` and `EmailAttempts`."""

    def _to_challenge(self, row: Row) -> EmailChallenge:
        """Convert COLUMNS. Raises: SealBroken."""
        challenge = CHALLENGE.read(row)
        return replace(challenge, flow=self._with_identity(challenge.flow, row[CHALLENGE.width]))

    def _code(self, challenge: EmailChallenge, sealed: bytes | None) -> str | None:
        return None if sealed is None else self._vault.open(sealed, code_context(challenge.flow.id)).decode()

    async def of_flow(self, flow_id: UUID, browser_hash: bytes, now: datetime) -> EmailChallenge | None:
        sql = f"select {COLUMNS} from sign_in_flows f where {OF_BROWSER} and {LIVE}"
        return await self._one(self._to_challenge, sql, flow_id=flow_id, holder_hash=browser_hash, now=now)

    # The secret alone identifies an email, so this statement cannot name a browser.
    async def by_link(self, link_hash: bytes, now: datetime) -> EmailChallenge | None:
        sql = f"select {COLUMNS} from sign_in_flows f where f.challenge_hash = %(link_hash)s and {LIVE}"
        return await self._one(self._to_challenge, sql, link_hash=link_hash, now=now)

    async def start(self, challenge: EmailChallenge) -> bool:
        values = CHALLENGE.values(challenge)
        if challenge.flow.is_stored:
            return await self._run(START, **values) == 1
        await self._write(ADD, **values, **push_out_parameters())
        return True

    async def find(self, challenge_id: UUID, now: datetime) -> tuple[EmailChallenge, str | None, str | None] | None:
        def read(row: Row) -> tuple[EmailChallenge, str | None, str | None]:
            challenge = self._to_challenge(row)
            return challenge, row[WIDTH], self._code(challenge, row[WIDTH + 1])

        sql = f"""
            select {COLUMNS}, v.name, f.challenge_code from sign_in_flows f
            left join services v on v.id = f.service_id and v.org_id = f.org_id
            where f.challenge_id = %(id)s and {LIVE} and (f.service_id is null or v.id is not null)"""
        return await self._one(read, sql, id=challenge_id, now=now)

    async def issue(self, challenge: EmailChallenge, user_id: UUID | None, link_hash: bytes | None, code: str) -> None:
        sql = """
            update sign_in_flows set challenge_user_id = %(user_id)s, challenge_hash = %(link_hash)s, challenge_code = %(code)s
            where challenge_id = %(id)s"""
        sealed = self._vault.seal(code.encode(), code_context(challenge.flow.id))
        await self._write(sql, id=challenge.id, user_id=user_id, link_hash=link_hash, code=sealed)

    async def remove_older(self, email: Email, begun_at: datetime) -> None:
        sql = f"{CLEAR} where f.challenge_email = %(email)s and f.challenge_begun_at < %(begun_at)s"
        await self._write(sql, email=email, begun_at=begun_at)

    async def redeem(self, challenge_id: UUID, now: datetime) -> bool:
        return await self._run(f"{CLEAR} where f.challenge_id = %(id)s and {LIVE}", id=challenge_id, now=now) == 1

    async def void(self, user_id: UUID) -> None:
        # Version 0.9.0, which may still run, reads email_sign_ins.
        earlier = "with earlier as (delete from email_sign_ins where user_id = %(user_id)s)"
        await self._write(f"{earlier} {CLEAR} where f.challenge_user_id = %(user_id)s", user_id=user_id)

    async def count_attempt(
        self, flow_id: UUID | None, holder_hash: bytes, known: KnownBy, tries: int, attempt_limit: AttemptLimit, now: datetime
    ) -> EmailAttempt | None:
        def read(row: Row) -> EmailAttempt:
            challenge = self._to_challenge(row)
            return EmailAttempt(challenge, self._code(challenge, row[WIDTH]), *row[WIDTH + 1 :])

        return await self._one(
            read,
            COUNT_OF_CLIENT if flow_id is None else COUNT_OF_BROWSER,
            trust_hash=known.trust_hash,
            client_hash=known.client_hash,
            flow_id=flow_id,
            holder_hash=holder_hash,
            tries=tries,
            **attempt_parameters(SecretKind.EMAIL_CODE, attempt_limit, now),
        )
