"""The page where a user approves a device.

Covers security V-2, V-3, G-1, G-2 and N-8, and RFC 8628 sections 3.3 and 5.4.
"""

import re
from datetime import timedelta
from urllib.parse import quote, urlencode

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.kernel.display import format_utc
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.federation.api.cli import CURL, VERIFY, DeviceClient
from tests.proof.access.belongings import begin_in_browser
from tests.support.browser import AGENT, FORM, HTML, SIGN_IN, FakeBrowser, form_token, is_step, leads_to
from tests.support.builders import EMAIL, Answer, add_account, add_platform_owner, impersonate, run_sql
from tests.support.direct import ask
from tests.support.mfa import Authenticator


@pytest.fixture
def browser(app: QuartTrio) -> FakeBrowser:
    """A browser without a session."""
    return FakeBrowser(app)


@pytest.fixture
async def signed_in_browser(app: QuartTrio, ports: Ports, user: Account) -> FakeBrowser:
    browser = FakeBrowser(app)
    browser.cookies["gatehouse-session"] = await begin_in_browser(ports, user)
    return browser


async def send_form(browser: FakeBrowser, user_code: str, action: str | None = None) -> Answer:
    return await browser.submit(VERIFY, VERIFY, user_code=user_code, **({} if action is None else {"action": action}))


async def test_a_browser_without_a_session_signs_in_and_returns_with_the_code(
    browser: FakeBrowser, cli: DeviceClient, user: Account
) -> None:
    user_code = await cli.begin()
    path = f"{VERIFY}?user_code={user_code}"
    assert leads_to(await browser.open(path)) == f"{SIGN_IN}?next={quote(path, safe='')}"
    assert leads_to(await browser.open(VERIFY)) == f"{SIGN_IN}?next={quote(VERIFY, safe='')}"
    assert leads_to(await browser.sign_in(after=path)) == path
    page = await browser.open(path)
    assert page.status == 200
    assert f'value="{user_code}"' in page.text
    assert EMAIL in page.text
    assert await cli.status() == ["pending"], "a link approves nothing"


async def test_the_second_factor_is_required_first(browser: FakeBrowser, cli: DeviceClient, factor: Authenticator) -> None:
    path = f"{VERIFY}?user_code={await cli.begin()}"
    code = leads_to(await browser.sign_in(after=path))
    assert is_step(code, "code")
    assert leads_to(await browser.open(path)).startswith(SIGN_IN), "a session without the second factor is not enough"
    assert await browser.ends_at(await browser.submit(code, code, code=factor.code())) == path
    assert (await browser.open(path)).status == 200


async def test_the_page_shows_the_request_before_any_decision(signed_in_browser: FakeBrowser, cli: DeviceClient, clock: FakeClock) -> None:
    requested_at, user_code = clock.now(), await cli.begin()
    clock.advance(timedelta(minutes=2))
    page = await send_form(signed_in_browser, user_code.lower())
    assert page.status == 200
    words = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", page.text))
    for part in ("Shop by Acme", EMAIL, user_code, "0.0.0.0", CURL, "2 minutes ago", "Only approve this if you started it"):  # noqa: S104
        assert part in words
    assert f'title="{format_utc(requested_at)}">' in page.text
    assert "form-action 'self'" in page.headers["Content-Security-Policy"]
    assert page.headers["Cache-Control"] == "no-store"
    assert await cli.status() == ["pending"]
    approved = await signed_in_browser.send(VERIFY, form_token=form_token(page), user_code=user_code, action="approve")
    assert approved.status == 200
    assert "Your device is signed in" in approved.text
    assert await cli.status() == ["approved"]


async def test_a_user_denies_the_device(signed_in_browser: FakeBrowser, cli: DeviceClient) -> None:
    page = await send_form(signed_in_browser, await cli.begin(), "deny")
    assert page.status == 200
    assert "Device denied" in page.text
    assert await cli.status() == ["denied"]


async def test_names_and_user_agents_are_escaped(signed_in_browser: FakeBrowser, cli: DeviceClient, pool: Pool) -> None:
    evil = "<script>alert(1)</script>"
    user_code = await cli.begin()
    await run_sql(pool, "update services set name = %s", evil)
    await run_sql(pool, "update organizations set name = %s", evil)
    await run_sql(pool, "update device_codes set agent = %s, address = null", evil)
    pages = [
        await send_form(signed_in_browser, user_code),
        await send_form(signed_in_browser, user_code, "approve"),
        await send_form(signed_in_browser, evil),
    ]
    for page in (*pages, await signed_in_browser.open(f"{VERIFY}?{urlencode({'user_code': evil})}")):
        assert evil not in page.text
        assert "&lt;script&gt;" in page.text


async def test_a_device_without_a_user_agent_is_shown(signed_in_browser: FakeBrowser, cli: DeviceClient, pool: Pool) -> None:
    user_code = await cli.begin()
    await run_sql(pool, "update device_codes set agent = null, address = null")
    page = await send_form(signed_in_browser, user_code)
    assert "<dt>Program</dt><dd>unknown" in page.text
    assert "<dt>IP address</dt><dd>unknown" in page.text


REFUSED = {
    "a wrong code": ("BCDF-GHJK", None, 400, "No device is waiting for this code."),
    "no code": ("", "approve", 400, "No device is waiting for this code."),
    "a text far too long": ("B" * 5000, "approve", 400, "No device is waiting for this code."),
    "an unprintable text": ("\x00\u202e", "deny", 400, "No device is waiting for this code."),
}


@pytest.mark.parametrize(("typed", "action", "status", "sentence"), REFUSED.values(), ids=REFUSED)
async def test_the_form_is_shown_again_after_an_error(
    signed_in_browser: FakeBrowser, cli: DeviceClient, typed: str, action: str | None, status: int, sentence: str
) -> None:
    await cli.begin()
    page = await send_form(signed_in_browser, typed, action)
    assert page.status == status
    assert sentence in page.text
    assert "<title>Error: Connect a device" in page.text
    assert len(page.text) < 50_000
    assert await cli.status() == ["pending"]


async def test_an_unknown_action_does_nothing(signed_in_browser: FakeBrowser, cli: DeviceClient) -> None:
    page = await send_form(signed_in_browser, await cli.begin(), "destroy")
    assert page.status == 400
    assert "Choose whether to approve or deny the device." in page.text
    assert await cli.status() == ["pending"]


async def test_an_expired_code_is_reported(signed_in_browser: FakeBrowser, cli: DeviceClient, clock: FakeClock) -> None:
    user_code = await cli.begin()
    clock.advance(timedelta(minutes=5))
    for action in (None, "approve"):
        page = await send_form(signed_in_browser, user_code, action)
        assert page.status == 400
        assert "The code has expired." in page.text


@pytest.mark.slow
async def test_showing_a_request_counts_as_an_attempt(signed_in_browser: FakeBrowser, cli: DeviceClient) -> None:
    for _ in range(10):
        assert (await send_form(signed_in_browser, "BCDF-GHJK")).status == 400
    page = await send_form(signed_in_browser, await cli.begin())
    assert page.status == 429
    assert "Too many codes." in page.text
    assert page.headers["Retry-After"] == "900"


async def test_devices_of_a_suspended_organization_are_not_shown(signed_in_browser: FakeBrowser, cli: DeviceClient, pool: Pool) -> None:
    user_code = await cli.begin()
    await run_sql(pool, "update organizations set status = 'suspended'")
    page = await send_form(signed_in_browser, user_code)
    assert page.status == 403
    assert "Shop" not in page.text


async def test_a_user_without_access_can_continue_with_another_account(
    signed_in_browser: FakeBrowser, cli: DeviceClient, pool: Pool
) -> None:
    user_code = await cli.begin()
    await run_sql(pool, "update services set access_policy = 'members'")
    page = await send_form(signed_in_browser, user_code, action="approve")
    assert (page.status, "Sign in with another account" in page.text) == (403, True)
    assert f"user_code={user_code}" in page.text, "the sign-in leads back to the code"
    assert await cli.status() == ["pending"]


# Form tokens


async def test_a_form_without_its_token_does_nothing(signed_in_browser: FakeBrowser, cli: DeviceClient) -> None:
    user_code = await cli.begin()
    for token in ("", "0" * 64):
        answer = await signed_in_browser.send(VERIFY, form_token=token, user_code=user_code, action="approve")
        assert answer.status == 403
        assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert await cli.status() == ["pending"]


async def test_a_form_of_another_site_does_nothing(signed_in_browser: FakeBrowser, cli: DeviceClient, app: QuartTrio) -> None:
    user_code = await cli.begin()
    fields = {"form_token": form_token(await signed_in_browser.open(VERIFY)), "user_code": user_code, "action": "approve"}
    assert (await signed_in_browser.send(VERIFY, (b"sec-fetch-site", b"cross-site"), **fields)).status == 403
    other_browser = FakeBrowser(app, "https://evil.example")
    other_browser.cookies = signed_in_browser.cookies
    assert (await other_browser.send(VERIFY, **fields)).status == 403
    assert await cli.status() == ["pending"]


async def test_the_token_of_another_session_does_nothing(
    signed_in_browser: FakeBrowser, cli: DeviceClient, app: QuartTrio, ports: Ports
) -> None:
    user_code = await cli.begin()
    eve = FakeBrowser(app)
    eve.cookies["gatehouse-session"] = await begin_in_browser(ports, await add_account(ports, "eve@example.com"))
    token = form_token(await eve.open(VERIFY))
    assert (await signed_in_browser.send(VERIFY, form_token=token, user_code=user_code, action="approve")).status == 403
    assert await cli.status() == ["pending"]


async def test_without_a_session_the_form_is_refused(browser: FakeBrowser, cli: DeviceClient) -> None:
    answer = await browser.send(VERIFY, user_code=await cli.begin(), action="approve")
    assert answer.status == 401
    assert "Sign in first" in answer.text
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert await cli.status() == ["pending"]


async def test_the_session_cookie_does_not_authorize_json(app: QuartTrio, signed_in_browser: FakeBrowser, cli: DeviceClient) -> None:
    """Another site cannot send JSON without a CORS preflight, and our page sends none."""
    user_code = await cli.begin()
    cookie = (b"cookie", f"gatehouse-session={signed_in_browser.cookies['gatehouse-session']}".encode())
    body = f'{{"user_code": "{user_code}", "action": "approve"}}'.encode()
    answer = await ask(app, "POST", VERIFY, headers=[cookie, (b"content-type", b"application/json")], body=body)
    assert answer.status == 415
    assert answer.headers["Content-Type"] == "application/json"
    assert await cli.status() == ["pending"]


async def test_an_access_token_takes_precedence_over_the_cookie(
    app: QuartTrio, signed_in_browser: FakeBrowser, cli: DeviceClient, ports: Ports, user: Account
) -> None:
    user_code = await cli.begin()
    support = await impersonate(ports, await add_platform_owner(ports), user)
    token = form_token(await signed_in_browser.open(VERIFY))
    bearer = (b"authorization", f"Bearer {support}".encode())
    assert (await signed_in_browser.send(VERIFY, bearer, form_token=token, user_code=user_code, action="approve")).status == 403
    assert await cli.status() == ["pending"]


async def test_api_clients_get_json(app: QuartTrio) -> None:
    answer = await ask(app, "POST", VERIFY, headers=[FORM, AGENT], body=b"")
    assert (answer.status, answer.code) == (401, "UNAUTHORIZED")
    for path in (f"{VERIFY}/more", "/auth/device/nothing"):
        answer = await ask(app, "GET", path, headers=[HTML])
        assert (answer.status, answer.code) == (404, "NOT_FOUND")
    answer = await ask(app, "GET", "/auth/device/code", headers=[HTML])
    assert answer.status == 405
    assert answer.headers["Allow"] == "OPTIONS, POST"
    assert answer.code == "METHOD_NOT_ALLOWED"
