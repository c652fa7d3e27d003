"""The signed-in user reads, renames and revokes their devices (decision 78; security A-8, S-5)."""

from datetime import timedelta

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts.model.attempt_limits import AttemptLimit
from core.accounts.model.devices import KnownBy, Location, LoginRisk
from core.kernel.values import digest, rfc3339
from tests.accounts.api.devices.owner import DAY, DEVICES, MINUTE, Owner
from tests.fakes.outside import FakeClock
from tests.support.builders import run_sql, sign_in
from tests.support.refusals import BAD, MISSING, UNAUTHORIZED, refused

SUMMARY = ["id", "name", "device_type", "browser", "os", "last_used_at", "methods", "last_ip", "is_current", "trusted", "created_at"]
DETAILS = [*SUMMARY, "browser_version", "os_version", "last_location", "risk_score"]


async def test_the_list_has_a_summary_of_each_device(user: Owner, clock: FakeClock) -> None:
    device = await user.add()
    [summary] = await user.list_devices()
    assert list(summary) == SUMMARY
    assert summary == {
        "id": str(device.id),
        "name": "My phone",
        "device_type": "mobile",
        "browser": "Mobile Safari",
        "os": "iOS",
        "last_used_at": rfc3339(clock.now() - MINUTE),
        "last_ip": "203.0.113.9",
        "is_current": False,
        "trusted": False,
        "created_at": rfc3339(clock.now() - DAY),
        "methods": [],
    }


async def test_a_device_has_all_details(user: Owner) -> None:
    device = await user.add()
    details = (await user.get(device)).json
    [summary] = await user.list_devices()
    assert list(details) == DETAILS
    assert details == {
        **summary,
        "browser_version": "17.1",
        "os_version": "17.2",
        "last_location": {"city": "Lisbon", "country": "PT"},
        "risk_score": 0.35,
    }


async def test_unknown_details_are_null(user: Owner) -> None:
    device = await user.add(browser_version=None, os_version=None, location=None, last_ip=None, risk=LoginRisk(0, ()))
    details = (await user.get(device)).json
    assert [details[name] for name in ("browser_version", "os_version", "last_location", "last_ip")] == [None] * 4
    assert details["risk_score"] == 0.0
    country = await user.add(location=Location(None, "JP"))
    assert (await user.get(country)).json["last_location"] == {"city": None, "country": "JP"}


async def test_the_most_recently_used_device_comes_first(user: Owner, clock: FakeClock) -> None:
    ages = [3, 1, 2]
    devices = {age: await user.add(last_used_at=clock.now() - age * DAY) for age in ages}
    assert [summary["id"] for summary in await user.list_devices()] == [str(devices[age].id) for age in sorted(ages)]


async def test_a_user_without_devices_has_an_empty_list(user: Owner, other_user: Owner) -> None:
    await other_user.add()
    assert (await user.api.get(DEVICES, token=user.token)).json == {"devices": [], "total": 0}


@pytest.mark.slow
async def test_a_long_list_is_complete(user: Owner, pool: Pool) -> None:
    device = await user.add()
    copies = """
        insert into devices (id, user_id, name, device_type, browser, os, last_used_at, risk_score, risk_factors, created_at, updated_at)
        select gen_random_uuid(), user_id, name, device_type, browser, os, last_used_at - n / 2 * interval '1 s', 0, '{}', created_at,
               updated_at
        from devices, generate_series(1, 1200) n where id = %s"""
    await run_sql(pool, copies, device.id)
    summaries = await user.list_devices()
    assert len({summary["id"] for summary in summaries}) == len(summaries) == 1201
    assert [summary["last_used_at"] for summary in summaries] == sorted((summary["last_used_at"] for summary in summaries), reverse=True)


async def test_the_current_device_is_that_of_the_caller_session(user: Owner) -> None:
    kept_device, second = await user.add(), await user.add()
    await user.use(kept_device)
    other = await user.start_session(second)
    for token, current in ((user.token, kept_device), (other.access_token, second)):
        assert [summary["id"] for summary in await user.list_devices(token) if summary["is_current"]] == [str(current.id)]
        for device in (kept_device, second):
            assert (await user.get(device, token)).json["is_current"] is (device is current)


async def test_a_device_is_shown_as_trusted_until_the_trust_ends(user: Owner, clock: FakeClock) -> None:
    device = await user.add_trusted()
    for advance, trusted in ((timedelta(0), True), (30 * DAY - MINUTE, True), (MINUTE, False)):
        clock.advance(advance)
        user.session = await sign_in(user.ports, user.account)
        assert [summary["trusted"] for summary in await user.list_devices()] == [trusted]
        assert (await user.get(device)).json["trusted"] is trusted


# Renaming


async def test_a_device_is_renamed(user: Owner, clock: FakeClock) -> None:
    device, other = await user.add_trusted(), await user.add()
    clock.advance(MINUTE)
    answer = await user.rename(device, "  Work phone ")
    assert answer.status == 200
    assert list(answer.json) == ["id", "name", "device_type", "updated_at"]
    assert answer.json == {"id": str(device.id), "name": "Work phone", "device_type": "mobile", "updated_at": rfc3339(clock.now())}
    assert (await user.get(device)).json["name"] == "Work phone"
    assert (await user.get(other)).json["name"] == "My phone"
    assert (await user.get(device)).json["trusted"]


async def test_the_current_device_can_be_renamed(user: Owner) -> None:
    device = await user.add()
    await user.use(device)
    assert (await user.rename(device, "x" * 100)).json["name"] == "x" * 100


async def test_an_invalid_name_is_refused(user: Owner) -> None:
    device = await user.add()
    before = await user.stored_rows()
    for name in ("", "   ", "x" * 101, 5, None, ["a"], "a\nb", "a\u202eb"):
        assert refused(await user.rename(device, name)) == BAD, name
    assert refused(await user.api.patch(f"{DEVICES}/{device.id}", {}, token=user.token)) == BAD
    assert await user.stored_rows() == before


# Revoking


async def test_revoking_a_device_ends_its_sessions_refresh_tokens_and_trust(user: Owner, clock: FakeClock) -> None:
    current, lost = await user.add(), await user.add_trusted()
    await user.use(current)
    sessions = [await user.start_session(lost) for _ in range(2)]
    other_session = await sign_in(user.ports, user.account)
    answer = await user.revoke(lost)
    assert (answer.status, list(answer.json)) == (200, ["message"])
    for session in sessions:
        assert refused(await user.api.get("/api/user", token=session.access_token)) == UNAUTHORIZED
        assert refused(await user.api.post("/api/auth/refresh", {"refresh_token": session.refresh_token})) == UNAUTHORIZED
    for session in (user.session, other_session):
        assert await user.accepts(session)
    async with user.ports.storage.autocommit() as count:
        attempt = await count.attempt_limits.count_password_attempt(
            user.account.email, KnownBy(digest("trust")), AttemptLimit(10, MINUTE), clock.now()
        )
    assert attempt.subject == digest(user.account.email)
    assert [summary["id"] for summary in await user.list_devices()] == [str(current.id)]


async def test_a_revoked_device_cannot_be_read_or_renamed(user: Owner) -> None:
    device = await user.add()
    await user.revoke(device)
    before = await user.stored_rows()
    assert refused(await user.get(device)) == MISSING
    assert refused(await user.rename(device)) == MISSING
    assert await user.stored_rows() == before


async def test_revoking_a_revoked_device_succeeds_and_changes_nothing(user: Owner, clock: FakeClock) -> None:
    device = await user.add_trusted()
    first = await user.revoke(device)
    before = await user.stored_rows()
    clock.advance(MINUTE)
    second_answer = await user.revoke(device)
    assert (second_answer.status, second_answer.json) == (200, first.json)
    assert await user.stored_rows() == before


async def test_the_current_device_cannot_be_revoked(user: Owner) -> None:
    device = await user.add_trusted()
    await user.use(device)
    before = await user.stored_rows()
    answer = await user.revoke(device)
    assert refused(answer) == BAD
    assert "Sign out" in answer.json["error"]
    assert await user.stored_rows() == before
    assert await user.accepts(user.session)
