"""LogoutRequests in a browser with a logout in progress (decision 183).

Any page can make the browser deliver one. A request that matches no session changes nothing. A
request that matches one takes the logout over, with all applications that must still be notified.

The module is longer than 400 lines, because all tests start from the logout in progress that its
fixtures build.
"""

from datetime import timedelta
from typing import Any, Final

import pytest

from adapters.postgres.engine.pool import Pool
from adapters.saml.documents import XmlDocuments
from core.accounts.accounts_rules import Account
from core.federation.saml import messages as saml_messages
from core.federation.saml.configuration_rules import NameIdFormat
from core.federation.saml.logout_rules import LOGOUT_TTL
from core.kernel.errors import Limited
from core.kernel.values import new_secret
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.support.browser import ACCOUNT, SIGN_IN, form_token, leads_to, set_cookies
from tests.support.builders import EMAIL, PASSWORD, Answer, add_account, run_concurrently, run_sql
from tests.support.platform import Platform
from tests.support.saml import SamlApplication, encode_base64, logout_request, logout_response, redirect_url
from tests.support.saml_browser import LogoutWalk, RedirectedMessage, SamlApplications, SamlBrowser, redirect_target, sign_out, statuses
from tests.support.services import add_service_user
from tests.support.tenants import Tenant

COOKIE = "gatehouse-saml-logout"
EVE = "eve@example.com"
both_bindings = pytest.mark.parametrize("by_form", [False, True])


@pytest.fixture
async def walk(browser: SamlBrowser, shop: SamlApplication, applications: SamlApplications, other_tenant: Tenant) -> LogoutWalk:
    """Four applications of two organizations. `shop` starts the logout."""
    others = [await applications.add("blog"), await applications.add("wiki", other_tenant), await applications.add("desk", other_tenant)]
    return LogoutWalk(browser, shop, *others)


async def send_request(
    browser: SamlBrowser, application: SamlApplication, name_id: str, *indexes: str, by_form: bool = False, id_: str | None = None
) -> Answer:
    """Deliver a LogoutRequest that the application sent, or an attacker in its name."""
    message = logout_request(application, browser.now(), name_id, *indexes, ID=id_ or saml_messages.new_message_id())
    address = redirect_url(f"{application.path}/slo", message, RelayState="there")
    if by_form:
        fields = {"SAMLRequest": encode_base64(message), "RelayState": "there"}
        address = redirect_target(await browser.post_cross_site(f"{application.path}/slo", **fields), 303)
    return await browser.open(address)


class LogoutInProgress:
    """A logout that `shop` started.

    The browser is at the first other application, and can deliver further requests.
    """

    def __init__(self, walk: LogoutWalk, sessions: dict[str, Any], step: Answer) -> None:
        self.walk, self.browser, self.sessions, self.step = walk, walk.browser, sessions, step
        request = walk.pending_request(step)
        assert request is not None
        self.first, self.request_id = request
        walk.notified.append(self.first.slug)
        self.rest = [walk.applications[slug] for slug in walk.applications if slug not in ("shop", self.first.slug)]

    async def send_request(self, application: SamlApplication, *, by_form: bool = False, id_: str | None = None) -> Answer:
        session = self.sessions[application.slug]
        return await send_request(self.browser, application, session.name_id, session.session_index, by_form=by_form, id_=id_)

    async def finish(self, step: Answer) -> Answer:
        """Finish the logout from this step.

        The late response of the first application still counts.
        """
        if self.walk.pending_request(step) != (self.first, self.request_id):
            done = logout_response(self.first, self.browser.now(), self.request_id)
            redirect_target(await self.browser.open(redirect_url(f"{self.first.path}/slo", done, "SAMLResponse")))
            return await self.walk.finish(step)
        self.walk.notified.clear()
        return await self.walk.finish(step)


@pytest.fixture
async def in_progress(walk: LogoutWalk) -> LogoutInProgress:
    sessions = await walk.sign_in()
    session = sessions["shop"]
    step = await send_request(walk.browser, walk.applications["shop"], session.name_id, session.session_index, id_="_begun")
    return LogoutInProgress(walk, sessions, step)


def final_statuses(step: Answer, application: SamlApplication, request_id: str) -> list[str]:
    message = RedirectedMessage(redirect_target(step))
    assert message.root.get("InResponseTo") == request_id
    return statuses(step, application)


async def no_logout_is_stored(pool: Pool) -> bool:
    left = await run_sql(pool, "select (select count(*) from saml_logouts) + (select count(*) from saml_logout_requests)")
    return left == [(0,)]


# The initiator


@both_bindings
async def test_the_same_request_twice_leads_to_the_same_step(in_progress: LogoutInProgress, shop: SamlApplication, by_form: bool) -> None:
    again = await in_progress.send_request(shop, by_form=by_form, id_="_begun")
    assert in_progress.walk.pending_request(again) == (in_progress.first, in_progress.request_id)
    assert final_statuses(await in_progress.finish(again), shop, "_begun") == ["Success"]
    assert sorted(in_progress.walk.notified) == ["blog", "desk", "wiki"]


async def test_the_same_request_continues_after_a_response(in_progress: LogoutInProgress, shop: SamlApplication) -> None:
    onwards = await in_progress.walk.confirm(in_progress.first, in_progress.request_id)
    again = await in_progress.send_request(shop, id_="_begun")
    assert in_progress.walk.pending_request(again) == in_progress.walk.pending_request(onwards)
    assert final_statuses(await in_progress.walk.finish(again), shop, "_begun") == ["Success"]


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
    assert COOKIE not in browser.cookies
    assert await no_logout_is_stored(pool)


async def test_the_initiator_can_use_any_former_name(
    browser: SamlBrowser, applications: SamlApplications, shop: SamlApplication, user: Account
) -> None:
    once = await applications.add("once", name_id_format=NameIdFormat.TRANSIENT)
    walk = LogoutWalk(browser, shop, once)
    await browser.sign_in()
    await browser.sign_on(shop)
    former, latter = await browser.sign_on(once), await browser.sign_on(once)
    step = await send_request(browser, once, latter.name_id, latter.session_index, id_="_begun")
    assert walk.pending_request(step) is not None
    again = await send_request(browser, once, former.name_id, former.session_index, id_="_again")
    assert final_statuses(await walk.finish(again), once, "_again") == ["Success"]


# Other applications of the same session


@both_bindings
async def test_another_application_takes_the_logout_over(in_progress: LogoutInProgress, by_form: bool, pool: Pool) -> None:
    begins, stays = in_progress.rest
    step = await in_progress.send_request(begins, by_form=by_form, id_="_mine")
    assert final_statuses(await in_progress.finish(step), begins, "_mine") == ["Success"]
    assert sorted(in_progress.walk.notified) == sorted([in_progress.first.slug, stays.slug]), "no application that knows of it is notified"
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


# A session that started during the logout


async def sign_in_again(browser: SamlBrowser, application: SamlApplication, email: str = EMAIL) -> Any:
    await browser.sign_in(email)
    return await browser.sign_on(application)


@both_bindings
async def test_a_new_session_is_merged_with_the_rest_of_the_old_logout(in_progress: LogoutInProgress, by_form: bool, pool: Pool) -> None:
    begins, stays = in_progress.rest
    browser = in_progress.browser
    session = await sign_in_again(browser, begins)
    assert session.session_index != in_progress.sessions[begins.slug].session_index
    step = await send_request(browser, begins, session.name_id, session.session_index, by_form=by_form, id_="_new")
    assert not await browser.is_in()
    assert final_statuses(await in_progress.finish(step), begins, "_new") == ["Success"]
    # The initiator also has an old session, which it must end too.
    assert sorted(in_progress.walk.notified) == sorted([in_progress.first.slug, begins.slug, stays.slug])
    assert await no_logout_is_stored(pool)


async def test_a_partial_logout_stays_partial(in_progress: LogoutInProgress) -> None:
    browser, begins = in_progress.browser, in_progress.rest[0]
    for _ in range(2):
        await browser.open(f"{in_progress.first.path}/slo")  # continue without a response of the first application
    session = await sign_in_again(browser, begins)
    step = await send_request(browser, begins, session.name_id, session.session_index, id_="_new")
    assert final_statuses(await in_progress.walk.finish(step), begins, "_new") == ["Success", "PartialLogout"]


async def test_merged_logouts_last_as_long_as_the_newest(in_progress: LogoutInProgress, clock: FakeClock) -> None:
    browser, begins = in_progress.browser, in_progress.rest[0]
    clock.advance(LOGOUT_TTL - timedelta(minutes=1))
    session = await sign_in_again(browser, begins)
    step = await send_request(browser, begins, session.name_id, session.session_index, id_="_new")
    clock.advance(timedelta(minutes=4))
    assert final_statuses(await in_progress.finish(step), begins, "_new") == ["Success"]


async def test_signing_out_on_our_page_notifies_the_remaining_applications(
    in_progress: LogoutInProgress, shop: SamlApplication, pool: Pool
) -> None:
    browser = in_progress.browser
    await sign_in_again(browser, shop)
    page = await sign_out(browser)
    assert page.status == 200
    assert not await browser.is_in()
    step = await in_progress.walk.confirm(in_progress.first, in_progress.request_id)
    last = await in_progress.walk.finish(step)
    assert sorted(in_progress.walk.notified) == ["blog", "desk", "shop", "wiki"]
    assert last.status == 200
    assert "Some applications didn't confirm" not in last.text
    assert await no_logout_is_stored(pool)


async def test_signing_out_of_a_new_session_notifies_the_remaining_applications(in_progress: LogoutInProgress) -> None:
    browser = in_progress.browser
    await browser.sign_in()
    page = await sign_out(browser)
    assert page.status == 200
    last = await in_progress.walk.finish(await in_progress.walk.confirm(in_progress.first, in_progress.request_id))
    assert sorted(in_progress.walk.notified) == ["blog", "desk", "wiki"]
    assert last.status == 200


async def test_signing_out_twice_on_our_page_continues_the_logout(walk: LogoutWalk, browser: SamlBrowser) -> None:
    await walk.sign_in()
    token = form_token(await browser.open(ACCOUNT))
    before = dict(browser.cookies)
    first = await browser.send("/app/sign-out", form_token=token)
    after = dict(browser.cookies)
    for cookies in (before, after):
        browser.cookies = cookies
        again = await browser.send("/app/sign-out", form_token=token)
        assert again.status == first.status == 200
        assert 'http-equiv="refresh"' in again.text
    last = await walk.finish(await browser.open(f"{walk.applications['wiki'].path}/slo"))
    assert sorted(walk.notified) == ["blog", "desk", "shop", "wiki"]
    assert last.status == 200
    assert leads_to(await browser.send("/app/sign-out", form_token=token)).startswith(SIGN_IN)


async def test_anonymization_removes_the_names_of_one_user_only(
    in_progress: LogoutInProgress, ports: Ports, user: Account, platform: Platform, pool: Pool
) -> None:
    """Another user has signed in and out since. Their names stay, and they are signed out."""
    browser = in_progress.browser
    initiator, notified = in_progress.rest
    eve = await add_account(ports, EVE)
    for application in (initiator, notified):
        await add_service_user(ports, application.id, eve.id)
    await browser.sign_in(EVE, PASSWORD)
    session, there = await browser.sign_on(initiator), await browser.sign_on(notified)
    answer = await platform.api.delete(f"/api/privacy/forget/{user.id}", token=platform.token)
    assert answer.status == 200, answer.text
    step = await send_request(browser, initiator, session.name_id, session.session_index, id_="_eve")
    message = RedirectedMessage(redirect_target(step))
    assert [index.text for index in message.find("//samlp:SessionIndex")] == [there.session_index]
    assert await run_sql(pool, "select count(*) from saml_logout_requests where name_id <> ''") == [(2,)]
    assert final_statuses(await in_progress.walk.finish(step), initiator, "_eve") == ["Success", "PartialLogout"]


# Requests that match no session


FORGED: Final = ("name", "index", "both", "foreign")
WAYS: Final = ("redirect", "form", "form that is not followed")


@pytest.mark.parametrize(
    ("forged", "way", "signed_in_anew"),
    [(forged, way, (i + j) % 2 == 0) for i, forged in enumerate(FORGED) for j, way in enumerate(WAYS)],
)
async def test_a_request_that_matches_no_session_changes_nothing(
    in_progress: LogoutInProgress,
    shop: SamlApplication,
    applications: SamlApplications,
    pool: Pool,
    forged: str,
    way: str,
    signed_in_anew: bool,
) -> None:
    browser, session = in_progress.browser, in_progress.sessions["shop"]
    application = await applications.add("foreign") if forged == "foreign" else shop
    if signed_in_anew:
        await sign_in_again(browser, shop)
    name = session.name_id if forged in ("index", "foreign") else "somebody@example.com"
    index = session.session_index if forged in ("name", "foreign") else "_guessed"
    rows = "select to_jsonb(l), to_jsonb(r) from saml_logouts l join saml_logout_requests r on r.logout_id = l.id order by r.request_id"
    before, cookies = await run_sql(pool, rows), dict(browser.cookies)
    if way == "form that is not followed":
        message = logout_request(application, browser.now(), name, index)
        answer = await browser.post_cross_site(f"{application.path}/slo", SAMLRequest=encode_base64(message))
    else:
        answer = await send_request(browser, application, name, index, by_form=way == "form")
        response = RedirectedMessage(redirect_target(answer))
        assert (response.url, response.statuses) == (application.configuration.slo_url, ["Requester", "UnknownPrincipal"])
        assert response.query["RelayState"] == "there"
    assert set_cookies(answer) == {}
    assert browser.cookies == cookies
    assert await run_sql(pool, rows) == before
    assert await browser.is_in() == signed_in_anew
    step = await in_progress.walk.confirm(in_progress.first, in_progress.request_id)
    assert final_statuses(await in_progress.walk.finish(step), shop, "_begun") == ["Success"]
    assert sorted(in_progress.walk.notified) == ["blog", "desk", "wiki"]
    assert await browser.is_in() == signed_in_anew


@pytest.mark.parametrize("what", ["<", "x", ""])
@both_bindings
async def test_an_unreadable_message_changes_nothing(
    in_progress: LogoutInProgress, shop: SamlApplication, what: str, by_form: bool
) -> None:
    browser = in_progress.browser
    if by_form:
        answer = await browser.post_cross_site(f"{shop.path}/slo", SAMLRequest=what)
    else:
        answer = await browser.open(f"{shop.path}/slo?SAMLRequest={what}")
    assert answer.status == 400
    step = await in_progress.walk.confirm(in_progress.first, in_progress.request_id)
    assert final_statuses(await in_progress.walk.finish(step), shop, "_begun") == ["Success"]


@pytest.mark.parametrize("what", ["elsewhere", "another", "garbage", "nothing"])
async def test_an_invalid_response_shows_a_page_that_continues(
    in_progress: LogoutInProgress, shop: SamlApplication, app: Any, clock: FakeClock, what: str
) -> None:
    browser, first = in_progress.browser, in_progress.first
    answers = {
        "elsewhere": logout_response(first, browser.now(), in_progress.request_id, Destination="https://elsewhere.example"),
        "another": logout_response(first, browser.now(), "_another"),
    }
    address = f"{first.path}/slo?SAMLResponse={'AAAA' if what == 'garbage' else ''}"
    if what in answers:
        address = redirect_url(f"{first.path}/slo", answers[what], "SAMLResponse")
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
    assert COOKIE not in other.cookies


async def test_a_form_with_a_too_long_relay_state_is_refused(browser: SamlBrowser, shop: SamlApplication) -> None:
    message = logout_request(shop, browser.now(), EMAIL, "_index")
    answer = await browser.post_cross_site(f"{shop.path}/slo", SAMLRequest=encode_base64(message), RelayState="x" * 1025)
    assert answer.status == 400


# Repeated responses


@both_bindings
async def test_a_repeated_response_leads_to_the_same_step(in_progress: LogoutInProgress, shop: SamlApplication, by_form: bool) -> None:
    """It may come before or after the next redirect, and does not count as a return from the next application."""
    browser, first = in_progress.browser, in_progress.first
    done = logout_response(first, browser.now(), in_progress.request_id)
    address = redirect_url(f"{first.path}/slo", done, "SAMLResponse")
    redirect_target(await browser.open(address))
    onwards = redirect_target(await browser.open(address))
    assert onwards == f"{first.path}/slo"
    step = await browser.open(onwards)
    for _ in range(3):
        if by_form:
            address = redirect_target(await browser.post_cross_site(f"{first.path}/slo", SAMLResponse=encode_base64(done)), 303)
        assert in_progress.walk.pending_request(await browser.open(address)) == in_progress.walk.pending_request(step)
    assert final_statuses(await in_progress.walk.finish(step), shop, "_begun") == ["Success"]
    assert sorted(in_progress.walk.notified) == ["blog", "desk", "wiki"]


async def test_parallel_copies_of_a_response_all_continue(in_progress: LogoutInProgress, shop: SamlApplication) -> None:
    browser, first = in_progress.browser, in_progress.first
    address = redirect_url(f"{first.path}/slo", logout_response(first, browser.now(), in_progress.request_id), "SAMLResponse")
    answers = await run_concurrently(20, lambda _: browser.open(address))
    assert {redirect_target(answer) for answer in answers} == {f"{first.path}/slo"}
    assert final_statuses(await in_progress.walk.finish(await browser.open(f"{first.path}/slo")), shop, "_begun") == ["Success"]


async def test_a_repeated_response_in_another_browser_is_refused(in_progress: LogoutInProgress, app: Any, clock: FakeClock) -> None:
    browser, first = in_progress.browser, in_progress.first
    address = redirect_url(f"{first.path}/slo", logout_response(first, browser.now(), in_progress.request_id), "SAMLResponse")
    redirect_target(await browser.open(address))
    assert (await SamlBrowser(app, clock).open(address)).status == 400
    for application, id_ in ((in_progress.rest[0], in_progress.request_id), (first, "_another")):
        wrong = logout_response(application, browser.now(), id_)
        assert (await browser.open(redirect_url(f"{application.path}/slo", wrong, "SAMLResponse"))).status == 400


async def test_a_form_too_long_for_a_redirect_is_refused(browser: SamlBrowser, shop: SamlApplication) -> None:
    indexes = [f"_{new_secret()}" for _ in range(300)]
    refused = await browser.post_cross_site(
        f"{shop.path}/slo", SAMLRequest=encode_base64(logout_request(shop, browser.now(), EMAIL, *indexes))
    )
    assert refused.status == 400
    assert "too long for signing out" in refused.text
    message = logout_request(shop, browser.now(), EMAIL, *indexes[:100])
    path = redirect_target(await browser.post_cross_site(f"{shop.path}/slo", SAMLRequest=encode_base64(message)), 303)
    assert RedirectedMessage(redirect_target(await browser.open(path))).statuses == ["Requester", "UnknownPrincipal"], (
        "this one is too long"
    )


# Too many documents in the signing queue


@pytest.mark.parametrize("is_partial", [False, True])
@pytest.mark.parametrize("is_alone", [True, False])
async def test_reloading_the_page_gets_the_response(
    browser: SamlBrowser,
    shop: SamlApplication,
    applications: SamlApplications,
    pool: Pool,
    monkeypatch: pytest.MonkeyPatch,
    is_alone: bool,
    is_partial: bool,
) -> None:
    busy, sign = True, XmlDocuments.logout_response

    async def signed(*arguments: Any) -> str:
        if busy:
            raise Limited(1)
        return await sign(*arguments)

    monkeypatch.setattr(XmlDocuments, "logout_response", signed)
    silent = [await applications.add("silent", slo_url=None)] if is_partial else []
    others = [] if is_alone else [await applications.add("blog")]
    walk = LogoutWalk(browser, shop, *others, *silent)
    session = (await walk.sign_in())["shop"]
    message = logout_request(shop, browser.now(), session.name_id, session.session_index, ID="_begun")
    address = redirect_url(f"{shop.path}/slo", message, RelayState="there")
    refused = await walk.finish(await browser.open(address))
    assert (refused.status, refused.headers["Retry-After"]) == (429, "1")
    assert not await browser.is_in()
    busy = False
    last = await browser.open(address if is_alone else f"{others[0].path}/slo")
    assert final_statuses(last, shop, "_begun") == (["Success", "PartialLogout"] if is_partial else ["Success"])
    assert COOKIE not in browser.cookies
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
    assert len({set_cookies(step)[COOKIE].value for step in steps}) == 1
    assert final_statuses(await walk.finish(steps[0]), shop, "_begun") == ["Success"]
    assert walk.notified[0] == request[0]
    assert sorted(walk.notified) == ["blog", "desk", "wiki"]
    assert await no_logout_is_stored(pool)


async def test_parallel_sign_outs_on_our_page_notify_each_application_once(walk: LogoutWalk, browser: SamlBrowser, pool: Pool) -> None:
    await walk.sign_in()
    token = form_token(await browser.open(ACCOUNT))
    answers = await run_concurrently(8, lambda _: browser.send("/app/sign-out", form_token=token))
    assert {answer.status for answer in answers} == {200}
    last = await walk.finish(await browser.open(f"{walk.applications['shop'].path}/slo"))
    assert sorted(walk.notified) == ["blog", "desk", "shop", "wiki"]
    assert "Some applications didn't confirm" not in last.text
    assert await no_logout_is_stored(pool)


@pytest.mark.slow
async def test_all_applications_can_start_in_parallel(walk: LogoutWalk, browser: SamlBrowser, pool: Pool) -> None:
    """Each sends two requests.

    The first ends the session, the others take over, and no application is left to notify.
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


@pytest.mark.slow
async def test_forged_requests_in_parallel_with_responses_change_nothing(in_progress: LogoutInProgress, shop: SamlApplication) -> None:
    browser = in_progress.browser

    async def forge_or_answer(number: int) -> Answer:
        if number == 4:
            return await in_progress.walk.confirm(in_progress.first, in_progress.request_id)
        return await send_request(browser, shop, f"somebody-{number}@example.com", "_guessed", by_form=number % 2 == 0)

    await run_concurrently(8, forge_or_answer)
    last = await in_progress.walk.finish(await browser.open(f"{shop.path}/slo"))
    assert statuses(last, shop)[0] == "Success"
