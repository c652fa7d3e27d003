"""The hosted pages that ask for the email address first, because its domain can lead to a connection (security B-4)."""

import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from adapters.postgres.engine.driver import Connection
from adapters.postgres.engine.pool import Pool
from core.federation.connections.routing import KNOWN_ROUTES_TTL
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.federation.connections.routing.conftest import WAYS, RoutedWorld
from tests.support.browser import FakeBrowser, leads_to
from tests.support.builders import PASSWORD, Answer, add_account, run_sql

SIGN_IN = "/app/sign-in"
PAGE = "/app/account"
ADDRESS = {"step": "address", "next": PAGE}
OWN_WAYS = {"step": "password", "next": PAGE}


def is_address_first(page: Answer) -> bool:
    return 'value="address">Continue<' in page.text


def connection_of(answer: Answer) -> tuple[str, dict[str, list[str]]] | None:
    """Return the path and query in a redirect to a connection, or None for the form with the password."""
    if answer.status == 200:
        assert 'for="password"' in answer.text
        return None
    parts = urlsplit(leads_to(answer))
    return parts.path, parse_qs(parts.query)


async def test_the_page_asks_for_the_address_first_only_where_a_domain_leads_to_a_connection(
    browser: FakeBrowser, world: RoutedWorld, pool: Pool, clock: FakeClock
) -> None:
    page = await browser.open(SIGN_IN)
    assert is_address_first(page)
    assert 'autocomplete="current-password"' in page.text, "password managers find the field"
    changes = {
        "update connections set state = 'inactive' where state = 'active' and org_id is not null": False,
        "update connections set state = 'active' where state = 'inactive'": True,
        "update organizations set status = 'suspended'": False,
        "update organizations set status = 'active'": True,
        "update domains set verified_at = null": False,
    }
    for change, asks in changes.items():
        await run_sql(pool, change)
        clock.advance(KNOWN_ROUTES_TTL)
        assert is_address_first(await browser.open(SIGN_IN)) is asks, change


async def test_the_first_field_leads_each_address_on_its_way(browser: FakeBrowser, world: RoutedWorld) -> None:
    page = await browser.open(f"{SIGN_IN}?next={PAGE}")
    for email, slug in WAYS.items():
        answer = await browser.fill(page, email=email, password="", **ADDRESS)
        query = {"next": [PAGE], "login_hint": [email.strip().lower()]}
        expected = None if slug in (None, "codehost") else (world.start_of(slug or ""), query)
        assert connection_of(answer) == expected, email
        assert connection_of(await browser.fill(page, email=email, password="", **OWN_WAYS)) is None, "the user wants another way"


async def test_an_invalid_address_stays_at_the_first_field(browser: FakeBrowser, world: RoutedWorld) -> None:
    for email in ("", "x@@y"):
        answer = await browser.fill(await browser.open(SIGN_IN), email=email, password="", **ADDRESS)
        assert (answer.status, is_address_first(answer), 'aria-invalid="true"' in answer.text) == (400, True, True)


async def test_known_and_unknown_addresses_get_the_same_answer_by_the_same_work(
    browser: FakeBrowser, world: RoutedWorld, ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements: list[str] = []
    make_statement = Connection._statement

    def record(self: Connection, text: Any, *others: Any) -> Any:
        statements.append(text)
        return make_statement(self, text, *others)

    monkeypatch.setattr(Connection, "_statement", record)
    page = await browser.open(SIGN_IN)
    for domain in ("acme.example", "example.com"):
        await add_account(ports, f"user@{domain}")
        seen = []
        for name in ("user", "none"):
            statements.clear()
            answer = await browser.fill(page, email=f"{name}@{domain}", password="", **ADDRESS)
            body = re.sub(r"[\w-]{22,}", "", answer.text.replace(f"{name}@", "ada@"))  # without nonce and challenge
            seen.append((answer.status, body, str(answer.headers.get("Location")).replace(name, "ada"), list(statements)))
        assert seen[0] == seen[1]
        assert len(seen[0][3]) > 0


async def test_a_password_manager_signs_in_with_one_step(browser: FakeBrowser, world: RoutedWorld, ports: Ports) -> None:
    """A password manager fills the hidden field in. Where the domain leads to a connection, this has no effect."""
    for domain, signs_in in (("example.com", True), ("acme.example", False)):
        account = await add_account(ports, f"user@{domain}")
        answer = await browser.fill(await browser.open(SIGN_IN), email=account.email, password=PASSWORD, **ADDRESS)
        assert (answer.status, await browser.is_in()) == (303, signs_in)
        browser.cookies.clear()
    assert (await browser.fill(await browser.open(SIGN_IN), email="user@acme.example", password=PASSWORD, **OWN_WAYS)).status == 303
    assert await browser.is_in()


async def test_sign_up_and_a_forgotten_password_lead_to_the_connection(browser: FakeBrowser, world: RoutedWorld, pool: Pool) -> None:
    page = await browser.open("/app/sign-up")
    answer = await browser.fill(page, email="new@acme.example", name="", password=PASSWORD)
    assert connection_of(answer) == (world.start_of("acme-okta"), {"next": ["/app"], "login_hint": ["new@acme.example"]})
    assert await run_sql(pool, "select 1 from users where email = 'new@acme.example'") == []
    assert (await browser.fill(page, email="new@example.com", name="", password=PASSWORD)).status == 200
    forgot = "/app/forgot-password"
    offered = await browser.fill(await browser.open(forgot), email="ada@acme.example")
    assert "Continue with Acme-Okta" in offered.text
    assert world.start_of("acme-okta") in offered.text
    for again in (
        await browser.fill(offered, email="ada@acme.example", step="password"),
        await browser.fill(await browser.open(forgot), email="a@b.example"),
    ):
        assert "Continue with" not in again.text
