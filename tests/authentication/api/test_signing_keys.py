"""Rotating signing keys: verifiers know a key before it signs, and a stolen key ends at once (security L-2)."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import jwt
import pytest
import trio
from quart_trio import QuartTrio

from actors.key_reader import key_reader
from actors.mailbox import Mailbox
from adapters.crypto import JwtTokens
from adapters.postgres.engine.pool import Pool
from core.authentication.model.tokens import UnknownKey
from core.authentication.tokens import signing_keys
from core.kernel.policy import Policy
from core.kernel.values import rfc3339
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.support.browser import FakeBrowser
from tests.support.builders import BASE_URL, EMAIL, Api, add_account, run_concurrently, run_sql
from tests.support.mfa import add_mfa
from tests.support.waiting import eventually

MINUTE = timedelta(minutes=1)
LEAD_TIME, MAX_AGE = Policy().signing_key_lead_time, Policy().signing_key_max_age
LOG = "select target_id, actor_id, org_id, details from audit_log where action = %s order by created_at"


@dataclass
class CachingVerifier:
    """An API that fetches the key set only when `max-age` has passed, as proxies do, and never for an unknown kid."""

    api: Api
    clock: FakeClock
    keys: jwt.PyJWKSet | None = None
    fresh_until: datetime | None = None

    async def verify(self, token: str) -> dict[str, Any]:
        """Return the claims. Raises: KeyError if the key is not in the cached set."""
        if self.keys is None or self.fresh_until is None or self.clock.now() >= self.fresh_until:
            answer = await self.api.get("/.well-known/jwks.json")
            max_age = int(answer.headers["Cache-Control"].partition("max-age=")[2])
            self.keys, self.fresh_until = jwt.PyJWKSet.from_dict(answer.json), self.clock.now() + timedelta(seconds=max_age)
        key = self.keys[jwt.get_unverified_header(token)["kid"]]
        claims: dict[str, Any] = jwt.decode(token, key, ["RS256"], options={"verify_aud": False, "verify_exp": False, "verify_iat": False})
        return claims


def another_process(ports: Ports) -> Ports:
    """Return the ports for a process that has not loaded the keys yet."""
    return replace(ports, tokens=JwtTokens(BASE_URL))


def kid_of(token: str) -> str:
    return str(jwt.get_unverified_header(token)["kid"])


async def published(api: Api) -> list[str]:
    return [key["kid"] for key in (await api.get("/.well-known/jwks.json")).json["keys"]]


async def test_no_verifier_refuses_a_token_during_a_rotation(api: Api, ports: Ports, clock: FakeClock) -> None:
    """The test tries all minutes in which a verifier can have fetched the key set, from the switch until the old key ends."""
    await add_account(ports)
    verifiers = [CachingVerifier(api, clock) for _ in range(5)]
    tokens: list[tuple[str, datetime]] = []
    other = another_process(ports)  # started before the rotation
    await signing_keys.load(other)
    kids = []
    for minute in range(90):
        if minute == 5:
            rotation = await signing_keys.rotate(ports)
            assert rotation.signs_at == clock.now() + LEAD_TIME
            await signing_keys.load(ports)
        answer = (await api.login()).json
        token = answer["access_token"]
        kids.append(kid_of(token))
        tokens = [
            (each, end) for each, end in [*tokens, (token, clock.now() + timedelta(seconds=answer["expires_in"]))] if end > clock.now()
        ]
        for verifier in verifiers[: minute + 1]:
            for each, _ in tokens:
                await verifier.verify(each)
        await signing_keys.read_token(other, token)
        clock.advance(MINUTE)
        await signing_keys.load(ports)  # as the actor does every minute
    assert kids == ["test"] * 15 + [rotation.kid] * 75
    assert await published(api) == [rotation.kid]


async def test_all_processes_switch_at_the_same_time_without_loading_again(ports: Ports, clock: FakeClock) -> None:
    processes = [ports, another_process(ports), another_process(ports)]
    rotation = await signing_keys.rotate(ports)
    for process in processes:
        await signing_keys.load(process)
    switch = clock.now() + LEAD_TIME
    assert {process.tokens.signing_kid(switch - timedelta(microseconds=1)) for process in processes} == {"test"}
    assert {process.tokens.signing_kid(switch) for process in processes} == {rotation.kid}


async def test_of_several_rotations_one_publishes_a_key_and_the_others_say_so(ports: Ports, pool: Pool, clock: FakeClock) -> None:
    async def rotate(_: int) -> tuple[str, bool]:
        rotation = await signing_keys.rotate(ports, "root")
        assert rotation.signs_at == clock.now() + LEAD_TIME
        return rotation.kid, rotation.is_new

    rotations = await run_concurrently(20, rotate)
    assert len({kid for kid, _ in rotations}) == 1
    assert sorted(is_new for _, is_new in rotations) == [False] * 19 + [True]
    assert await run_sql(pool, "select count(*) from signing_keys") == [(2,)]
    kid = rotations[0][0]
    details = {"operator": "root", "signs_at": rfc3339(clock.now() + LEAD_TIME)}
    assert await run_sql(pool, LOG, "signing_key.rotated") == [(kid, None, None, details)]
    clock.advance(LEAD_TIME)
    assert (await signing_keys.rotate(ports)).is_new, "the next one can follow as soon as the key signs"


async def test_the_first_key_signs_at_once(ports: Ports, pool: Pool, clock: FakeClock) -> None:
    await run_sql(pool, "delete from signing_keys")
    loaded = await run_concurrently(5, lambda _: signing_keys.load(another_process(ports)))
    assert {key.starts_at for key in loaded} == {clock.now()}
    await run_sql(pool, "delete from signing_keys")
    assert (await signing_keys.rotate(ports)).signs_at is None


async def test_a_compromised_key_ends_at_once(api: Api, app: QuartTrio, ports: Ports, pool: Pool, clock: FakeClock) -> None:
    """With its key set, its tokens, and the key that waited. Sessions stay when a key ends."""
    user = await add_account(ports)
    browser = FakeBrowser(app)
    await browser.sign_in()
    tokens = (await api.login()).json
    other = another_process(ports)
    await signing_keys.rotate(ports)
    for process in (ports, other):
        await signing_keys.load(process)
        await signing_keys.read_token(process, tokens["access_token"])  # both processes remember the token
    assert (await api.get("/api/user", token=tokens["access_token"])).status == 200
    factor = await add_mfa(ports, user)
    waiting = (await api.login()).json["access_token"]

    rotation = await signing_keys.replace_compromised(ports, "root")
    for process in (ports, other):
        await signing_keys.load(process)
        assert process.tokens.signing_kid(clock.now()) == rotation.kid
        with pytest.raises(UnknownKey):
            await signing_keys.read_token(process, tokens["access_token"])
    assert await published(api) == [rotation.kid]
    assert await run_sql(pool, "select kid from signing_keys") == [(rotation.kid,)]
    assert await run_sql(pool, LOG, "signing_key.compromised") == [(rotation.kid, None, None, {"operator": "root"})]
    assert (await api.get("/api/user", token=tokens["access_token"])).status == 401
    code = {"code": factor.code()}
    assert (await api.post("/api/auth/mfa/verify", code, token=waiting)).status == 401
    assert EMAIL in (await browser.open("/app/account")).text
    renewed = (await api.post("/api/auth/refresh", {"refresh_token": tokens["refresh_token"]})).json
    assert (await api.get("/api/user", token=renewed["access_token"])).status == 200


async def test_a_load_that_began_before_a_removal_does_not_bring_the_key_back(ports: Ports, clock: FakeClock) -> None:
    read_stale, go_on = trio.Event(), trio.Event()
    stale = replace(ports, storage=PausedStorage(ports.storage, read_stale, go_on))  # type: ignore[arg-type]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(signing_keys.load, stale)
        await read_stale.wait()
        rotation = await signing_keys.replace_compromised(ports, "root")
        await signing_keys.load(ports)
        go_on.set()
    assert [key["kid"] for key in ports.tokens.jwks()["keys"]] == [rotation.kid]


class PausedStorage:
    """A storage. The first read block ends only after `go_on`."""

    def __init__(self, storage: Any, has_read: trio.Event, go_on: trio.Event) -> None:
        self._storage, self._has_read, self._go_on = storage, has_read, go_on

    def reading(self) -> Any:
        return self if not self._has_read.is_set() else self._storage.reading()

    async def __aenter__(self) -> Any:
        self._block = self._storage.reading()
        return await self._block.__aenter__()

    async def __aexit__(self, *error: Any) -> None:
        await self._block.__aexit__(*error)
        self._has_read.set()
        await self._go_on.wait()


class CountingStorage:
    """A storage that counts read blocks."""

    def __init__(self, storage: Any) -> None:
        self._storage, self.count = storage, 0

    def reading(self) -> Any:
        self.count += 1
        return self._storage.reading()


async def test_each_of_many_loads_at_once_reads_the_keys_once(ports: Ports) -> None:
    """Requests with made-up key ids start them, so they must cost no more."""
    storage = CountingStorage(ports.storage)
    counted = replace(ports, storage=storage)  # type: ignore[arg-type]
    await run_concurrently(20, lambda _: signing_keys.load(counted))
    assert storage.count == 20


class CountingMailbox(Mailbox):
    """A mailbox that counts its actor's rounds."""

    waits = 0

    async def wait(self, at_most: float) -> bool:
        self.waits += 1
        return await super().wait(at_most)


@pytest.mark.parametrize(
    ("max_age", "age", "rotates"),
    [(MAX_AGE, MAX_AGE, True), (MAX_AGE, MAX_AGE - timedelta(seconds=1), False), (timedelta(), timedelta(days=4000), False)],
)
async def test_a_key_is_rotated_by_age(
    ports: Ports, pool: Pool, clock: FakeClock, max_age: timedelta, age: timedelta, rotates: bool
) -> None:
    """Several processes see the age at the same moment, and publish one key."""
    clock.advance(age)
    processes = [another_process(replace(ports, policy=replace(ports.policy, signing_key_max_age=max_age))) for _ in range(3)]
    inboxes = [CountingMailbox() for _ in processes]
    async with trio.open_nursery() as nursery:
        for process, inbox in zip(processes, inboxes, strict=True):
            nursery.start_soon(key_reader, process, inbox)
        await eventually(lambda: all(inbox.waits for inbox in inboxes))
        nursery.cancel_scope.cancel()
    expected = [({"signs_at": rfc3339(clock.now() + LEAD_TIME)},)] if rotates else []
    assert await run_sql(pool, "select details from audit_log where action = 'signing_key.rotated'") == expected
    assert await run_sql(pool, "select count(*) from signing_keys") == [(2 if rotates else 1,)]
