"""Further LogoutRequests of the same session, while its logout is in progress (decision 183).

The request takes the logout over, with all applications that must still be notified.
"""

from datetime import timedelta

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts.accounts_rules import Account
from core.federation.saml.configuration_rules import NameIdFormat
from core.federation.saml.logout_rules import LOGOUT_TTL
from tests.fakes.outside import FakeClock
from tests.federation.api.saml_logout.progress import (
    LOGOUT_COOKIE,
    LogoutInProgress,
    both_bindings,
    final_statuses,
    no_logout_is_stored,
    send_request,
)
from tests.support.browser import set_cookies
from tests.support.builders import Answer, run_concurrently
from tests.support.saml import SamlApplication, encode_base64, logout_request, redirect_url
from tests.support.saml_browser import LogoutWalk, RedirectedMessage, SamlApplications, SamlBrowser, redirect_target


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


@both_bindings
async def test_a_new_request_of_the_initiator_gets_the_response(
    in_progress: LogoutInProgress, shop: SamlApplication, by_form: bool, pool: Pool
) -> None:
    step = await in_progress.send_request(shop, by_form=by_form, id_="_again")
    assert final_statuses(await in_progress.finish(step), shop, "_again") == ["Success"]
    assert sorted(in_progress.walk.notified) == ["blog", "desk", "wiki"]
    assert await no_logout_is_stored(pool)


async def test_a_new_request_of_the_initiator_repeats_the_step(in_progress: LogoutInProgress, shop: SamlApplication) -> None:
    """This happens after a double click at an application that sends a new request for each click.

    The first redirect never arrived.
    """
    step = await in_progress.send_request(shop, id_="_again")
    assert in_progress.walk.pending_request(step) == (in_progress.first, in_progress.request_id)
    assert final_statuses(await in_progress.walk.finish(step), shop, "_again") == ["Success"]
    assert sorted(in_progress.walk.notified) == sorted(["blog", "desk", "wiki", in_progress.first.slug])


async def test_an_application_asked_twice_without_a_response_makes_the_logout_partial(
    in_progress: LogoutInProgress, shop: SamlApplication
) -> None:
    await in_progress.send_request(shop, id_="_again")
    step = await in_progress.send_request(shop, id_="_last")
    assert final_statuses(await in_progress.walk.finish(step), shop, "_last") == ["Success", "PartialLogout"]
    assert sorted(in_progress.walk.notified) == ["blog", "desk", "wiki"]


async def test_a_browser_that_ignored_the_first_response_is_recognized(
    walk: LogoutWalk, browser: SamlBrowser, shop: SamlApplication, pool: Pool
) -> None:
    """After a double click, the browser drops the response to the first request."""
    sessions = await walk.sign_in()
    before, session = dict(browser.cookies), sessions["shop"]
    await send_request(browser, shop, session.name_id, session.session_index, id_="_begun")
    browser.cookies = before
    last = await walk.finish(await send_request(browser, shop, session.name_id, session.session_index, id_="_again"))
    assert final_statuses(last, shop, "_again") == ["Success"], "also the application that the first redirect never reached"
    assert sorted(walk.notified) == ["blog", "desk", "wiki"]
    assert LOGOUT_COOKIE not in browser.cookies
    assert await no_logout_is_stored(pool)


async def test_the_initiator_can_use_any_former_name(
    browser: SamlBrowser, applications: SamlApplications, shop: SamlApplication, user: Account
) -> None:
    transient = await applications.add("once", name_id_format=NameIdFormat.TRANSIENT)
    walk = LogoutWalk(browser, shop, transient)
    await browser.sign_in()
    await browser.sign_on(shop)
    first, second = await browser.sign_on(transient), await browser.sign_on(transient)
    step = await send_request(browser, transient, second.name_id, second.session_index, id_="_begun")
    assert walk.pending_request(step) is not None
    repeated_step = await send_request(browser, transient, first.name_id, first.session_index, id_="_again")
    assert final_statuses(await walk.finish(repeated_step), transient, "_again") == ["Success"]


# Other applications of the same session


@both_bindings
async def test_another_application_takes_the_logout_over(in_progress: LogoutInProgress, by_form: bool, pool: Pool) -> None:
    initiator, remaining = in_progress.rest
    step = await in_progress.send_request(initiator, by_form=by_form, id_="_mine")
    assert final_statuses(await in_progress.finish(step), initiator, "_mine") == ["Success"]
    assert sorted(in_progress.walk.notified) == sorted([in_progress.first.slug, remaining.slug]), (
        "the applications that sent a request are not notified"
    )
    assert await no_logout_is_stored(pool)


@both_bindings
async def test_an_application_that_sends_a_request_instead_of_a_response_is_done(in_progress: LogoutInProgress, by_form: bool) -> None:
    step = await in_progress.send_request(in_progress.first, by_form=by_form, id_="_mine")
    assert final_statuses(await in_progress.walk.finish(step), in_progress.first, "_mine") == ["Success"]
    assert sorted(in_progress.walk.notified) == ["blog", "desk", "wiki"]
    assert (await in_progress.walk.confirm(in_progress.first, in_progress.request_id)).status == 400, "the logout has ended"


async def test_an_application_that_took_over_can_still_respond(in_progress: LogoutInProgress) -> None:
    step = await in_progress.send_request(in_progress.first, id_="_mine")
    assert in_progress.walk.pending_request(
        await in_progress.walk.confirm(in_progress.first, in_progress.request_id)
    ) == in_progress.walk.pending_request(step)
    assert final_statuses(await in_progress.walk.finish(step), in_progress.first, "_mine") == ["Success"]


async def test_taking_over_does_not_extend_the_logout(in_progress: LogoutInProgress, clock: FakeClock) -> None:
    clock.advance(LOGOUT_TTL - timedelta(minutes=1))
    await in_progress.send_request(in_progress.rest[0])
    clock.advance(timedelta(minutes=1))
    assert (await in_progress.browser.open(f"{in_progress.first.path}/slo")).status == 400


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
async def test_all_applications_can_start_in_parallel(walk: LogoutWalk, browser: SamlBrowser, pool: Pool) -> None:
    """Each sends two requests.

    The first ends the session, the others take over, and no application is counts to notify.
    """
    sessions = await walk.sign_in()

    async def begin(number: int) -> Answer:
        application = list(walk.applications.values())[number % 4]
        session = sessions[application.slug]
        return await send_request(browser, application, session.name_id, session.session_index, id_=f"_{application.slug}-{number}")

    messages = [RedirectedMessage(redirect_target(step)) for step in await run_concurrently(8, begin)]
    answers = [message.statuses for message in messages if message.kind == "LogoutResponse"]
    request_ids = [message.root.get("ID") for message in messages if message.kind == "LogoutRequest"]
    assert all(request_ids.count(id_) <= 2 for id_ in request_ids), "no request is sent more often"
    assert len([statuses for statuses in answers if statuses[0] == "Success"]) == 1
    assert len(request_ids) + len(answers) == 8
    assert not await browser.is_in()
    assert await no_logout_is_stored(pool)
