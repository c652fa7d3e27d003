"""A device-flow client for the tests."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlencode

from adapters.postgres.engine.pool import Pool
from core.federation.oauth.model.authorization import s256_challenge
from core.kernel.callers import ServiceContext
from tests.fakes.outside import FakeClock
from tests.support.builders import Answer, Api, run_sql

CODE, VERIFY, TOKEN = "/auth/device/code", "/auth/device/verify", "/auth/token"
GRANT: Final = "urn:ietf:params:oauth:grant-type:device_code"
FORM: Final = {"Content-Type": "application/x-www-form-urlencoded"}
CURL: Final = "curl/8.5.0"
VERIFIER: Final = "the-verifier-that-only-this-program-knows-0123456789"
PKCE: Final = {"code_challenge": s256_challenge(VERIFIER), "code_challenge_method": "S256"}
INTERVAL: Final = timedelta(seconds=5)
# The tables that get rows when a device signs in.
SIGN_IN_TABLES: Final = ("sessions", "refresh_tokens", "devices", "login_events", "service_users", "events")


INVALID_CLIENT: Final = (401, "invalid_client", "UNAUTHORIZED")  # as `oauth_error` returns it


def oauth_error(answer: Answer) -> tuple[int, str, str]:
    """Return the status, the OAuth error and our error code from a refusal."""
    body = answer.json
    assert set(body) == {"error", "error_description", "error_code", "timestamp"}, body
    return answer.status, body["error"], body["error_code"]


@dataclass(slots=True)
class DeviceClient:
    """A device, and the codes that it received."""

    api: Api
    pool: Pool
    clock: FakeClock
    service: ServiceContext
    codes: dict[str, Any] = field(default_factory=dict)

    @property
    def headers(self) -> dict[str, str]:
        return {**FORM, "User-Agent": CURL}

    async def request_codes(self, **fields: str) -> Answer:
        """Request codes as a form. Without fields, send only the client id."""
        sent = fields or {"client_id": str(self.service.client_id)}
        return await self.api.call("POST", CODE, raw=urlencode(sent).encode(), headers=self.headers)

    async def begin(self, **fields: str) -> str:
        """Request codes and return the user code."""
        answer = await self.request_codes(client_id=str(self.service.client_id), **fields)
        assert answer.status == 200, answer.text
        self.codes = answer.json
        return str(self.codes["user_code"])

    async def poll(self, **changes: str | None) -> Answer:
        """Poll for tokens without waiting."""
        sent: dict[str, str | None] = {"grant_type": GRANT, "device_code": self.codes["device_code"]}
        sent |= {"client_id": str(self.service.client_id)} | changes
        raw = urlencode({name: value for name, value in sent.items() if value is not None}).encode()
        return await self.api.call("POST", TOKEN, raw=raw, headers=self.headers)

    async def poll_after_interval(self, **changes: str | None) -> Answer:
        """Poll for tokens after the current interval."""
        [(seconds,)] = await run_sql(self.pool, "select max(interval_seconds) from device_codes")
        self.clock.advance(timedelta(seconds=seconds))
        return await self.poll(**changes)

    async def decide(self, token: str | None, action: str = "approve", user_code: str | None = None) -> Answer:
        """Approve or deny the device, as the user with this token."""
        return await self.api.post(VERIFY, {"user_code": user_code or self.codes["user_code"], "action": action}, token=token)

    async def status(self) -> list[str]:
        return [row[0] for row in await run_sql(self.pool, "select status from device_codes order by created_at")]

    async def count_rows(self) -> dict[str, int]:
        """Return how many rows are in each table of SIGN_IN_TABLES, without failed sign-ins."""
        counts = {}
        for table in SIGN_IN_TABLES:
            where = "where success" if table == "login_events" else ""
            [(counts[table],)] = await run_sql(self.pool, f"select count(*) from {table} {where}")  # noqa: S608
        return counts
