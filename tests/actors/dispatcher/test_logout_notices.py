"""The logout notifier with a real queue and real receivers (OpenID Connect Back-Channel Logout 1.0, security S-9)."""

import json
from base64 import urlsafe_b64decode
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from itertools import pairwise
from typing import Any
from urllib.parse import parse_qs
from uuid import UUID

import jwt
import pytest
import trio

from actors.dispatching import logout_notifier
from actors.listener import listener
from actors.mailbox import Mailboxes
from adapters.postgres.engine.listen import listen
from adapters.postgres.engine.pool import Pool
from core.authentication.tokens import signing_keys
from core.eventing import deliveries
from core.eventing.model.webhooks import LEASE_MARGIN, DispatchCapacity
from core.kernel.values import new_id
from ports import Ports
from tests.actors.helpers import capture_log, run_actors, wait_until_idle
from tests.fakes.outside import FakeClock, FakeMetrics
from tests.fakes.receiver import ReceivedDelivery, Receiver, answer, answer_after, hang
from tests.support.builders import BASE_URL, add_account, run_sql
from tests.support.services import add_service
from tests.support.waiting import eventually

notifying = partial(run_actors, logout_notifier)
CAPACITY = DispatchCapacity(10, {}, {})
KEYS = ("iss", "sub", "aud", "iat", "exp", "jti", "sid", "events")


def logout_token(request: ReceivedDelivery) -> dict[str, Any]:
    """Return the claims in a request's token. The token must be its form's only field."""
    assert request.headers["content-type"] == "application/x-www-form-urlencoded"
    assert request.headers["cache-control"] == "no-store"
    [(name, [token])] = parse_qs(request.body.decode(), strict_parsing=True).items()
    assert name == "logout_token"
    claims: dict[str, Any] = jwt.decode(token, options={"verify_signature": False})
    return claims


class Application:
    """An application with a back-channel address at the receiver, and a user's sessions."""

    def __init__(self, ports: Ports, pool: Pool, service: UUID, user: UUID) -> None:
        self.ports, self.pool, self.service, self.user = ports, pool, service, user

    async def end_session(self) -> UUID:
        """Start an OpenID Connect session, and end it."""
        now, id_ = self.ports.clock.now(), new_id()
        await run_sql(
            self.pool,
            """
            insert into sessions (id, user_id, created_at, expires_at, ends_at, service_id, org_id, scope)
            select %s, %s, %s, %s, %s, id, org_id, '{openid}' from services where id = %s""",
            *(id_, self.user, now, now + timedelta(days=1), now + timedelta(days=1), self.service),
        )
        await run_sql(self.pool, "update sessions set ended_at = %s where id = %s", now, id_)
        return id_

    async def queued(self) -> list[tuple[Any, ...]]:
        return await run_sql(self.pool, "select status, claims, attempt_count from logout_notices order by created_at, id")

    async def is_done(self) -> bool:
        return await self.queued() == []


@pytest.fixture
async def applications(ports: Ports, pool: Pool, acme: UUID, receiver: Receiver) -> Callable[[str], Awaitable[Application]]:
    await signing_keys.load(ports)
    user = await add_account(ports)

    async def add(path: str) -> Application:
        service = await add_service(pool, acme, path.strip("/"))
        await run_sql(pool, "update services set backchannel_logout_uri = %s where id = %s", receiver.url(path), service)
        return Application(ports, pool, service, user.id)

    return add


@pytest.fixture
async def shop(applications: Callable[[str], Awaitable[Application]]) -> Application:
    return await applications("/shop")


async def test_a_notice_is_a_signed_logout_token(shop: Application, ports: Ports, receiver: Receiver, metrics: FakeMetrics) -> None:
    session_id = await shop.end_session()
    with capture_log() as log:
        async with notifying(ports):
            [request] = await receiver.wait_for_answered(1)
            await eventually(shop.is_done, "the notice is deleted")
    [token] = parse_qs(request.body.decode())["logout_token"]
    [key] = ports.tokens.jwks()["keys"]
    [(client_id,)] = await run_sql(shop.pool, "select client_id from services where id = %s", shop.service)
    verified = jwt.decode(
        token, jwt.PyJWK(key).key, ["RS256"], audience=str(client_id), issuer=BASE_URL, options={"verify_exp": False, "verify_iat": False}
    )
    now = int(ports.clock.now().timestamp())
    jti = verified.pop("jti")
    assert verified == {
        "iss": BASE_URL,
        "sub": str(shop.user),
        "aud": str(client_id),
        "iat": now,
        "exp": now + 120,
        "sid": str(session_id),
        "events": {"http://schemas.openid.net/event/backchannel-logout": {}},
    }
    UUID(jti)
    header = json.loads(urlsafe_b64decode(token.split(".")[0] + "=="))
    assert header == {"alg": "RS256", "kid": key["kid"], "typ": "logout+jwt"}
    assert [job for job, _ in metrics.jobs] == ["logout_notice"]
    assert len(metrics.logout_notices) == 1
    [entry] = log
    assert (entry["event"], entry["service"]) == ("logout_notice_delivered", str(shop.service))
    assert token not in str(log)


@pytest.mark.parametrize(
    ("status", "attempts"), [(200, 1), (204, 1), (400, 1), (201, 5), (302, 5), (401, 5), (404, 5), (410, 5), (500, 5), (503, 5)]
)
async def test_each_status_is_final_or_repeated(
    shop: Application, ports: Ports, receiver: Receiver, clock: FakeClock, status: int, attempts: int
) -> None:
    """Every attempt has its own token. A notice that is given up is in the audit log, once."""
    receiver.answers["/shop"] = answer(status)
    session_id = await shop.end_session()
    async with notifying(ports) as [inbox]:
        for attempt in range(1, attempts + 1):
            await receiver.wait_for_answered(attempt)
            if attempt < attempts:
                await eventually(partial(_attempted, shop, attempt), f"attempt {attempt} is recorded")
                clock.advance(timedelta(hours=3))
                inbox.post()
        await eventually(shop.is_done, "the notice is deleted")
    tokens = [logout_token(request) for request in receiver.got]
    assert len(tokens) == len({token["jti"] for token in tokens}) == attempts
    assert all(token["sid"] == str(session_id) and "nonce" not in token and tuple(token) == KEYS for token in tokens)
    assert [later["iat"] - earlier["iat"] for earlier, later in pairwise(tokens)] == [3 * 3600] * (attempts - 1)
    recorded = await run_sql(shop.pool, "select action, target_id, details from audit_log")
    details = {"service_slug": "shop", "service_name": "Shop", "user_id": str(shop.user), "session_id": str(session_id)}
    outcome = {"reason": "the response was not a success", "response_status_code": status}
    failed = ("service.backchannel_logout.failed", str(shop.service), {**details, **outcome})
    assert recorded == ([] if status in (200, 204) else [failed])


async def _attempted(shop: Application, times: int) -> bool:
    return await shop.queued() == [("waiting", times, times)]


async def test_a_notice_is_not_sent_to_a_refused_address(shop: Application, ports: Ports, pool: Pool) -> None:
    """The guard for outbound calls applies (security W-1)."""
    await run_sql(pool, "update services set backchannel_logout_uri = 'http://169.254.169.254/'")
    await shop.end_session()
    async with notifying(ports):
        await eventually(lambda: _attempted(shop, 1), "the attempt is recorded")


async def test_several_notifiers_send_each_notice_once(
    applications: Callable[[str], Awaitable[Application]], ports: Ports, receiver: Receiver
) -> None:
    every = [await applications(f"/{number}") for number in range(3)]
    session_ids = [await application.end_session() for application in every for _ in range(10)]
    async with notifying(ports, count=3, slots=4):
        await eventually(every[0].is_done, "all notices are deleted")
    assert sorted(logout_token(request)["sid"] for request in receiver.got) == sorted(map(str, session_ids))


async def test_a_hanging_application_does_not_delay_others(
    applications: Callable[[str], Awaitable[Application]], ports: Ports, receiver: Receiver
) -> None:
    slow, quick = await applications("/slow"), await applications("/quick")
    receiver.answers["/slow"] = hang
    for _ in range(20):
        await slow.end_session()
    session_id = await quick.end_session()
    async with notifying(ports, slots=4):
        [request] = await receiver.wait_for_answered(1, "/quick")
    assert logout_token(request)["sid"] == str(session_id)
    assert receiver.most["/slow"] < 4


async def test_a_killed_notifier_loses_no_notice(shop: Application, ports: Ports, receiver: Receiver, clock: FakeClock) -> None:
    """Its lease ends, and another process sends the notice, with a new token. A late failure of the first attempt changes nothing."""
    await shop.end_session()
    batch = await deliveries.record_and_claim_notices(ports, (), CAPACITY)
    [lost] = batch.claimed
    assert (await deliveries.record_and_claim_notices(ports, (), CAPACITY)).claimed == []
    receiver.answers["/shop"] = answer(400)
    late = await deliveries.attempt_notice(ports, lost, 0)
    clock.advance(ports.policy.webhook_timeout + LEASE_MARGIN)
    [again] = (await deliveries.record_and_claim_notices(ports, (), CAPACITY)).claimed
    assert (again.id, again.claims) == (lost.id, 2)
    await deliveries.record_notice_outcomes(ports, [late])
    assert await shop.queued() == [("waiting", 2, 0)]
    receiver.answers["/shop"] = answer(200)
    success = await deliveries.attempt_notice(ports, again, 0)
    for _ in range(2):  # a process that is unsure whether it was stored repeats it
        await deliveries.record_notice_outcomes(ports, [success])
    assert await shop.is_done()
    assert len({logout_token(request)["jti"] for request in receiver.got}) == 2
    assert await run_sql(shop.pool, "select 1 from audit_log") == []


async def test_a_running_attempt_is_finished_at_shutdown(shop: Application, ports: Ports, receiver: Receiver) -> None:
    gate = trio.Event()
    receiver.answers["/shop"] = answer_after(gate)
    await shop.end_session()
    async with notifying(ports) as [_]:
        await receiver.wait_for_requests("/shop")
        gate.set()
    assert await shop.is_done()


async def test_inactive_organizations_and_removed_addresses_get_nothing(shop: Application, ports: Ports, pool: Pool) -> None:
    await shop.end_session()
    for change, undo in (
        ("update organizations set status = 'suspended'", "update organizations set status = 'active'"),
        ("update services set backchannel_logout_uri = null", "update services set backchannel_logout_uri = 'http://127.0.0.1:1/'"),
    ):
        await run_sql(pool, change)
        assert (await deliveries.record_and_claim_notices(ports, (), CAPACITY)).claimed == []
        await run_sql(pool, undo)
    assert len((await deliveries.record_and_claim_notices(ports, (), CAPACITY)).claimed) == 1


async def test_the_end_of_a_session_wakes_the_notifier_of_the_same_process(
    shop: Application, ports: Ports, pool: Pool, conninfo: str, receiver: Receiver
) -> None:
    """A trigger queues the notice, so the process learns about it from its own notification."""
    mailboxes = Mailboxes()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(listener, partial(listen, conninfo, is_own=lambda _: True), mailboxes.channels)
        nursery.start_soon(logout_notifier, ports, mailboxes.logout_notifier)
        await eventually(lambda: _listens(pool), "the listener is ready")
        await wait_until_idle(mailboxes.logout_notifier)
        await shop.end_session()
        await receiver.wait_for_answered(1)
        nursery.cancel_scope.cancel()


async def _listens(pool: Pool) -> bool:
    # Only this test's listener: other test processes have their databases at the same server.
    listeners = "select 1 from pg_stat_activity where application_name = 'gatehouse listen' and datname = current_database()"
    return bool(await run_sql(pool, f"{listeners} and state = 'idle'"))
