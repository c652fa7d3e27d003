"""The audit log pages: sentences, groups, chips, and the table for an entry."""

import re
from datetime import timedelta
from uuid import UUID

import pytest
from lxml import html

from adapters.postgres.engine.pool import Pool
from core.eventing.model import audit
from core.kernel.callers import Person, ScimClient
from core.kernel.causes import Caller
from core.kernel.event_catalog import EVENT_KINDS, Event
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.support.browser import FakeBrowser
from tests.support.builders import add_account, add_member, run_sql

LOG = "/app/organizations/acme/audit-log"


async def _acme(pool: Pool) -> tuple[UUID, Person]:
    """Return the organization, and its owner as a caller."""
    ((org, user, email),) = await run_sql(
        pool, "select m.org_id, u.id, u.email from memberships m join users u on u.id = m.user_id where m.role = 'owner'"
    )
    return org, Person(user_id=user, email=email, session_id=UUID(int=5), address="203.0.113.9", agent="tests")


async def _record(ports: Ports, caller: Caller, *events: Event) -> None:
    async with ports.storage.transaction(by=caller, in_session=False) as tx:
        for event in events:
            tx.record(event)


def text_of(html: str) -> str:
    """Return the text that people see."""
    seen = re.sub(r'<span class="unseen">[^<]*</span>', "", html)
    return " ".join(re.sub(r"<[^>]+>", " ", seen).split())


async def test_an_entry_is_a_sentence_with_links_and_a_table(owner_browser: FakeBrowser, ports: Ports, pool: Pool) -> None:
    org, owner = await _acme(pool)
    kai = await add_account(ports, "kai@example.com")
    await add_member(pool, org, kai.id, confirmed=True)
    details = {"old_role": "member", "new_role": "admin", "changes": {"owner_id": {"old": None, "new": str(kai.id)}}}
    await _record(ports, owner, Event(EVENT_KINDS["user.role_updated"], str(kai.id), org_id=org, details=details))
    page = await owner_browser.open(f"{LOG}?action=user.role_updated")
    assert f"{owner.email} changed kai@example.com from member to admin" in text_of(page.text)
    assert f'href="?actor_id={owner.user_id}"' in page.text
    assert f'href="?target_type=user&amp;target_id={kai.id}"' in page.text
    [path] = re.findall(rf'href="({LOG}/[0-9a-f-]{{36}})"', page.text)
    entry = text_of((await owner_browser.open(path)).text)
    assert "Setting Before After Owner ID none kai@example.com" in entry
    assert "Old role member" in entry
    assert "New role admin" in entry


async def test_a_filter_by_id_is_shown_with_the_name_and_can_be_removed(owner_browser: FakeBrowser, pool: Pool) -> None:
    _, owner = await _acme(pool)
    page = await owner_browser.open(f"{LOG}?actor_id={owner.user_id}&period=24h")
    assert f'<a href="?period=24h" aria-current="true"><span class="unseen">Remove </span><bdi>Actor: {owner.email}</bdi>' in page.text
    page = await owner_browser.open(f"{LOG}?target_type=user&target_id={UUID(int=8)}")
    assert f"About: {UUID(int=8)}" in text_of(page.text), "the id stands for an object without entries"


async def test_a_failed_entry_is_marked(owner_browser: FakeBrowser, ports: Ports, pool: Pool) -> None:
    org, owner = await _acme(pool)
    await _record(ports, owner, Event(EVENT_KINDS["access.refused"], str(org), org_id=org, details={"error": "No."}, success=False))
    page = await owner_browser.open(f"{LOG}?action=access.refused")
    assert f"{owner.email} was refused: No. refused" in text_of(page.text)


async def test_a_push_of_a_directory_is_folded(owner_browser: FakeBrowser, ports: Ports, pool: Pool, clock: FakeClock) -> None:
    org, _ = await _acme(pool)
    directory = ScimClient(token_id=UUID(int=6), org_id=org, org_slug="acme", address="198.51.100.7", agent="Okta")
    for number in range(4):
        clock.advance(timedelta(seconds=5))
        names = ("user.created", "user.joined")
        await _record(ports, directory, *(Event(EVENT_KINDS[name], f"u{number}", org_id=org, details={"role": "member"}) for name in names))
    page = text_of((await owner_browser.open(f"{LOG}?category=User%20management")).text)
    assert "7 more: User joined \u00d7 4, User created \u00d7 3" in page
    assert page.count("The directory created the account") == 4


async def test_chips_and_filters_keep_each_other(owner_browser: FakeBrowser, clock: FakeClock) -> None:
    page = await owner_browser.open(f"{LOG}?period=24h&category=Authentication")
    assert '<a href="?period=7d&amp;category=Authentication">Last 7 days</a>' in page.text
    assert 'aria-current="true">Last 24 hours</a>' in page.text
    assert '<input type="hidden" name="period" value="24h">' in page.text
    assert "signed in" in page.text
    clock.advance(timedelta(minutes=61))
    page = await owner_browser.open(f"{LOG}?period=1h&search=")
    assert "No entry matches these filters." in page.text


async def test_a_search_that_is_too_broad_says_so_on_the_page(
    owner_browser: FakeBrowser, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = await owner_browser.open(f"{LOG}?search=nobody")
    assert "A search by address or name covers the last 90 days." in page.text
    _, owner = await _acme(pool)
    monkeypatch.setattr(audit, "MAX_MATCHES", 0)
    page = await owner_browser.open(f"{LOG}?search={owner.email}")
    assert (page.status, "More than 100 people and objects match this text." in page.text) == (200, True)
    assert f'value="{owner.email}"' in page.text, "the text can be changed"
    page = await owner_browser.open(f"{LOG}?search={owner.email}&target=a")
    invalid = html.document_fromstring(page.text).xpath("//input[@aria-invalid]/@name")
    assert (page.status, invalid, "Enter 2 or more characters" in page.text) == (200, ["target"], True)
