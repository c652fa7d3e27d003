"""Signing out of new sessions while a logout is in progress (security X-9).

Such logouts end the session here and are partial. The logout in progress continues unchanged.
"""

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from ports import Ports
from tests.federation.api.saml_logout.progress import (
    LogoutInProgress,
    both_bindings,
    final_statuses,
    logout_rows,
    no_logout_is_stored,
    send_request,
    sign_in_again,
)
from tests.support.browser import form_token
from tests.support.builders import PASSWORD, add_account, run_sql
from tests.support.platform import Platform
from tests.support.saml import SamlApplication
from tests.support.saml.browser import sign_out
from tests.support.services import add_service_user


async def finish_first(in_progress: LogoutInProgress, shop: SamlApplication, pool: Pool) -> None:
    """Finish the logout at `shop`, and check that it was complete."""
    step = await in_progress.walk.confirm(in_progress.first, in_progress.request_id)
    assert final_statuses(await in_progress.walk.finish(step), shop, "_begun") == ["Success"]
    assert sorted(in_progress.walk.notified) == ["blog", "desk", "wiki"]
    assert await no_logout_is_stored(pool)


@both_bindings
async def test_a_request_of_a_new_session_is_partial(
    in_progress: LogoutInProgress, shop: SamlApplication, by_form: bool, pool: Pool
) -> None:
    browser, rows = in_progress.browser, await logout_rows(pool)
    for initiator in (in_progress.rest[0], shop):  # the second browser started the logout in progress
        session = await sign_in_again(browser, initiator)
        await browser.sign_on(in_progress.rest[1])
        answer = await send_request(browser, initiator, session.name_id, session.session_index, by_form=by_form, id_="_new")
        assert final_statuses(answer, initiator, "_new") == ["Success", "PartialLogout"]
        assert not await browser.is_in()
        assert "gatehouse-session" not in browser.cookies
        assert await logout_rows(pool) == rows
    await finish_first(in_progress, shop, pool)


async def test_signing_out_of_a_new_session_on_our_page_is_partial(
    in_progress: LogoutInProgress, shop: SamlApplication, pool: Pool
) -> None:
    browser = in_progress.browser
    await sign_in_again(browser, shop)
    token, rows = form_token(await browser.open("/app/account")), await logout_rows(pool)
    page = await browser.send("/app/sign-out", form_token=token)
    assert (page.status, "Some applications didn't confirm" in page.text) == (200, True)
    assert not await browser.is_in()
    assert await logout_rows(pool) == rows
    assert 'http-equiv="refresh"' in (await browser.send("/app/sign-out", form_token=token)).text, "a second click continues the first"
    await finish_first(in_progress, shop, pool)


async def test_signing_out_of_a_new_session_without_applications_continues_the_logout(
    in_progress: LogoutInProgress, shop: SamlApplication, pool: Pool
) -> None:
    await in_progress.browser.sign_in()
    page = await sign_out(in_progress.browser)
    assert 'http-equiv="refresh"' in page.text
    await finish_first(in_progress, shop, pool)


async def test_anonymization_of_another_user_keeps_the_names(
    in_progress: LogoutInProgress, shop: SamlApplication, ports: Ports, user: Account, platform: Platform, pool: Pool
) -> None:
    """Another user has signed in since, and is signed out here."""
    browser, application = in_progress.browser, in_progress.rest[0]
    eve = await add_account(ports, "eve@example.com")
    await add_service_user(ports, application.id, eve.id, signed_in=False)
    await browser.sign_in("eve@example.com", PASSWORD)
    session = await browser.sign_on(application)
    answer = await send_request(browser, application, session.name_id, session.session_index, id_="_eve")
    assert final_statuses(answer, application, "_eve") == ["Success", "PartialLogout"]
    forgotten = await platform.api.delete(f"/api/privacy/forget/{eve.id}", token=platform.token)
    assert forgotten.status == 200, forgotten.text
    assert await run_sql(pool, "select count(*) from saml_logout_requests where name_id <> '' and user_id = %s", user.id) == [(4,)]
    await finish_first(in_progress, shop, pool)
