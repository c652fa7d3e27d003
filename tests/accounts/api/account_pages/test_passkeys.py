"""Passkeys and security keys on the account pages, with a software authenticator in place of the script."""

import json
import re
from html import unescape
from typing import Any

import pytest

from adapters.postgres.engine.pool import Pool
from tests.accounts.api.account_pages.paths import SECURITY, page_text, section_of, without_markup
from tests.support.browser import ACCOUNT, FakeBrowser, leads_to
from tests.support.builders import BASE_URL, Answer, run_sql
from tests.support.passkeys.authenticator import SoftAuthenticator, b64, unb64

KEYS = f"{ACCOUNT}/passkeys"
NEW, SECOND = f"{KEYS}/new", f"{KEYS}/second-factor"


@pytest.fixture
def authenticator() -> SoftAuthenticator:
    return SoftAuthenticator(origin=BASE_URL)


def data_of(answer: Answer, name: str) -> Any:
    """Return the JSON in a `data-` attribute of the page."""
    match = re.search(rf'data-{name}="([^"]*)"', answer.text)
    assert match, answer.text
    return json.loads(unescape(match[1]))


async def add(browser: FakeBrowser, authenticator: SoftAuthenticator, kind: str = "passkey", **fields: str) -> Answer:
    page = await browser.open(f"{NEW}?kind={kind}")
    credential = authenticator.create(data_of(page, "options"))
    return await browser.submit(KEYS, page=f"{NEW}?kind={kind}", credential=json.dumps(credential), kind=kind, **fields)


async def key_path(browser: FakeBrowser, name: str = "Bitwarden") -> str:
    """Return the path of the passkey or security key with this name."""
    match = re.search(rf'href="({KEYS}/[0-9a-f-]{{36}})">Manage<span class="unseen"> {name}<', (await browser.open(SECURITY)).text)
    assert match
    return match[1]


async def test_a_passkey_is_listed_with_its_product_and_hostile_names_are_text(
    browser: FakeBrowser, authenticator: SoftAuthenticator
) -> None:
    assert leads_to(await add(browser, authenticator)) == SECURITY
    other = SoftAuthenticator(origin=BASE_URL)
    assert leads_to(await add(browser, other, name="<script>alert(1)</script>")) == SECURITY
    section = section_of(await browser.open(SECURITY), "passkeys")
    words = without_markup(section)
    assert "Bitwarden Synced Added just now · Last used never" in words
    assert "<script>alert(1)</script> Bitwarden · Synced" in words
    assert "<script" not in section


async def test_a_form_without_a_passkey_or_with_nonsense_adds_none(browser: FakeBrowser, authenticator: SoftAuthenticator) -> None:
    for credential, words in (("", "Turn on JavaScript"), ("{}", "could not be added"), ("[" * 9000, "could not be added")):
        answer = await browser.submit(KEYS, page=NEW, credential=credential, name="My laptop")
        assert (answer.status, words in answer.text, 'value="My laptop"' in answer.text) == (400, True, True)
    taken = await add(browser, authenticator, name="x" * 101)
    assert (taken.status, 'href="#name"' in taken.text) == (400, True)
    assert "You have no passkeys yet." in page_text(await browser.open(SECURITY))


async def test_a_passkey_of_another_host_is_marked_and_not_signaled(
    browser: FakeBrowser, authenticator: SoftAuthenticator, pool: Pool
) -> None:
    await add(browser, authenticator)
    signal = data_of(await browser.open(SECURITY), "signals")
    assert signal["signalAllAcceptedCredentials"]["allAcceptedCredentialIds"] == [b64(authenticator.credentials[-1].id)]
    await run_sql(pool, "update passkeys set rp_id = 'old.example'")
    page = await browser.open(SECURITY)
    assert "Works at old.example only" in page_text(page)
    assert data_of(page, "signals")["signalAllAcceptedCredentials"]["allAcceptedCredentialIds"] == []
    assert "old.example only" in page_text(await browser.open(await key_path(browser)))


async def test_password_managers_keep_what_an_undo_can_restore(browser: FakeBrowser, authenticator: SoftAuthenticator) -> None:
    other = SoftAuthenticator(origin=BASE_URL)
    await add(browser, authenticator)
    await add(browser, other, name="Second")
    [first], [second] = authenticator.credentials, other.credentials
    path = await key_path(browser, "Second")
    await browser.submit(f"{path}/delete", page=f"{path}/delete")
    ids = [data_of(await browser.open(SECURITY), "signals")["signalAllAcceptedCredentials"]["allAcceptedCredentialIds"] for _ in range(2)]
    assert [{unb64(each) for each in listed} for listed in ids] == [{first.id}, {first.id, second.id}]


async def test_the_last_key_of_two_factor_authentication_says_what_ends(browser: FakeBrowser, authenticator: SoftAuthenticator) -> None:
    authenticator.verifies = False
    answer = await add(browser, authenticator, "security_key")
    assert (answer.status, "backup codes" in page_text(answer).lower()) == (200, True)
    assert "on since" in page_text(await browser.open(SECURITY))
    path = await key_path(browser)
    words = page_text(await browser.open(f"{path}/delete"))
    assert "two-factor authentication is turned off" in words
    assert "You can still sign in with your password" in words
    await browser.submit(f"{path}/delete", page=f"{path}/delete")
    assert "no longer ask for a passkey or security key" in page_text(await browser.open(SECURITY))


async def test_passkeys_become_a_second_factor_and_stop_being_one(browser: FakeBrowser, authenticator: SoftAuthenticator) -> None:
    await add(browser, authenticator)
    answer = await browser.submit(SECOND, page=SECURITY, enabled="yes")
    assert (answer.status, "backup codes" in page_text(answer).lower()) == (200, True)
    assert "After your password, sign-ins ask for a passkey or security key, or for a backup code." in page_text(
        await browser.open(SECURITY)
    )
    assert "a password alone signs in" in page_text(await browser.open(SECOND))
    assert leads_to(await browser.submit(SECOND, page=SECOND, enabled="no")) == SECURITY
    assert "off You sign in with a password alone." in page_text(await browser.open(SECURITY))


async def test_the_password_is_removed_if_a_passkey_signs_in(browser: FakeBrowser, authenticator: SoftAuthenticator) -> None:
    remove = f"{ACCOUNT}/password/remove"
    assert remove not in (await browser.open(SECURITY)).text
    refused = await browser.submit(remove, page=remove)
    assert refused.status == 400
    assert "only way to sign in" in page_text(await browser.open(remove))
    await add(browser, authenticator)
    assert remove in (await browser.open(SECURITY)).text
    assert "You can still sign in with a passkey" in page_text(await browser.open(remove))
    assert leads_to(await browser.submit(remove, page=remove)) == SECURITY
    assert "You don't have a password yet." in page_text(await browser.open(SECURITY))
    path = await key_path(browser)
    assert "This is your only way to sign in" in page_text(await browser.open(f"{path}/delete"))
    assert (await browser.submit(f"{path}/delete", page=f"{path}/delete")).status == 400


async def test_an_account_without_a_verified_address_gets_no_options(browser: FakeBrowser, pool: Pool) -> None:
    await run_sql(pool, "update users set email_verified_at = null")
    answer = await browser.open(NEW)
    assert (answer.status, "data-options" in answer.text) == (403, False)
    assert "Verify your email address first." in page_text(answer)
