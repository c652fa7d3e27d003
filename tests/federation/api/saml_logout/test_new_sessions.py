"""Sessions that start while a logout is in progress (decision 183)."""

from datetime import timedelta

from adapters.postgres.engine.pool import Pool
from core.accounts.accounts_rules import Account
from core.federation.saml.logout_rules import LOGOUT_TTL
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.federation.api.saml_logout.progress import (
    LogoutInProgress,
    both_bindings,
    final_statuses,
    no_logout_is_stored,
    send_request,
    sign_in_again,
)
from tests.support.builders import PASSWORD, add_account, run_sql
from tests.support.platform import Platform
from tests.support.saml import SamlApplication
from tests.support.saml_browser import RedirectedMessage, redirect_target, sign_out
from tests.support.services import add_service_user


@both_bindings
async def test_a_new_session_is_merged_with_the_rest_of_the_old_logout(in_progress: LogoutInProgress, by_form: bool, pool: Pool) -> None:
    initiator, remaining = in_progress.rest
    browser = in_progress.browser
    session = await sign_in_again(browser, initiator)
    assert session.session_index != in_progress.sessions[initiator.slug].session_index
    step = await send_request(browser, initiator, session.name_id, session.session_index, by_form=by_form, id_="_new")
    assert not await browser.is_in()
    assert final_statuses(await in_progress.finish(step), initiator, "_new") == ["Success"]
    # The initiator also has an old session, which it must end too.
    assert sorted(in_progress.walk.notified) == sorted([in_progress.first.slug, initiator.slug, remaining.slug])
    assert await no_logout_is_stored(pool)


async def test_a_partial_logout_stays_partial(in_progress: LogoutInProgress) -> None:
    browser, initiator = in_progress.browser, in_progress.rest[0]
    for _ in range(2):
        await browser.open(f"{in_progress.first.path}/slo")  # continue without a response of the first application
    session = await sign_in_again(browser, initiator)
    step = await send_request(browser, initiator, session.name_id, session.session_index, id_="_new")
    assert final_statuses(await in_progress.walk.finish(step), initiator, "_new") == ["Success", "PartialLogout"]


async def test_merged_logouts_last_as_long_as_the_newest(in_progress: LogoutInProgress, clock: FakeClock) -> None:
    browser, initiator = in_progress.browser, in_progress.rest[0]
    clock.advance(LOGOUT_TTL - timedelta(minutes=1))
    session = await sign_in_again(browser, initiator)
    step = await send_request(browser, initiator, session.name_id, session.session_index, id_="_new")
    clock.advance(timedelta(minutes=4))
    assert final_statuses(await in_progress.finish(step), initiator, "_new") == ["Success"]


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


async def test_anonymization_removes_the_names_of_one_user_only(
    in_progress: LogoutInProgress, ports: Ports, user: Account, platform: Platform, pool: Pool
) -> None:
    """Another user has signed in and out since. Their names stay, and they are signed out."""
    browser = in_progress.browser
    initiator, notified = in_progress.rest
    eve = await add_account(ports, "eve@example.com")
    for application in (initiator, notified):
        await add_service_user(ports, application.id, eve.id)
    await browser.sign_in("eve@example.com", PASSWORD)
    session, other_session = await browser.sign_on(initiator), await browser.sign_on(notified)
    answer = await platform.api.delete(f"/api/privacy/forget/{user.id}", token=platform.token)
    assert answer.status == 200, answer.text
    step = await send_request(browser, initiator, session.name_id, session.session_index, id_="_eve")
    message = RedirectedMessage(redirect_target(step))
    assert [index.text for index in message.find("//samlp:SessionIndex")] == [other_session.session_index]
    assert await run_sql(pool, "select count(*) from saml_logout_requests where name_id <> ''") == [(2,)]
    assert final_statuses(await in_progress.walk.finish(step), initiator, "_eve") == ["Success", "PartialLogout"]
