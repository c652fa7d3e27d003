"""The platform's sign-in policy: its start, its emails, and its changes."""

import json
import re
from datetime import timedelta
from typing import Any

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.kernel.display import format_day
from core.kernel.values import new_id, rfc3339
from core.tenancy import platform_sign_in_policy
from entrypoints.http.edge.client_address import NO_ADDRESS
from ports import Ports
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.support.browser import FakeBrowser, main_of
from tests.support.builders import EMAIL, PASSWORD, Answer, Api, add_account, deliver, run_concurrently, run_sql, sign_in
from tests.support.openapi import operations

DAY = timedelta(days=1)
PATH = "/api/platform/sign-in-policy"
LIST = "/api/platform/organizations"


@pytest.fixture
async def owner(ports: Ports) -> Account:
    """A platform owner with a password and without a second factor. No owner has signed in yet."""
    return await add_account(ports, is_platform_owner=True)


async def sign_in_by_password(api: Api) -> str:
    answer = await api.login(EMAIL, PASSWORD)
    assert answer.status == 200, answer.text
    token: str = answer.json["access_token"]
    return token


async def test_the_first_sign_in_of_an_owner_starts_the_grace_period(api: Api, owner: Account, clock: FakeClock) -> None:
    started = clock.now()
    token = await sign_in_by_password(api)
    policy = (await api.get(PATH, token=token)).json
    assert policy["second_factor"] == ["everyone"]
    assert policy["due_at"]["second_factor"] == rfc3339(started + 7 * DAY)
    assert policy["in_force"]["second_factor"] is None
    clock.advance(6 * DAY)
    token = await sign_in_by_password(api)
    assert (await api.get(LIST, token=token)).status == 200
    clock.advance(DAY)
    token = await sign_in_by_password(api)
    refused = await api.get(LIST, token=token)
    assert (refused.status, refused.json["error_code"]) == (403, "ENROLMENT_REQUIRED")
    assert refused.json["enrolment_url"].endswith("/app/enroll")
    assert (await api.get("/api/user", token=token)).status == 200


async def test_an_upgrade_starts_the_grace_period_if_an_owner_has_signed_in(ports: Ports, owner: Account, clock: FakeClock) -> None:
    async def due() -> Any:
        async with ports.storage.reading() as read:
            policy = await read.sign_in_policies.find(None)
        return None if policy is None else [*policy.rules.due_at.values()]

    await platform_sign_in_policy.ensure_after_upgrade(ports)
    assert await due() is None
    await sign_in(ports, owner)
    await run_concurrently(5, lambda _: platform_sign_in_policy.ensure_after_upgrade(ports))
    assert await due() == [clock.now() + 7 * DAY]
    clock.advance(DAY)
    await platform_sign_in_policy.ensure_after_upgrade(ports)
    assert await due() == [clock.now() + 6 * DAY]


async def test_owners_without_a_second_factor_get_an_email_on_day_0_and_on_day_5(
    api: Api, ports: Ports, pool: Pool, owner: Account, clock: FakeClock, sent: FakeMailTransport
) -> None:
    other = await add_account(ports, "other@platform.example", is_platform_owner=True)
    await run_sql(pool, "update users set mfa_enabled_at = now() where id = %s", other.id)
    await sign_in_by_password(api)
    await deliver(ports)
    sent.emails.clear()

    async def remind() -> list[tuple[str, str]]:
        holder = new_id()
        await run_concurrently(5, lambda _: platform_sign_in_policy.remind(ports, holder))
        await deliver(ports)
        got = [(str(message.to), message.subject) for message in sent.emails]
        sent.emails.clear()
        return got

    email = (str(owner.email), "Set up a second factor - Gatehouse")
    assert await remind() == [email]
    clock.advance(4 * DAY)
    assert await remind() == []
    clock.advance(DAY)
    assert await remind() == [email]
    assert await remind() == []
    clock.advance(3 * DAY)
    assert await remind() == []


async def test_the_overview_names_the_day_and_the_owners_who_lack_a_factor(
    browser: FakeBrowser, ports: Ports, owner: Account, clock: FakeClock
) -> None:
    await add_account(ports, "other@platform.example", is_platform_owner=True)
    await browser.sign_in(owner.email)
    text = (await browser.open("/app/platform")).text
    day = format_day(clock.now() + 7 * DAY)
    assert f"Set up a second factor by {day}." in text
    assert f"1 other platform owner has no second factor, and must set one up by {day}." in text
    assert 'href="/app/enroll"' in text


async def test_a_preview_names_the_owners_who_lack_a_factor_or_act_from_elsewhere(
    browser: FakeBrowser, api: Api, ports: Ports, pool: Pool, owner: Account
) -> None:
    other = await add_account(ports, "other@platform.example", is_platform_owner=True)
    gone = await add_account(ports, "gone@platform.example", is_platform_owner=True)
    await run_sql(pool, "update users set deactivated_at = now() where id = %s", gone.id)
    await run_sql(pool, "update users set mfa_enabled_at = now() where id = %s", other.id)
    token = await sign_in_by_password(api)
    rules = {"second_factor": ["everyone"], "grace_days": 7}
    seen = (await api.post(f"{PATH}/preview", rules, token=token)).json
    counts = {"concerned": 2, "meets": 1, "stopped_now": 0, "stopped_later": 1, "is_exact": True}
    assert (seen["owners"], [person["email"] for person in seen["people"]]) == (counts, [owner.email])
    assert seen["due_at"]["second_factor"] is not None
    outside = (await api.post(f"{PATH}/preview", {**rules, "admin_networks": ["192.0.2.0/24"]}, token=token)).json
    assert [(person["email"], person["missing"]) for person in outside["people"]] == [(owner.email, "admin_networks")]
    off = await api.post(f"{PATH}/preview", {"second_factor": []}, token=token)
    assert (off.status, off.json["error"].partition(":")[0]) == (400, "second_factor")
    before = await run_sql(pool, "select rules, version from sign_in_policies")
    page = "/app/platform/sign-in-policy"
    await browser.sign_in(owner.email)
    shown = await browser.submit(f"{page}/preview", page, second_factor="everyone", phishing_resistant="everyone", grace_days="0")
    assert "2 concerned. 0 can go on as before." in shown.text.replace("\n", " ")
    assert [f'href="/app/platform/people/{account.id}"' in shown.text for account in (owner, other, gone)] == [True, True, False]
    assert await run_sql(pool, "select rules, version from sign_in_policies") == before, "nothing is saved"


async def test_the_texts_of_the_policy_name_platform_owners_and_no_admins(
    browser: FakeBrowser, api: Api, pool: Pool, owner: Account
) -> None:
    """The pages for all its rules, a refusal by its networks, and the API description."""
    token = await sign_in_by_password(api)
    version = (await api.get(PATH, token=token)).json["version"]
    rules = {"second_factor": ["everyone"], "phishing_resistant": ["admins"], "grace_days": 7, "session_idle_minutes": 30}
    saved = await api.call("PUT", PATH, {**rules, "admin_networks": ["203.0.113.0/24", NO_ADDRESS], "version": version}, token=token)
    assert saved.status == 200, saved.text
    page = "/app/platform/sign-in-policy"
    await browser.sign_in(owner.email)
    shown = await browser.open(page)
    assert 'value="everyone" selected>For all platform owners' in shown.text
    fields = {"second_factor": "everyone", "phishing_resistant": "everyone", "admin_networks": "192.0.2.0/24"}
    previewed = await browser.submit(f"{page}/preview", page, **fields)
    conflict = await browser.submit(page, page, **fields, version="0")
    security = await browser.open("/app/account/security")
    assert "for platform owners" in main_of(security)
    outside = """update sign_in_policies set version = version + 1, rules = rules || '{"admin_networks": ["192.0.2.0/24"]}'"""
    await run_sql(pool, outside)
    refused = await browser.open("/app/platform")
    assert [each.status for each in (shown, previewed, conflict, refused)] == [200, 200, 409, 403]
    texts = [re.sub("<[^>]+>|admin_networks", " ", main_of(each)) for each in (shown, previewed, conflict, security, refused)]
    texts += [json.dumps(operation).replace("admin_networks", "") for _, path, operation in operations() if path.startswith(PATH)]
    assert [text for text in texts if re.search(r"\badmins?\b", text)] == []


async def test_owners_change_the_policy_and_cannot_turn_the_second_factor_off(api: Api, pool: Pool, owner: Account) -> None:
    token = await sign_in_by_password(api)
    version = (await api.get(PATH, token=token)).json["version"]

    async def save(version: int = version, **rules: Any) -> Answer:
        return await api.call("PUT", PATH, {"second_factor": ["everyone"], "grace_days": 7, "version": version, **rules}, token=token)

    off = await save(second_factor=["admins"])
    assert (off.status, off.json["error"].partition(":")[0]) == (400, "second_factor")
    lost = await save(phishing_resistant=["everyone"], grace_days=0)
    assert (lost.status, "could not sign in yourself" in lost.json["error"]) == (400, True)
    outside = await save(admin_networks=["192.0.2.0/24"])
    assert (outside.status, "outside these networks" in outside.json["error"]) == (400, True)
    saved = await save(session_idle_minutes=30)
    assert saved.status == 200, saved.text
    assert saved.json["in_force"]["session_idle_minutes"] == 30
    assert saved.json["due_at"] == (await api.get(PATH, token=token)).json["due_at"]
    assert (await save()).status == 409
    [(details,)] = await run_sql(pool, "select details from audit_log where org_id is null and action = 'platform.sign_in_policy.updated'")
    assert details["changes"]["session_idle_minutes"] == {"old": None, "new": 30}
