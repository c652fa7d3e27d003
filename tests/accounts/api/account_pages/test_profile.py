"""The user's profile page (decision 247)."""

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from tests.accounts.api.account_pages.paths import next_page_text, page_text
from tests.accounts.profiles import ALL_FIELDS, BASIC_FIELDS, FULL_PROFILE
from tests.support.browser import ACCOUNT, FakeBrowser, leads_to
from tests.support.builders import NEW_PASSWORD, run_sql

PROFILE = f"{ACCOUNT}/profile"
STORED = "select name, picture, locale, zoneinfo, profile_details from users"
DETAILS = FULL_PROFILE.details


async def test_the_form_changes_and_clears_the_profile(browser: FakeBrowser, pool: Pool) -> None:
    assert "Tell your applications your name." in page_text(await browser.open(ACCOUNT))
    answer = await browser.submit(PROFILE, PROFILE, **ALL_FIELDS)
    assert "Profile saved." in await next_page_text(browser, answer)
    assert await run_sql(pool, STORED) == [(*BASIC_FIELDS.values(), DETAILS)]
    assert "Ada Lovelace en-GB · Europe/London" in page_text(await browser.open(ACCOUNT))
    form = (await browser.open(PROFILE)).text
    assert all(f'value="{ALL_FIELDS[name]}"' in form for name in ("name", "picture", "locale", *DETAILS))
    assert '<details class="more" open>' in form
    assert "<option selected>Europe/London</option>" in form
    await browser.submit(PROFILE, PROFILE, **{**ALL_FIELDS, "picture": " ", "zoneinfo": ""})
    assert await run_sql(pool, STORED) == [("Ada Lovelace", None, "en-GB", None, DETAILS)]
    await browser.submit(PROFILE, PROFILE, name="Countess")
    assert await run_sql(pool, STORED) == [("Countess", None, "en-GB", None, DETAILS)], "missing fields stay"
    await browser.submit(PROFILE, PROFILE, **dict.fromkeys(ALL_FIELDS, ""))
    assert await run_sql(pool, STORED) == [(None,) * 5]
    assert '<details class="more">' in (await browser.open(PROFILE)).text


@pytest.mark.parametrize(
    ("field", "text"),
    [
        *(("name", "x" * 101), ("picture", "http://x.example/a"), ("locale", "en_US"), ("zoneinfo", "Mars")),
        *(("nickname", "x" * 101), ("website", "http://x.example/a"), ("birthdate", "31.12.1990")),
    ],
)
async def test_a_refused_field_is_marked_and_the_form_keeps_its_texts(browser: FakeBrowser, pool: Pool, field: str, text: str) -> None:
    answer = await browser.submit(PROFILE, PROFILE, **{**ALL_FIELDS, field: text})
    assert answer.status == 400
    assert answer.text.count("aria-invalid") == answer.text.count('aria-invalid="true"') == 1 + answer.text.count("[aria-invalid")
    assert f'id="{field}" name="{field}"' in answer.text
    assert field == "zoneinfo" or f'value="{text}"' in answer.text
    assert await run_sql(pool, STORED) == [(None,) * 5]


async def test_a_new_user_can_say_their_name_on_the_sign_up_page(app: QuartTrio, browser: FakeBrowser, pool: Pool) -> None:
    visitor, email, hostile = FakeBrowser(app), "new@example.com", " <b>Ada</b> Lovelace "
    page = await visitor.open("/app/sign-up")
    page = page if page.status == 200 else await visitor.open(leads_to(page))
    assert "Your name (optional)" in page.text
    for name in ("x" * 101, "a\nb", "a\u202eb"):
        refused = await visitor.fill(page, name=name, email=email, password=NEW_PASSWORD)
        assert (refused.status, "The name must have 1 to 100 characters" in refused.text) == (400, True)
    assert (await visitor.fill(page, name=hostile, email=email, password=NEW_PASSWORD)).status == 200
    assert await run_sql(pool, "select name from users where email = %s", email) == [(hostile.strip(),)]
    await run_sql(pool, "update users set email_verified_at = created_at, first_verified_at = created_at where email = %s", email)
    await visitor.sign_in(email, NEW_PASSWORD)
    profile = (await visitor.open(PROFILE)).text
    assert ("&lt;b&gt;Ada&lt;/b&gt; Lovelace" in profile, "<b>Ada" in profile) == (True, False)
