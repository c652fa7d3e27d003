"""Forms that work once: what uses their key up, and what does not (security G-2, decision 410).

`tests/proof/access/pages/test_sent_forms.py` sends every such form several times at once.
"""

from datetime import timedelta
from urllib.parse import parse_qsl

import pytest

from adapters.postgres.engine.pool import Pool
from tests.fakes.outside import FakeClock
from tests.support.browser import FakeBrowser, hidden_fields, leads_to
from tests.support.builders import PASSWORD, Answer, run_sql

ROOT = "/app/organizations/acme"
NEW = f"{ROOT}/applications/new"
FILLED = {"kind": "web", "name": "Shop", "redirect_uris": "https://shop.example/callback"}
REAUTHENTICATION = "/app/reauthenticate"


async def names(pool: Pool) -> list[str]:
    return [name for (name,) in await run_sql(pool, "select name from services order by created_at")]


def is_already_sent(answer: Answer) -> bool:
    return answer.status == 400 and "Already sent" in answer.text and f'href="{ROOT}/applications"' in answer.text


async def test_a_reload_makes_no_second_application_and_says_where_the_first_one_is(owner_browser: FakeBrowser, pool: Pool) -> None:
    form = {**hidden_fields(await owner_browser.open(f"{NEW}?kind=web")), **FILLED}
    assert "Client secret" in (await owner_browser.send(NEW, **form)).text
    again = await owner_browser.send(NEW, **form)
    assert is_already_sent(again)
    assert "Client secret" not in again.text
    changed = await owner_browser.send(NEW, **{**form, "name": "Another"})  # the form in the browser's cache, with different fields
    assert is_already_sent(changed)
    assert await names(pool) == ["Shop"]
    other = await owner_browser.send(NEW, **{**hidden_fields(await owner_browser.open(f"{NEW}?kind=web")), **FILLED})
    assert other.status == 200
    assert await names(pool) == ["Shop", "Shop"]


async def test_a_refused_form_can_be_corrected_and_sent_again(owner_browser: FakeBrowser, pool: Pool) -> None:
    form = {**hidden_fields(await owner_browser.open(f"{NEW}?kind=web")), **FILLED}
    assert (await owner_browser.send(NEW, **{**form, "redirect_uris": "nonsense"})).status == 400
    assert (await owner_browser.send(NEW, **form)).status == 200
    assert is_already_sent(await owner_browser.send(NEW, **form))
    assert await names(pool) == ["Shop"]


@pytest.mark.parametrize("key", ["", "short", "x" * 65])
async def test_a_form_without_a_key_makes_nothing(owner_browser: FakeBrowser, pool: Pool, key: str) -> None:
    sent = await owner_browser.send(NEW, **{**hidden_fields(await owner_browser.open(f"{NEW}?kind=web")), **FILLED, "form_key": key})
    assert (sent.status, "This form has expired" in sent.text) == (403, True)
    assert await names(pool) == []


async def test_a_form_that_waited_for_a_confirmation_works_once_too(owner_browser: FakeBrowser, pool: Pool, clock: FakeClock) -> None:
    form = {**hidden_fields(await owner_browser.open(f"{NEW}?kind=web")), **FILLED}
    clock.advance(timedelta(hours=2))
    target = leads_to(await owner_browser.send(NEW, **form))
    query = dict(parse_qsl(target.partition("?")[2]))
    await owner_browser.submit(REAUTHENTICATION, target, password=PASSWORD, **query)
    kept = hidden_fields(await owner_browser.open(target))
    assert (await owner_browser.send(NEW, **kept)).status == 200
    assert is_already_sent(await owner_browser.send(NEW, **form))  # the form's page, again from the browser's cache
    assert await names(pool) == ["Shop"]


async def test_a_second_replacement_of_a_secret_asks_before_it_ends_the_former_one(owner_browser: FakeBrowser, pool: Pool) -> None:
    await owner_browser.submit(NEW, f"{NEW}?kind=web", **FILLED)
    path, secrets = f"{ROOT}/applications/shop/secret", "select client_secret_hash, former_secret_hash from services"
    assert "End the former secret now" not in (await owner_browser.open(path)).text
    assert (await owner_browser.submit(path, path, overlap="1 day")).status == 200
    before = await run_sql(pool, secrets)
    page = await owner_browser.open(path)
    assert "End the former secret now" in page.text
    for overlap in ("1 day", ""):
        asked = await owner_browser.send(path, **hidden_fields(page), overlap=overlap)
        assert (asked.status, "A replaced secret still works" in asked.text) == (400, True)
        assert await run_sql(pool, secrets) == before
    assert (await owner_browser.send(path, **hidden_fields(page), overlap="1 day", ends_former="yes")).status == 200
    ((new, former),) = await run_sql(pool, secrets)
    assert (former, new != former) == (before[0][0], True)


async def test_after_the_set_up_of_the_second_factor_a_reload_is_refused(owner_browser: FakeBrowser, pool: Pool) -> None:
    page = await owner_browser.open("/app/account/security")
    setup = {"form_token": hidden_fields(page)["form_token"], "form_key": "k" * 20}
    assert (await owner_browser.send("/app/account/two-factor/setup", **setup)).status == 200
    before = await run_sql(pool, "select secret from mfa")
    again = await owner_browser.send("/app/account/two-factor/setup", **setup)
    assert (again.status, "Already sent" in again.text, await run_sql(pool, "select secret from mfa") == before) == (400, True, True)
