"""The pages of the second factor (security M-1, M-5, M-6)."""

import base64
import re
from datetime import timedelta
from html import unescape
from urllib.parse import unquote

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from ports import Ports
from tests.accounts.api.account_pages.paths import SECURITY, TWO_FACTOR, next_page_text, page_text
from tests.fakes.outside import FakeClock
from tests.support.browser import HOME, FakeBrowser, form_token, is_step, leads_to
from tests.support.builders import EMAIL, Answer, Api, run_sql
from tests.support.mfa import Authenticator, add_mfa, use_in_sessions


async def start_setup(browser: FakeBrowser, clock: FakeClock) -> tuple[Answer, Authenticator]:
    answer = await browser.submit(f"{TWO_FACTOR}/setup", SECURITY)
    assert answer.status == 200, answer.text
    [secret] = re.findall(r'<code class="secret">([A-Z2-7 ]+)</code>', answer.text)
    return answer, Authenticator(secret.replace(" ", ""), clock)


async def test_the_setup_page_has_a_qr_code_a_link_and_the_secret(browser: FakeBrowser, clock: FakeClock) -> None:
    answer, app = await start_setup(browser, clock)
    [uri] = re.findall(r'href="(otpauth:[^"]+)"', answer.text)
    assert f"secret={app.secret}" in unescape(uri)
    assert EMAIL in unquote(unescape(uri))
    [image] = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', answer.text)
    assert base64.b64decode(image).startswith(b"<svg ")
    assert "img-src 'self' data:;" in answer.headers["Content-Security-Policy"]
    assert 'alt="QR code' in answer.text
    assert answer.headers["Cache-Control"] == "no-store"


async def test_confirming_the_setup_shows_the_backup_codes_once(browser: FakeBrowser, clock: FakeClock, app: QuartTrio, pool: Pool) -> None:
    answer, authenticator = await start_setup(browser, clock)
    wrong = await browser.send(f"{TWO_FACTOR}/confirm", form_token=form_token(answer), code=authenticator.wrong())
    assert wrong.status == 400
    assert f"secret={authenticator.secret}" in wrong.text, "the page shows the setup again"
    assert (await browser.send(f"{TWO_FACTOR}/confirm", form_token=form_token(answer), code="12345")).status == 400
    page = await browser.send(f"{TWO_FACTOR}/confirm", form_token=form_token(answer), code=authenticator.code())
    assert page.status == 200
    codes = re.findall(r"<code>([A-Z0-9]{4}-[A-Z0-9]{4})</code>", page.text)
    assert len({*codes}) == 10
    assert page.headers["Cache-Control"] == "no-store"
    later = await browser.open(SECURITY)
    assert "You have 10 backup codes left." in page_text(later)
    assert not any(code in later.text for code in codes)
    assert authenticator.secret not in later.text
    other = FakeBrowser(app)
    assert is_step(leads_to(await other.sign_in()), "code")
    assert await other.ends_at(await other.show_code(codes[3])) == HOME
    assert "You have 9 backup codes left." in page_text(await other.open(SECURITY))
    assert await browser.is_in()
    assert ("mfa_enabled",) in await run_sql(pool, "select event_type from mfa_events")


async def test_a_setup_expires(browser: FakeBrowser, clock: FakeClock) -> None:
    _, authenticator = await start_setup(browser, clock)
    clock.advance(timedelta(minutes=15))
    await browser.submit("/app/sign-out")
    await browser.sign_in()
    late_answer = await browser.send(
        f"{TWO_FACTOR}/confirm", form_token=form_token(await browser.open(SECURITY)), code=authenticator.code()
    )
    assert late_answer.status == 400
    assert "<h1>Security</h1>" in late_answer.text
    assert authenticator.secret not in late_answer.text


async def test_an_enabled_second_factor_is_neither_replaced_nor_shown(
    browser: FakeBrowser, ports: Ports, user: Account, pool: Pool
) -> None:
    factor = await add_mfa(ports, user)
    await use_in_sessions(pool, user)
    answer = await browser.submit(f"{TWO_FACTOR}/setup", SECURITY)
    assert answer.status == 400
    assert "is already on" in answer.text
    assert factor.secret not in answer.text
    answer = await browser.submit(f"{TWO_FACTOR}/confirm", SECURITY, code=factor.code())
    assert answer.status == 400
    assert factor.secret not in answer.text


async def test_new_backup_codes_replace_the_old_ones(browser: FakeBrowser, ports: Ports, pool: Pool, user: Account, app: QuartTrio) -> None:
    assert (await browser.submit(f"{TWO_FACTOR}/backup-codes", SECURITY)).status == 400
    factor = await add_mfa(ports, user)
    await use_in_sessions(pool, user)
    answer = await browser.submit(f"{TWO_FACTOR}/backup-codes", SECURITY)
    codes = re.findall(r"<code>([A-Z0-9]{4}-[A-Z0-9]{4})</code>", answer.text)
    assert (answer.status, len(codes)) == (200, 10)
    other = FakeBrowser(app)
    await other.sign_in()
    assert (await other.show_code(factor.backup_codes[0])).status == 401
    assert await other.ends_at(await other.show_code(codes[0])) == HOME


async def test_the_second_factor_is_turned_off(browser: FakeBrowser, ports: Ports, pool: Pool, user: Account, app: QuartTrio) -> None:
    await add_mfa(ports, user)
    await use_in_sessions(pool, user)
    page = await browser.open(f"{TWO_FACTOR}/disable")
    assert "your personal access tokens end" in page_text(page)
    answer = await browser.send(f"{TWO_FACTOR}/disable", form_token=form_token(page))
    assert "Two-factor authentication turned off." in await next_page_text(browser, answer)
    assert leads_to(await FakeBrowser(app).sign_in()) == HOME


@pytest.mark.parametrize("edge", [{"rate_limit_factor": 1.0}], indirect=True)
@pytest.mark.slow
async def test_the_second_factor_has_the_rate_limits_of_the_api(browser: FakeBrowser, api: Api, ports: Ports, user: Account) -> None:
    statuses = [(await browser.submit(f"{TWO_FACTOR}/{act}", SECURITY)).status for act in ("setup", "disable", "setup", "disable", "setup")]
    assert 429 not in statuses
    limited = await browser.submit(f"{TWO_FACTOR}/disable", SECURITY)
    assert limited.status == 429
    assert "Too many requests" in limited.text
    assert int(limited.headers["Retry-After"]) > 0
