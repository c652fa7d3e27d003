"""Storage for the challenges of sign-ins in progress: emails, and provider requests. The email codes are encrypted."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, LiteralString
from uuid import UUID

from psycopg.types.json import Jsonb

from adapters.postgres.accounts.attempt_limits import attempt_parameters, count_attempt_sql, subject_sql
from adapters.postgres.authentication import flows
from adapters.postgres.authentication.session_contexts import SESSION_NOT_ENDED
from adapters.postgres.engine import records, statements
from adapters.postgres.engine.statements import ASYNC_COMMIT
from adapters.postgres.kernel.shared_sql import NO_CHALLENGE, NO_PROOFS
from core.accounts.model import attempt_limits, devices
from core.authentication.flow.model import ChallengeOrigin, EmailAttempt, EmailChallenge, ProviderRequest
from core.kernel.values import Email


def _to_json(origin: ChallengeOrigin) -> Jsonb:
    location = origin.location
    place = {} if location is None else {"city": location.city, "country": location.country}
    return Jsonb({"address": origin.address, "agent": origin.agent, **place})


def _to_origin(stored: dict[str, Any]) -> ChallengeOrigin:
    country = stored.get("country")
    return ChallengeOrigin(
        stored.get("address"), stored.get("agent"), None if country is None else devices.Location(stored.get("city"), country)
    )


OF_CHALLENGE: Final[Mapping[str, records.Description]] = {
    "user_id": "f.challenge_user_id",
    "begun_at": "f.challenge_begun_at",
    "expires_at": "f.challenge_expires_at",
    "flow": flows.FLOW.as_field(),
}
EMAIL: Final = records.Record(
    EmailChallenge,
    "f",
    **OF_CHALLENGE,
    id="f.challenge_id",
    email=records.Column(sql="f.challenge_email", read=Email),
    origin=records.Column(sql="f.challenge", read=_to_origin, write=_to_json),
)
PROVIDER_REQUEST: Final = records.Record(
    ProviderRequest,
    "f",
    **OF_CHALLENGE,
    hints="null",
    connection_id="(f.challenge ->> 'connection')::uuid",
    scopes=records.Column(sql="f.challenge -> 'scopes'", read=tuple),
)
NAMES: Final = (
    "challenge_id",
    "challenge",
    "challenge_hash",
    "challenge_email",
    "challenge_user_id",
    "challenge_begun_at",
    "challenge_expires_at",
)
# When a user links an account, the session may not end before this row, which refers to it, is committed. ACCOUNT_IS_USABLE and
# MAY_IMPERSONATE are missing, because the session is checked again when the browser returns.
SESSION_LIVES: Final = f"""
    (%(session_id)s::uuid is null or exists (
        select 1 from sessions s
        where s.id = %(session_id)s and s.user_id = %(challenge_user_id)s and {SESSION_NOT_ENDED} for key share))"""
ADD: Final = flows.add_flow_sql(flows.FLOW.insert("sign_in_flows", *NAMES, source=f"where {SESSION_LIVES} returning 1"))
# A ticket has a session and a secret. The browser that opens it uses it up. Attempts start again, so the proofs from an
# earlier step must not stay: their attempts would, too.
START: Final = f"""
    update sign_in_flows set
        browser_hash = %(browser_hash)s, secret_hash = %(secret_hash)s, first_session_id = %(first_session_id)s,
        org_id = %(org_id)s, service_id = %(service_id)s, {", ".join(f"{name} = %({name})s" for name in NAMES)}, challenge_code = null,
        failures = 0, user_id = null, {NO_PROOFS}, expires_at = %(expires_at)s
    where id = %(id)s and closed_at is null and {SESSION_LIVES} and case
        when target in ('link', 'reauthentication') then secret_hash is not null
        else browser_hash is not distinct from %(browser_hash)s end
    returning 1"""
LIVE_EMAIL: Final = "f.challenge_id is not null and f.challenge_expires_at > %(now)s"
FORGET_EMAIL: Final = f"update sign_in_flows f set {NO_CHALLENGE} where f.challenge_id is not null"
OF_BROWSER: Final = "f.id = %(flow_id)s and f.browser_hash = %(holder_hash)s"
OF_CLIENT: Final = "f.secret_hash = %(holder_hash)s and f.browser_hash is null"
LIVE_PROVIDER_REQUEST: Final = """
    f.challenge ->> 'connection' = %(connection_id)s::text and f.closed_at is null and f.challenge_expires_at > %(now)s"""
OF_STATE: Final = f"f.challenge_hash = %(state_hash)s and f.browser_hash = %(browser_hash)s and {LIVE_PROVIDER_REQUEST}"


def _count_attempt_sql(condition: LiteralString) -> LiteralString:
    # Lock the row first. Then every concurrent attempt that is counted for the address is also counted
    # for the flow.
    return f"""
    with f as (
        select * from sign_in_flows f
        where {condition} and f.failures < %(tries)s and f.closed_at is null and {LIVE_EMAIL} for update),
    counted as (select {subject_sql("f.challenge_user_id", "f.challenge_email")} as subject from f),
    charged as ({count_attempt_sql("subject", "from counted")}),
    tried as (
        update sign_in_flows s set failures = s.failures + 1 from f, charged where s.id = f.id and charged.blocked_until is null)
    select {EMAIL.columns}, f.challenge_code, counted.subject, charged.blocked_until from f cross join counted cross join charged"""


COUNT_OF_BROWSER: Final = _count_attempt_sql(OF_BROWSER)
COUNT_OF_CLIENT: Final = _count_attempt_sql(OF_CLIENT)


def _values(challenge: EmailChallenge | ProviderRequest) -> dict[str, object]:
    match challenge:
        case EmailChallenge():
            values = EMAIL.values(challenge)
        case ProviderRequest():
            stored = Jsonb({"connection": str(challenge.connection_id), "scopes": challenge.scopes})
            values = {"challenge_id": None, "challenge_email": None, **PROVIDER_REQUEST.values(challenge), "challenge": stored}
    # A SAML sign-on's session belongs to an API client.
    return values if challenge.user_id is not None else values | {"session_id": None}


class Flows(flows.StoredFlows):
    """Implements `ports.storage.authentication.flows.Flows` and `FlowSteps`."""

    __slots__ = ()

    async def start(self, challenge: EmailChallenge | ProviderRequest, state_hash: bytes | None = None) -> bool:
        return await self._exists(
            START if challenge.flow.is_stored else ADD,
            **_values(challenge),
            challenge_hash=state_hash,
            now=challenge.begun_at,
            **flows.push_out_parameters(),
        )

    # Emails

    def _code(self, flow_id: UUID, sealed: bytes | None) -> str | None:
        return None if sealed is None else self._vault.open(sealed, flows.code_context(flow_id)).decode()

    async def email_of(self, flow_id: UUID, browser_hash: bytes, now: datetime) -> EmailChallenge | None:
        sql = f"select {EMAIL.columns} from sign_in_flows f where {OF_BROWSER} and {LIVE_EMAIL}"
        return await self._one(EMAIL.read, sql, flow_id=flow_id, holder_hash=browser_hash, now=now)

    # The secret alone identifies an email, so this statement cannot name a browser.
    async def email_by_link(self, link_hash: bytes, now: datetime) -> EmailChallenge | None:
        sql = f"select {EMAIL.columns} from sign_in_flows f where f.challenge_hash = %(link_hash)s and {LIVE_EMAIL}"
        return await self._one(EMAIL.read, sql, link_hash=link_hash, now=now)

    async def find_email(self, challenge_id: UUID, now: datetime) -> tuple[EmailChallenge, str | None, str | None] | None:
        def read(row: statements.Row) -> tuple[EmailChallenge, str | None, str | None]:
            challenge, (service_name, code) = EMAIL.read(row), row[EMAIL.width :]
            return challenge, service_name, self._code(challenge.flow.id, code)

        sql = f"""
            select {EMAIL.columns}, coalesce(v.name, f.external_client), f.challenge_code from sign_in_flows f
            left join services v on v.id = f.service_id and v.org_id = f.org_id
            where f.challenge_id = %(id)s and {LIVE_EMAIL} and (f.service_id is null or v.id is not null)"""
        return await self._one(read, sql, id=challenge_id, now=now)

    async def issue_email(self, challenge: EmailChallenge, user_id: UUID | None, link_hash: bytes | None, code: str) -> None:
        sql = """
            update sign_in_flows set challenge_user_id = %(user_id)s, challenge_hash = %(link_hash)s, challenge_code = %(code)s
            where challenge_id = %(id)s"""
        sealed = self._vault.seal(code.encode(), flows.code_context(challenge.flow.id))
        await self._write(sql, id=challenge.id, user_id=user_id, link_hash=link_hash, code=sealed)

    async def remove_older_emails(self, email: Email, begun_at: datetime) -> None:
        sql = f"{FORGET_EMAIL} and f.challenge_email = %(email)s and f.challenge_begun_at < %(begun_at)s"
        await self._write(sql, email=email, begun_at=begun_at)

    async def redeem_email(self, challenge_id: UUID, now: datetime) -> bool:
        sql = f"{FORGET_EMAIL} and f.challenge_id = %(id)s and f.challenge_expires_at > %(now)s"
        return await self._run(sql, id=challenge_id, now=now) == 1

    async def count_email_attempt(
        self,
        flow_id: UUID | None,
        holder_hash: bytes,
        known: devices.KnownBy,
        tries: int,
        attempt_limit: attempt_limits.AttemptLimit,
        now: datetime,
    ) -> EmailAttempt | None:
        def read(row: statements.Row) -> EmailAttempt:
            challenge, (code, *count) = EMAIL.read(row), row[EMAIL.width :]
            return EmailAttempt(challenge, self._code(challenge.flow.id, code), *count)

        return await self._one(
            read,
            COUNT_OF_CLIENT if flow_id is None else COUNT_OF_BROWSER,
            trust_hash=known.trust_hash,
            client_hash=known.client_hash,
            flow_id=flow_id,
            holder_hash=holder_hash,
            tries=tries,
            **attempt_parameters(attempt_limits.SecretKind.EMAIL_CODE, attempt_limit, now),
        )

    # Provider requests

    # The secret alone identifies a ticket, so this statement cannot name a browser.
    async def ticket(self, secret_hash: bytes, connection_id: UUID, now: datetime) -> ProviderRequest | None:
        sql = f"""
            select {PROVIDER_REQUEST.columns} from sign_in_flows f
            where f.secret_hash = %(secret_hash)s and f.target in ('link', 'reauthentication') and {LIVE_PROVIDER_REQUEST}"""
        return await self._one(PROVIDER_REQUEST.read, sql, secret_hash=secret_hash, connection_id=connection_id, now=now)

    async def provider_request(self, state_hash: bytes, browser_hash: bytes, connection_id: UUID, now: datetime) -> ProviderRequest | None:
        sql = f"select {PROVIDER_REQUEST.columns} from sign_in_flows f where {OF_STATE}"
        return await self._one(
            PROVIDER_REQUEST.read, sql, state_hash=state_hash, browser_hash=browser_hash, connection_id=connection_id, now=now
        )

    # A provider's response names no organization, so this statement cannot either: the state alone
    # identifies the service.
    def take_provider_request(
        self, state_hash: bytes, browser_hash: bytes, connection_id: UUID, now: datetime
    ) -> statements.Answer[ProviderRequest | None]:
        # The commit does not wait for the disk. Every result from the provider request is committed later, and reaches the disk after this.
        sql = f"""
            with {ASYNC_COMMIT},
            f as (select f.* from sign_in_flows f cross join async_commit where {OF_STATE} for update of f),
            taken as (update sign_in_flows t set {NO_CHALLENGE} from f where t.id = f.id)
            select {PROVIDER_REQUEST.columns} from f"""
        return self._one(PROVIDER_REQUEST.read, sql, state_hash=state_hash, browser_hash=browser_hash, connection_id=connection_id, now=now)
