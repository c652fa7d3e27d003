"""Paths of the account pages, and functions that read a page."""

import re
from html import unescape
from uuid import UUID

from adapters.postgres.engine.pool import Pool
from tests.support.browser import ACCOUNT, FakeBrowser, leads_to, main_of
from tests.support.builders import Answer, run_sql

EMAIL_PAGE, PASSWORD_PAGE, TWO_FACTOR = f"{ACCOUNT}/email", f"{ACCOUNT}/password", f"{ACCOUNT}/two-factor"
DEVICES, SESSIONS, EXPORT = f"{ACCOUNT}/devices", f"{ACCOUNT}/sessions", f"{ACCOUNT}/export"
ORGANIZATIONS, SECURITY = f"{ACCOUNT}/organizations", f"{ACCOUNT}/security"
SIGN_INS, ALL_SESSIONS = f"{SECURITY}/sign-ins", f"{SECURITY}?full=sessions"


def page_text(answer: Answer) -> str:
    """Return the text of a page without its markup."""
    return without_markup(main_of(answer))


def section_of(answer: Answer, name: str) -> str:
    """Return a section of the security page with its markup."""
    return main_of(answer).partition(f'<section id="{name}"')[2].partition("</section>")[0]


def without_markup(text: str) -> str:
    """Return the words in a part of a page."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", text)).split())


async def next_page_text(browser: FakeBrowser, answer: Answer) -> str:
    """Return the text of the page that a form redirects to."""
    return page_text(await browser.open(leads_to(answer)))


async def device_of(pool: Pool, name: str) -> UUID:
    [(device_id,)] = await run_sql(pool, "select id from devices where name = %s", name)
    assert isinstance(device_id, UUID)
    return device_id
