"""Further LogoutRequests for the same session, while its logout is in progress (security X-9).

The request that started the logout leads to the current step again. Other requests get PartialLogout.
"""

import pytest

from adapters.postgres.engine.pool import Pool
from tests.federation.api.saml_logout.progress import (
    LOGOUT_COOKIE,
    LogoutInProgress,
    both_bindings,
    final_statuses,
    logout_rows,
    no_logout_is_stored,
    send_request,
)
from tests.support.browser import set_cookies
from tests.support.builders import Answer, run_concurrently
from tests.support.saml import SamlApplication, encode_base64, logout_request, redirect_url
from tests.support.saml.browser import LogoutWalk, RedirectedMessage, SamlBrowser, redirect_target


@both_bindings
async def test_the_same_request_twice_leads_to_the_same_step(in_progress: LogoutInProgress, shop: SamlApplication, by_form: bool) -> None:
    repeated_step = await in_progress.send_request(shop, by_form=by_form, id_="_begun")
    assert in_progress.walk.pending_request(repeated_step) == (in_progress.first, in_progress.request_id)
    assert final_statuses(await in_progress.finish(repeated_step), shop, "_begun") == ["Success"]
    assert sorted(in_progress.walk.notified) == ["blog", "desk", "wiki"]


async def test_the_same_request_continues_after_a_response(in_progress: LogoutInProgress, shop: SamlApplication) -> None:
    next_step = await in_progress.walk.confirm(in_progress.first, in_progress.request_id)
    repeated_step = await in_progress.send_request(shop, id_="_begun")
    assert in_progress.walk.pending_request(repeated_step) == in_progress.walk.pending_request(next_step)
    assert final_statuses(await in_progress.walk.finish(repeated_step), shop, "_begun") == ["Success"]


async def test_a_browser_that_ignored_the_first_response_is_recognized(
    walk: LogoutWalk, browser: SamlBrowser, shop: SamlApplication, pool: Pool
) -> None:
    """After a double click, the browser drops the response to the first request."""
    sessions = await walk.sign_in()
    before, session = dict(browser.cookies), sessions["shop"]
    await send_request(browser, shop, session.name_id, session.session_index, id_="_begun")
    browser.cookies = before
    last = await walk.finish(await send_request(browser, shop, session.name_id, session.session_index, id_="_begun"))
    assert final_statuses(last, shop, "_begun") == ["Success"], "also the application that the first redirect never reached"
    assert sorted(walk.notified) == ["blog", "desk", "wiki"]
    assert LOGOUT_COOKIE not in browser.cookies
    assert await no_logout_is_stored(pool)


# Requests with another id


@both_bindings
async def test_another_request_gets_a_partial_logout_and_changes_nothing(
    in_progress: LogoutInProgress, shop: SamlApplication, by_form: bool, pool: Pool
) -> None:
    rows, cookies = await logout_rows(pool), dict(in_progress.browser.cookies)
    for application in (shop, in_progress.first, *in_progress.rest):
        answer = await in_progress.send_request(application, by_form=by_form, id_="_mine")
        assert final_statuses(answer, application, "_mine") == ["Success", "PartialLogout"]
    assert (await logout_rows(pool), in_progress.browser.cookies) == (rows, cookies)
    step = await in_progress.walk.confirm(in_progress.first, in_progress.request_id)
    assert final_statuses(await in_progress.walk.finish(step), shop, "_begun") == ["Success"]
    assert sorted(in_progress.walk.notified) == ["blog", "desk", "wiki"]
    assert await no_logout_is_stored(pool)


# Races


@both_bindings
async def test_parallel_copies_of_a_request_lead_to_one_step(
    walk: LogoutWalk, browser: SamlBrowser, shop: SamlApplication, by_form: bool, pool: Pool
) -> None:
    session = (await walk.sign_in())["shop"]
    message = logout_request(shop, browser.now(), session.name_id, session.session_index, ID="_begun")
    address = redirect_url(f"{shop.path}/slo", message, RelayState="there")
    if by_form:
        address = redirect_target(
            await browser.post_cross_site(f"{shop.path}/slo", SAMLRequest=encode_base64(message), RelayState="there"), 303
        )
    steps = await run_concurrently(8, lambda _: browser.open(address))
    [request] = {
        (application.slug, id_)
        for step in steps
        for application, id_ in [walk.pending_request(step) or pytest.fail("no application is notified")]
    }
    assert len({set_cookies(step)[LOGOUT_COOKIE].value for step in steps}) == 1
    assert final_statuses(await walk.finish(steps[0]), shop, "_begun") == ["Success"]
    assert walk.notified[0] == request[0]
    assert sorted(walk.notified) == ["blog", "desk", "wiki"]
    assert await no_logout_is_stored(pool)


@pytest.mark.slow
async def test_one_of_parallel_logouts_runs_and_the_others_are_partial(walk: LogoutWalk, browser: SamlBrowser, pool: Pool) -> None:
    """The test sends twenty requests from four applications with different ids."""
    sessions = await walk.sign_in()

    async def begin(number: int) -> Answer:
        application = list(walk.applications.values())[number % 4]
        session = sessions[application.slug]
        return await send_request(browser, application, session.name_id, session.session_index, id_=f"_{application.slug}-{number}")

    messages = [RedirectedMessage(redirect_target(step)) for step in await run_concurrently(20, begin)]
    answers = [message for message in messages if message.kind == "LogoutResponse"]
    assert (len(messages), len(answers)) == (20, 19)
    assert {tuple(message.statuses) for message in answers} == {("Success", "PartialLogout")}, "no answer reports a complete logout"
    assert not await browser.is_in()
