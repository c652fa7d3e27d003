"""Messages that match no session, while a logout is in progress (security X-9).

Any page can make the browser deliver such a message. Such a message changes nothing.
"""

import itertools
from typing import Any, Final

import pytest

from adapters.postgres.engine.pool import Pool
from core.kernel.values import new_secret
from tests.fakes.outside import FakeClock
from tests.federation.api.saml_logout.progress import (
    LOGOUT_COOKIE,
    LogoutInProgress,
    both_bindings,
    final_statuses,
    logout_rows,
    send_request,
    sign_in_again,
    start_logout,
)
from tests.support.browser import set_cookies
from tests.support.builders import EMAIL, Answer, run_concurrently
from tests.support.saml import SamlApplication, encode_base64, logout_request, logout_response, redirect_url
from tests.support.saml.browser import LogoutWalk, RedirectedMessage, SamlApplications, SamlBrowser, redirect_target, statuses

FORGERIES: Final = ("name", "index", "both", "foreign")
DELIVERIES: Final = ("redirect", "form", "form that is not followed")


@pytest.mark.slow
async def test_a_request_that_matches_no_session_changes_nothing(
    app: Any, clock: FakeClock, walk: LogoutWalk, shop: SamlApplication, applications: SamlApplications, pool: Pool
) -> None:
    """The requests have a wrong name or index, or come from an application without sessions."""
    foreign = await applications.add("foreign")
    findings = []
    for has_new_session in (False, True):
        browser = SamlBrowser(app, clock)
        in_progress = await start_logout(LogoutWalk(browser, *walk.applications.values()))
        session = in_progress.sessions["shop"]
        if has_new_session:
            await sign_in_again(browser, shop)
        rows, cookies = await logout_rows(pool), dict(browser.cookies)
        for forgery, delivery in itertools.product(FORGERIES, DELIVERIES):
            application = foreign if forgery == "foreign" else shop
            name = session.name_id if forgery in ("index", "foreign") else "stranger@example.com"
            index = session.session_index if forgery in ("name", "foreign") else "_guessed"
            answer, is_refused = await deliver_forgery(browser, application, name, index, delivery)
            checks = {
                "response": is_refused,
                "cookies": set_cookies(answer) == {} and browser.cookies == cookies,
                "rows": await logout_rows(pool) == rows,
                "session": await browser.is_in() == has_new_session,
            }
            findings += [(has_new_session, forgery, delivery, check) for check, passed in checks.items() if not passed]
        last = await in_progress.walk.finish(await in_progress.walk.confirm(in_progress.first, in_progress.request_id))
        assert final_statuses(last, shop, "_begun") == ["Success"]
        assert sorted(in_progress.walk.notified) == ["blog", "desk", "wiki"]
        assert await browser.is_in() == has_new_session
    assert findings == []


async def deliver_forgery(browser: SamlBrowser, application: SamlApplication, name: str, index: str, delivery: str) -> tuple[Answer, bool]:
    """Deliver a forged LogoutRequest. Return the answer, and whether it refuses the request or only redirects the form."""
    if delivery == "form that is not followed":
        message = logout_request(application, browser.now(), name, index)
        answer = await browser.post_cross_site(f"{application.path}/slo", SAMLRequest=encode_base64(message))
        return answer, answer.status == 303
    answer = await send_request(browser, application, name, index, by_form=delivery == "form")
    response = RedirectedMessage(redirect_target(answer))
    is_refused = (response.url, response.statuses, response.query["RelayState"]) == (
        application.configuration.slo_url,
        ["Requester", "UnknownPrincipal"],
        "there",
    )
    return answer, is_refused


@pytest.mark.parametrize("message", ["<", "x", ""])
@both_bindings
async def test_an_unreadable_message_changes_nothing(
    in_progress: LogoutInProgress, shop: SamlApplication, message: str, by_form: bool
) -> None:
    browser = in_progress.browser
    if by_form:
        answer = await browser.post_cross_site(f"{shop.path}/slo", SAMLRequest=message)
    else:
        answer = await browser.open(f"{shop.path}/slo?SAMLRequest={message}")
    assert answer.status == 400
    step = await in_progress.walk.confirm(in_progress.first, in_progress.request_id)
    assert final_statuses(await in_progress.walk.finish(step), shop, "_begun") == ["Success"]


@pytest.mark.parametrize("response", ["other destination", "other id", "garbage", "nothing"])
async def test_an_invalid_response_shows_a_page_that_continues(
    in_progress: LogoutInProgress, shop: SamlApplication, app: Any, clock: FakeClock, response: str
) -> None:
    browser, first = in_progress.browser, in_progress.first
    messages = {
        "other destination": logout_response(first, browser.now(), in_progress.request_id, Destination="https://elsewhere.example"),
        "other id": logout_response(first, browser.now(), "_another"),
    }
    address = f"{first.path}/slo?SAMLResponse={'AAAA' if response == 'garbage' else ''}"
    if response in messages:
        address = redirect_url(f"{first.path}/slo", messages[response], "SAMLResponse")
    page = await browser.open(address)
    assert page.status == 400
    assert "not signed out everywhere yet" in page.text
    stranger = await SamlBrowser(app, clock).open(address)
    assert (stranger.status, "not signed out everywhere yet" in stranger.text) == (400, False)
    assert f'href="{first.path}/slo"' in page.text
    step = await browser.open(f"{first.path}/slo")
    assert in_progress.walk.pending_request(step) == (first, in_progress.request_id), "also the second time"
    assert final_statuses(await in_progress.walk.finish(step), shop, "_begun") == ["Success"]


async def test_a_session_of_another_browser_does_not_match(
    in_progress: LogoutInProgress, clock: FakeClock, shop: SamlApplication, app: Any
) -> None:
    other = SamlBrowser(app, clock)
    session = in_progress.sessions["shop"]
    message = RedirectedMessage(redirect_target(await send_request(other, shop, session.name_id, session.session_index)))
    assert message.statuses == ["Requester", "UnknownPrincipal"]
    assert LOGOUT_COOKIE not in other.cookies


async def test_a_form_with_a_too_long_relay_state_is_refused(browser: SamlBrowser, shop: SamlApplication) -> None:
    message = logout_request(shop, browser.now(), EMAIL, "_index")
    answer = await browser.post_cross_site(f"{shop.path}/slo", SAMLRequest=encode_base64(message), RelayState="x" * 4097)
    assert answer.status == 400


async def test_a_form_may_have_a_relay_state_that_is_longest_in_a_url(browser: SamlBrowser, shop: SamlApplication) -> None:
    message = logout_request(shop, browser.now(), EMAIL, "_index")
    answer = await browser.post_cross_site(f"{shop.path}/slo", SAMLRequest=encode_base64(message), RelayState="ü" * 2048)
    assert answer.status in (200, 303), answer.text


async def test_a_form_too_long_for_a_redirect_is_refused(browser: SamlBrowser, shop: SamlApplication) -> None:
    indexes = [f"_{new_secret()}" for _ in range(300)]
    page = await browser.post_cross_site(
        f"{shop.path}/slo", SAMLRequest=encode_base64(logout_request(shop, browser.now(), EMAIL, *indexes))
    )
    assert page.status == 400
    assert "too long for signing out" in page.text
    message = logout_request(shop, browser.now(), EMAIL, *indexes[:100])
    path = redirect_target(await browser.post_cross_site(f"{shop.path}/slo", SAMLRequest=encode_base64(message)), 303)
    assert RedirectedMessage(redirect_target(await browser.open(path))).statuses == ["Requester", "UnknownPrincipal"], (
        "100 indexes fit into a redirect"
    )


@pytest.mark.slow
async def test_forged_requests_in_parallel_with_responses_change_nothing(in_progress: LogoutInProgress, shop: SamlApplication) -> None:
    browser = in_progress.browser

    async def forge_or_answer(number: int) -> Answer:
        if number == 4:
            return await in_progress.walk.confirm(in_progress.first, in_progress.request_id)
        return await send_request(browser, shop, f"unknown-{number}@example.com", "_guessed", by_form=number % 2 == 0)

    await run_concurrently(8, forge_or_answer)
    last = await in_progress.walk.finish(await browser.open(f"{shop.path}/slo"))
    assert statuses(last, shop)[0] == "Success"
