"""The receiver for the payment provider's events: signatures, bodies and the rate limit.

The rules are decision 167, and security H-1, H-2, N-4.
"""

import itertools
import json
from datetime import timedelta
from typing import Any

import pytest
import stripe
from structlog.testing import capture_logs

from tests.billing.api.billing import CREATED, RECEIVER, Till
from tests.fakes.outside import FakeClock
from tests.fakes.payments import SECRET, event, sign
from tests.support.builders import Answer, Api, run_sql
from tests.support.refusals import BAD, refused

UNSIGNED = (401, "UNAUTHORIZED")
OFF = (500, "BILLING_ERROR")
OTHER = "whsec_another"


# Signatures


async def test_an_event_signed_by_the_provider_is_accepted(till: Till) -> None:
    body = json.dumps(event(CREATED, till.subscription(), till.now)).encode()
    header = sign(body, at=till.now)
    assert stripe.WebhookSignature.verify_header(body.decode(), header, SECRET)
    answer = await till.post(body, header)
    assert (answer.status, answer.json) == (200, {"status": "success"})
    assert await till.status() == "active"


async def test_the_signature_can_be_in_the_stripe_signature_header(till: Till) -> None:
    body = json.dumps(event(CREATED, till.subscription(), till.now)).encode()
    right, wrong = sign(body, at=till.now), f"t={till.now},v1={'0' * 64}"
    assert refused(await till.post(body, "", **{"Stripe-Signature": wrong})) == UNSIGNED
    assert refused(await till.post(body, wrong, **{"Stripe-Signature": right})) == UNSIGNED, "the billing-signature header takes precedence"
    assert (await till.post(body, "", **{"Stripe-Signature": right})).status == 200


async def test_an_unsigned_body_is_refused_before_it_is_parsed(till: Till) -> None:
    before = await till.stored_rows()
    for body in (b"{}", b"", b"not json", b"\xff"):
        assert refused(await till.post(body, "")) == BAD
        answer = await till.post(body, f"t={till.now},v1={'0' * 64}")
        assert refused(answer) == UNSIGNED
        assert answer.headers["WWW-Authenticate"].startswith("Signature ")
    assert await till.stored_rows() == before


MALFORMED_HEADERS = [
    "nonsense",
    "t={t}",
    "v1={v}",
    "t={t},v1=",
    "t={t},v1={v}0",
    "t={t},v1=x{v}",
    "t={t},v0={v}",
    "t={t},t={t},v1={v}",
    "t=-{t},v1={v}",
    "t={t}.0,v1={v}",
    "t=,v1={v}",
    "t= {t},v1={v}",
    "t={t}, v1={v}",
    "t={t};v1={v}",
    "T={t},V1={v}",
    "t={t},v1={v},v1=short",
]


async def test_malformed_signature_headers_are_refused(till: Till) -> None:
    body = json.dumps(event(CREATED, till.subscription(), till.now)).encode()
    signature = sign(body, at=till.now).partition("v1=")[2]
    answers = {header: refused(await till.post(body, header.format(t=till.now, v=signature))) for header in MALFORMED_HEADERS}
    assert {header: answer for header, answer in answers.items() if answer != UNSIGNED} == {}
    assert await till.rows() == []


async def test_unknown_elements_of_the_header_are_ignored(till: Till) -> None:
    body = json.dumps(event(CREATED, till.subscription(), till.now)).encode()
    header = sign(body, at=till.now)
    assert (await till.post(body, f"v0={'a' * 64},{header},v2=x,flag,=")).status == 200


async def test_a_signature_is_valid_for_five_minutes_in_both_directions(till: Till) -> None:
    findings = []
    offsets = ((0, 200), (-300, 200), (-301, 401), (300, 200), (301, 401), (-(10**9), 401), (10**10, 401))
    for microsecond, (seconds, status) in itertools.product((0, 999_999), offsets):
        till.clock.advance(till.clock.now().replace(microsecond=microsecond) - till.clock.now())
        body = json.dumps(event(CREATED, till.subscription(), till.now)).encode()
        answer = await till.post(body, sign(body, at=till.now + seconds))
        if answer.status != status:
            findings.append((microsecond, seconds, answer.status))
    assert findings == []


async def test_any_change_of_the_body_or_time_invalidates_the_signature(till: Till) -> None:
    body = json.dumps(event(CREATED, till.subscription(), till.now)).encode()
    header = sign(body, at=till.now)
    for tampered in (body + b" ", body[:-1], body.replace(b"active", b"ACTIVE"), b""):
        assert refused(await till.post(tampered, header)) == UNSIGNED
    assert refused(await till.post(body, sign(body, OTHER, till.now))) == UNSIGNED
    moved_header = header.replace(str(till.now), str(till.now + 1))
    assert refused(await till.post(body, moved_header)) == UNSIGNED


@pytest.mark.parametrize("edge", [{"billing_secrets": (OTHER, SECRET)}], indirect=True)
async def test_any_secret_and_any_signature_can_match(till: Till) -> None:
    for secret in (OTHER, SECRET):
        body = json.dumps(event(CREATED, till.subscription(), till.now)).encode()
        right = sign(body, secret, till.now)
        for header in (right, f"t={till.now},v1={'0' * 64},{right.partition(',')[2]}", f"{right},v1={'f' * 64}"):
            assert (await till.post(body, header)).status == 200


@pytest.mark.parametrize("edge", [{"billing_secrets": ()}, {"billing_secrets": ("",)}], indirect=True)
async def test_without_a_secret_no_event_is_accepted(till: Till) -> None:
    before = await till.stored_rows()
    body = json.dumps(event(CREATED, till.subscription(), till.now)).encode()
    for header in (sign(body, "", till.now), sign(body, SECRET, till.now), ""):
        with capture_logs() as logs:
            assert refused(await till.post(body, header)) == OFF
        assert [line["error"] for line in logs if line["event"] == "outage"] == ["SSO_BILLING_WEBHOOK_SECRET is not set"]
    assert await till.stored_rows() == before


# Bodies, modes and the rate limit

MALFORMED: list[Any] = [
    {},
    {"id": None},
    {"id": ""},
    {"id": "evt 1"},
    {"id": "evt\u0000"},
    {"id": "e" * 256},
    {"type": 5},
    {"created": "1"},
    {"created": -1},
    {"created": 10**18},
    {"created": True},
    {"data": None},
    {"data": []},
    {"data": {}},
    {"data": {"object": "sub_1"}},
    {"data": {"object": {"id": 5, "status": "active"}}},
    {"data": {"object": {"id": "../customers", "status": "active"}}},
    {"data": {"object": {"id": "sub_1"}}},
]


async def test_signed_but_malformed_events_are_refused(till: Till) -> None:
    good = event(CREATED, till.subscription(), till.now)
    before = await till.stored_rows()
    bodies = [b"", b"{", b"[]", b"null", b"\xff", b'{"a": 1, "a": 2}', b"[" * 1000, b'{"id": "\\ud800"}']
    bodies += [json.dumps({**good, **changes} if changes else {}).encode() for changes in MALFORMED]
    for body in bodies:
        assert refused(await till.post(body)) == BAD, body
    assert await till.stored_rows() == before


async def test_other_content_types_are_refused(till: Till) -> None:
    body = json.dumps(event(CREATED, till.subscription(), till.now)).encode()
    assert (await till.post(body, **{"Content-Type": "text/plain"})).status == 415
    assert (await till.post(body, **{"Content-Type": "application/json; charset=utf-8"})).status == 200


async def test_unknown_event_types_are_acknowledged(till: Till) -> None:
    before = await till.stored_rows()
    for type_ in ("invoice.voided", "customer.subscription.paused", "anything at all", ""):
        await till.deliver(type_, {"id": "x"})
    assert await till.stored_rows() == before


async def test_events_of_the_other_mode_are_acknowledged_and_ignored(till: Till) -> None:
    findings = []
    for mode, livemode, counts in (
        (None, True, True),
        (None, False, True),
        (None, None, True),
        (True, True, True),
        (True, False, False),
        (True, None, False),
        (False, True, False),
        (False, False, True),
    ):
        await till.reset()
        object.__setattr__(till.tenant.ports.policy, "billing_livemode", mode)
        await till.deliver(CREATED, till.subscription(), livemode=livemode)
        is_stored = await run_sql(till.tenant.pool, "select 1 from billing_events") != []
        if (await till.status() == "active", is_stored) != (counts, counts):
            findings.append((mode, livemode))
    assert findings == []


@pytest.mark.parametrize("edge", [{"rate_limit_factor": 1.0}], indirect=True)
@pytest.mark.slow
async def test_the_rate_limit_allows_a_burst_of_100_and_then_1000_per_minute(till: Till, api: Api, clock: FakeClock) -> None:
    async def ask() -> Answer:
        return await api.call("POST", RECEIVER, raw=b"{}")

    assert [(await ask()).status for _ in range(100)] == [400] * 100
    answer = await ask()
    assert (answer.status, answer.headers["Retry-After"]) == (429, "1")
    clock.advance(timedelta(seconds=0.3))
    assert [(await ask()).status for _ in range(6)] == [400] * 5 + [429]
