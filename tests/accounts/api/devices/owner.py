"""A user with devices, and their sign-ins."""

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.accounts.model.devices import Device, DeviceType, Location, LoginRisk
from core.kernel.causes import SYSTEM
from core.kernel.values import digest
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.support.builders import EMAIL, FIREFOX, PASSWORD, Answer, Api, SignedIn, make_device, run_sql, sign_in
from tests.support.mfa import Authenticator

DEVICES = "/api/user/devices"
DAY, MINUTE = timedelta(days=1), timedelta(minutes=1)


@dataclass(slots=True)
class Owner:
    """A user with devices and a session."""

    api: Api
    ports: Ports
    pool: Pool
    account: Account
    session: SignedIn

    @property
    def token(self) -> str:
        return self.session.access_token

    async def add(self, **changes: Any) -> Device:
        now = self.ports.clock.now()
        new_device = make_device(
            self.account.id,
            now - DAY,
            name="My phone",
            device_type=DeviceType.MOBILE,
            browser="Mobile Safari",
            browser_version="17.1",
            os="iOS",
            os_version="17.2",
            last_used_at=now - MINUTE,
            last_ip="203.0.113.9",
            location=Location("Lisbon", "PT"),
            risk=LoginRisk(35, ("new_device",)),
        )
        device = replace(new_device, **changes)
        async with self.ports.storage.transaction(by=SYSTEM) as tx:
            await tx.devices.add(device)
        return device

    async def add_trusted(self, token: str = "trust", **changes: Any) -> Device:
        now = self.ports.clock.now()
        return await self.add(mfa_at=now, trust_hash=digest(token), trust_expires_at=now + 90 * DAY, **changes)

    async def use(self, device: Device | None, session: SignedIn | None = None) -> None:
        """Connect the session with this device, or with no device."""
        await run_sql(
            self.pool, "update sessions set device_id = %s where id = %s", device and device.id, (session or self.session).session_id
        )

    async def start_session(self, device: Device) -> SignedIn:
        """Start another session on this device."""
        session = await sign_in(self.ports, self.account)
        await self.use(device, session)
        return session

    async def list_devices(self, token: str | None = None) -> list[dict[str, Any]]:
        answer = await self.api.get(DEVICES, token=token or self.token)
        assert answer.status == 200, answer.text
        body = answer.json
        assert list(body) == ["devices", "total"]
        assert body["total"] == len(body["devices"])
        devices: list[dict[str, Any]] = body["devices"]
        return devices

    async def get(self, device: object, token: str | None = None) -> Answer:
        return await self.api.get(f"{DEVICES}/{id_of(device)}", token=token or self.token)

    async def rename(self, device: object, name: Any = "Work", token: str | None = None) -> Answer:
        return await self.api.patch(f"{DEVICES}/{id_of(device)}", {"name": name}, token=token or self.token)

    async def revoke(self, device: object, token: str | None = None) -> Answer:
        return await self.api.delete(f"{DEVICES}/{id_of(device)}", token=token or self.token)

    async def accepts(self, session: SignedIn) -> bool:
        """Return whether the session's access token works."""
        return (await self.api.get("/api/user", token=session.access_token)).status == 200

    async def stored_rows(self) -> list[tuple[Any, ...]]:
        return await run_sql(self.pool, "select id, name, revoked_at, trust_hash, updated_at from devices order by id")


def id_of(device: object) -> object:
    return device.id if isinstance(device, Device) else device


@dataclass(slots=True)
class Logins:
    """A user's sign-ins."""

    api: Api
    pool: Pool

    async def login(self, agent: str | None = FIREFOX, device_id: str | None = None, **fields: Any) -> dict[str, Any]:
        headers = {
            name: query_value for name, query_value in {"User-Agent": agent, "X-Device-Id": device_id}.items() if query_value is not None
        }
        answer = await self.api.post("/api/auth/login", {"email": EMAIL, "password": PASSWORD, **fields}, headers=headers)
        assert answer.status == 200, answer.text
        tokens: dict[str, Any] = answer.json
        return tokens

    async def verify(self, token: str, code: str, device_id: str | None = None, **fields: Any) -> dict[str, Any]:
        headers = {"User-Agent": FIREFOX, **({} if device_id is None else {"X-Device-Id": device_id})}
        answer = await self.api.post("/api/auth/mfa/verify", {"code": code, **fields}, token=token, headers=headers)
        assert answer.status == 200, answer.text
        tokens: dict[str, Any] = answer.json
        return tokens

    async def devices(self, tokens: dict[str, Any]) -> list[dict[str, Any]]:
        answer = await self.api.get(DEVICES, token=tokens["access_token"])
        assert answer.status == 200, answer.text
        devices: list[dict[str, Any]] = answer.json["devices"]
        return devices


@dataclass(slots=True)
class TrustedUser:
    """A user with a second factor, and a trusted device."""

    logins: Logins
    account: Account
    app: Authenticator
    clock: FakeClock

    async def trust(self, **more: Any) -> str:
        """Sign in with the second factor, and return the device's trust token."""
        tokens = await self.logins.login()
        assert tokens["mfa_required"]
        verified = await self.logins.verify(tokens["access_token"], self.app.code(), trust_device=True, **more)
        self.clock.advance(timedelta(seconds=90))  # the next code is new
        return str(verified["device_token"])

    async def is_trusted(self, token: str) -> bool:
        return "mfa_required" not in await self.logins.login(device_token=token)
