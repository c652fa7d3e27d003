"""A program without a browser that is to be signed in to a service, as the tests of the device flow need it."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlencode

from adapters.postgres.engine.pool import Pool
from core.federation.oauth.authorization_rules import s256_challenge
from core.kernel.principals import ServiceContext
from tests.fakes.outside import FakeClock
from tests.support.builders import Answer, Api, run_sql

CODE, VERIFY, TOKEN = "/auth/device/code", "/auth/device/verify", "/auth/token"
GRANT: Final = "urn:ietf:params:oauth:grant-type:device_code"
FORM: Final = {"Content-Type": "application/x-www-form-urlencoded"}
CURL: Final = "curl/8.5.0"
VERIFIER: Final = "the-verifier-that-only-this-program-knows-0123456789"
PKCE: Final = {"code_challenge": s256_challenge(VERIFIER), "code_challenge_method": "S256"}
INTERVAL: Final = timedelta(seconds=5)
# What a session of a device leaves behind.
SIGN_IN_TABLES: Final = ("sessions", "refresh_tokens", "devices", "login_events", "service_users", "events")


def oauth_error(answer: Answer) -> tuple[int, str, str]:
    """How a client of OAuth is refused: status, what OAuth calls it, and what we do."""
    body = answer.json
    assert set(body) == {"error", "error_description", "error_code", "timestamp"}, body
    return answer.status, body["error"], body["error_code"]


@dataclass(slots=True)
class DeviceClient:
    """The program, and the codes that it has been given."""

    api: Api
    pool: Pool
    clock: FakeClock
    service: ServiceContext
    codes: dict[str, Any] = field(default_factory=dict)

    @property
    def headers(self) -> dict[str, str]:
        return {**FORM, "User-Agent": CURL}

    async def ask(self, **fields: str) -> Answer:
        """For codes, as other people's clients do it; without fields by the client id alone."""
        sent = fields or {"client_id": str(self.service.client_id)}
        return await self.api.call("POST", CODE, raw=urlencode(sent).encode(), headers=self.headers)

    async def begin(self, **fields: str) -> str:
        """The user code, after asking for one."""
        answer = await self.ask(client_id=str(self.service.client_id), **fields)
        assert answer.status == 200, answer.text
        self.codes = answer.json
        return str(self.codes["user_code"])

    async def poll(self, **changes: str | None) -> Answer:
        """For tokens, at once."""
        sent: dict[str, str | None] = {"grant_type": GRANT, "device_code": self.codes["device_code"]}
        sent |= {"client_id": str(self.service.client_id)} | changes
        raw = urlencode({name: value for name, value in sent.items() if value is not None}).encode()
        return await self.api.call("POST", TOKEN, raw=raw, headers=self.headers)

    async def poll_after_interval(self, **changes: str | None) -> Answer:
        """For tokens, after the interval, however long it has become."""
        [(seconds,)] = await run_sql(self.pool, "select max(interval_seconds) from device_codes")
        self.clock.advance(timedelta(seconds=seconds))
        return await self.poll(**changes)

    async def answer(self, token: str | None, action: str = "approve", user_code: str | None = None) -> Answer:
        """What a person with this token says to it."""
        return await self.api.post(VERIFY, {"user_code": user_code or self.codes["user_code"], "action": action}, token=token)

    async def status(self) -> list[str]:
        return [row[0] for row in await run_sql(self.pool, "select status from device_codes order by created_at")]

    async def left(self) -> dict[str, int]:
        """How much there is of what a sign-in leaves behind."""
        counted = {}
        for table in SIGN_IN_TABLES:
            [(counted[table],)] = await run_sql(self.pool, f"select count(*) from {table}")  # noqa: S608
        return counted
