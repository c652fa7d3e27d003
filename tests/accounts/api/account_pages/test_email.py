"""The page of the email address (security A-9)."""

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from ports import Ports
from tests.accounts.api.account_pages.paths import EMAIL_PAGE, next_page_text, page_text
from tests.fakes.outside import FakeMailTransport
from tests.support.browser import ACCOUNT, FakeBrowser
from tests.support.builders import EMAIL, add_account, deliver, link, run_sql, sign_in

MOVED = "moved@example.com"
MAILS = "select kind, address from mails order by kind, created_at"


async def test_the_present_address_changes_nothing(browser: FakeBrowser, pool: Pool) -> None:
    page = await next_page_text(browser, await browser.submit(EMAIL_PAGE, EMAIL_PAGE, email=EMAIL))
    assert "This is already your email address. Nothing was changed." in page
    assert "Check your inbox" not in page
    assert await run_sql(pool, "select 1 from mails") == []


async def test_a_pending_change_is_shown_resent_and_canceled(browser: FakeBrowser, ports: Ports, user: Account, pool: Pool) -> None:
    await sign_in(ports, user)
    page = await next_page_text(browser, await browser.submit(EMAIL_PAGE, EMAIL_PAGE, email=" Moved@Example.com "))
    for part in ("Check your inbox at the new address", f"Your email address is {EMAIL}", f"Your address becomes {MOVED}"):
        assert part in page
    assert f"Waiting for you to confirm {MOVED}." in page_text(await browser.open(ACCOUNT))
    requested = [("confirm_email_change", MOVED), ("email_change_requested", EMAIL)]
    assert await run_sql(pool, MAILS) == requested
    assert await run_sql(pool, "select count(*) from sessions where ended_at is null") == [(2,)]
    answer = await browser.submit(f"{EMAIL_PAGE}/verification", EMAIL_PAGE)
    assert "Verification email sent." in await next_page_text(browser, answer)
    assert await run_sql(pool, MAILS) == [requested[0], *requested]
    page = await next_page_text(browser, await browser.submit(f"{EMAIL_PAGE}/cancel", EMAIL_PAGE))
    assert "Change canceled." in page
    assert MOVED not in page


@pytest.mark.parametrize("is_own", [True, False])
async def test_the_page_of_a_proved_change_warns_recipients_who_did_not_request_it(
    app: QuartTrio, browser: FakeBrowser, ports: Ports, sent: FakeMailTransport, *, is_own: bool
) -> None:
    await browser.submit(EMAIL_PAGE, EMAIL_PAGE, email=MOVED)
    await deliver(ports)
    [proof] = [link(email) for email in sent.emails if email.to == MOVED]
    await add_account(ports, "grace@example.com")
    recipient = FakeBrowser(app)
    await recipient.sign_in("grace@example.com")  # a session of another account is not the requester's
    page = await (browser if is_own else recipient).open(f"/auth/verify-email?token={proof}")
    assert page.status == 200
    text = page_text(page)
    assert text.startswith("Email address changed " + MOVED)
    assert ("Didn't request this?" in text, text.endswith("Continue")) == (not is_own, is_own)
    for offer in ("Didn't create this account?", "/app/forgot-password", 'type="password"'):
        assert offer not in page.text


async def test_an_unverified_address_gets_another_verification_email(browser: FakeBrowser, pool: Pool) -> None:
    await run_sql(pool, "update users set email_verified_at = null")
    assert "It isn't verified yet." in page_text(await browser.open(EMAIL_PAGE)).replace("&#39;", "'")
    answer = await browser.submit(f"{EMAIL_PAGE}/verification", EMAIL_PAGE)
    assert "Verification email sent." in await next_page_text(browser, answer)
    assert await run_sql(pool, MAILS) == [("verify_email", EMAIL)]


@pytest.mark.parametrize("email", ["", "x", "taken@example.com"])
async def test_a_refused_address_is_explained(browser: FakeBrowser, ports: Ports, pool: Pool, email: str) -> None:
    await add_account(ports, "taken@example.com")
    answer = await browser.submit(EMAIL_PAGE, EMAIL_PAGE, email=email)
    assert answer.status == 400
    assert 'aria-invalid="true" aria-describedby="problem' in answer.text
    assert f'value="{email}"' in answer.text
    assert await run_sql(pool, "select count(*) from mails") == [(0,)]
