"""Responses that are repeated or delayed, while a logout is in progress (security X-9)."""

from typing import Any

import pytest

from adapters.postgres.engine.pool import Pool
from adapters.saml.documents import XmlDocuments
from core.kernel.errors import Limited
from tests.fakes.outside import FakeClock
from tests.federation.api.saml_logout.progress import LOGOUT_COOKIE, LogoutInProgress, both_bindings, final_statuses, no_logout_is_stored
from tests.support.builders import run_concurrently
from tests.support.saml import SamlApplication, encode_base64, logout_request, logout_response, redirect_url
from tests.support.saml.browser import LogoutWalk, SamlApplications, SamlBrowser, redirect_target


@both_bindings
async def test_a_repeated_response_leads_to_the_same_step(in_progress: LogoutInProgress, shop: SamlApplication, by_form: bool) -> None:
    """A repeated response may come before or after the next redirect, and does not count as a return from the next application."""
    browser, first = in_progress.browser, in_progress.first
    response = logout_response(first, browser.now(), in_progress.request_id)
    address = redirect_url(f"{first.path}/slo", response, "SAMLResponse")
    redirect_target(await browser.open(address))
    next_step = redirect_target(await browser.open(address))
    assert next_step == f"{first.path}/slo"
    step = await browser.open(next_step)
    for _ in range(3):
        if by_form:
            address = redirect_target(await browser.post_cross_site(f"{first.path}/slo", SAMLResponse=encode_base64(response)), 303)
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

    async def sign_unless_busy(*arguments: Any) -> str:
        if busy:
            raise Limited(1)
        return await sign(*arguments)

    monkeypatch.setattr(XmlDocuments, "logout_response", sign_unless_busy)
    silent = [await applications.add("silent", slo_url=None)] if is_partial else []
    other_applications = [] if is_alone else [await applications.add("blog")]
    walk = LogoutWalk(browser, shop, *other_applications, *silent)
    session = (await walk.sign_in())["shop"]
    message = logout_request(shop, browser.now(), session.name_id, session.session_index, ID="_begun")
    address = redirect_url(f"{shop.path}/slo", message, RelayState="there")
    busy_page = await walk.finish(await browser.open(address))
    assert (busy_page.status, busy_page.headers["Retry-After"]) == (429, "1")
    assert not await browser.is_in()
    busy = False
    page = await browser.open(address if is_alone else f"{other_applications[0].path}/slo")
    assert final_statuses(page, shop, "_begun") == (["Success", "PartialLogout"] if is_partial else ["Success"])
    assert LOGOUT_COOKIE not in browser.cookies
    assert await no_logout_is_stored(pool)
