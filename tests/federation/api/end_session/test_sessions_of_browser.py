"""A browser session ends together with the application sessions that the user authorized in it."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Final

import pytest
from quart_trio import QuartTrio

from core.accounts.model.accounts import Account
from tests.fakes.outside import FakeClock
from tests.federation.api.end_session.applications import end_session_path, is_usable, openid_tokens
from tests.federation.api.relying import REVOKE, RelyingParty, claims
from tests.support.browser import SIGN_IN, form_token, leads_to
from tests.support.builders import EMAIL, NEW_PASSWORD, PASSWORD, add_account, add_platform_owner, run_concurrently, run_sql, sign_in
from tests.support.saml import SamlApplication
from tests.support.saml.browser import SamlBrowser, request_logout, sign_out

OTHER: Final = "other@example.com"
ONLINE, OFFLINE = "openid", "openid offline_access"


class World:
    """The user's browser, another browser of the same user, and applications."""

    def __init__(self, app: QuartTrio, clock: FakeClock, till: RelyingParty, browser: SamlBrowser, shop: SamlApplication) -> None:
        self.clock, self.till, self.browser, self.shop = clock, till, browser, shop
        self.elsewhere = SamlBrowser(app, clock)
        self.tokens: dict[str, Any] = {}

    async def sign_in_over_the_session(self, email: str) -> None:
        """Sign in with the form of the sign-in page, although this browser has a session already."""
        session = self.browser.cookies.pop("gatehouse-session")
        page = await self.browser.open(SIGN_IN)
        self.browser.cookies["gatehouse-session"] = session
        leads_to(await self.browser.send(SIGN_IN, form_token=form_token(page), email=email, password=PASSWORD))
        assert self.browser.cookies["gatehouse-session"] != session


@pytest.fixture
async def world(app: QuartTrio, clock: FakeClock, till: RelyingParty, browser: SamlBrowser, shop: SamlApplication) -> World:
    return World(app, clock, till, browser, shop)


async def sign_out_on_our_page(world: World) -> None:
    await sign_out(world.browser)


async def sign_out_by_an_application(world: World) -> None:
    await world.browser.open(end_session_path(id_token_hint=world.tokens[ONLINE]["id_token"]))


async def sign_out_by_saml(world: World) -> None:
    session = await world.browser.sign_on(world.shop)
    await request_logout(world.browser, world.shop, session.name_id, session.session_index)


async def another_user_signs_in(world: World) -> None:
    await add_account(world.till.tenant.ports, OTHER)
    await world.sign_in_over_the_session(OTHER)


async def the_same_user_signs_in_again(world: World) -> None:
    await world.sign_in_over_the_session(EMAIL)


async def sign_in_again_and_out(world: World) -> None:
    await world.sign_in_over_the_session(EMAIL)
    await sign_out(world.browser)


async def end_the_browser_session_elsewhere(world: World) -> None:
    [(session,)] = await run_sql(world.till.tenant.pool, "select id from sessions where browser_hash is not null and ended_at is null")
    await world.elsewhere.sign_in()
    await world.elsewhere.submit(f"/app/account/sessions/{session}/end", "/app/account/security")


async def end_all_other_sessions(world: World) -> None:
    await world.elsewhere.sign_in()
    await world.elsewhere.submit("/app/account/sessions/end-others", "/app/account/security")


async def change_the_password(world: World) -> None:
    await world.elsewhere.sign_in()
    fields = {"current_password": PASSWORD, "new_password": NEW_PASSWORD}
    await world.elsewhere.submit("/app/account/password", "/app/account/password", **fields)


async def sign_out_elsewhere(world: World) -> None:
    await world.elsewhere.sign_in()
    await sign_out(world.elsewhere)


async def an_admin_ends_the_sessions(world: World) -> None:
    tenant, [(user_id,)] = world.till.tenant, await run_sql(world.till.tenant.pool, "select id from users where email = %s", EMAIL)
    answer = await tenant.api.delete(f"{tenant.path}/users/{user_id}/sessions", token=tenant.token("admin"))
    assert answer.json["sessions_revoked"] == 3


async def the_application_revokes_a_token(world: World) -> None:
    till = world.till
    client = {"client_id": str(till.client_id), "client_secret": till.secret}
    assert (await till.post(REVOKE, token=world.tokens[ONLINE]["refresh_token"], **client)).status == 200


async def a_refresh_token_is_used_again(world: World) -> None:
    token = world.tokens[ONLINE]["refresh_token"]
    assert (await world.till.refresh(token)).status == 200
    world.clock.advance(timedelta(minutes=1))
    assert (await world.till.refresh(token)).status == 400


async def the_platform_deactivates_the_account(world: World) -> None:
    tenant, [(user_id,)] = world.till.tenant, await run_sql(world.till.tenant.pool, "select id from users where email = %s", EMAIL)
    platform_owner = await sign_in(tenant.ports, await add_platform_owner(tenant.ports))
    path = f"/api/platform/users/{user_id}/deactivate"
    assert (await tenant.api.post(path, {"reason": "stolen laptop"}, token=platform_owner.access_token)).status == 200


End = Callable[[World], Awaitable[None]]
# The sessions that live on. Without the scope `openid`, applications keep their sessions as before.
KEEPS: Final[dict[End, set[str]]] = {
    sign_out_on_our_page: {OFFLINE, ""},
    sign_out_by_an_application: {OFFLINE, ""},
    sign_out_by_saml: {OFFLINE, ""},
    another_user_signs_in: {OFFLINE, ""},
    the_same_user_signs_in_again: {ONLINE, OFFLINE, ""},
    sign_in_again_and_out: {OFFLINE, ""},
    end_the_browser_session_elsewhere: {OFFLINE, ""},
    end_all_other_sessions: set(),
    change_the_password: set(),
    sign_out_elsewhere: {ONLINE, OFFLINE, ""},
    an_admin_ends_the_sessions: set(),
    the_application_revokes_a_token: {OFFLINE, ""},
    a_refresh_token_is_used_again: {OFFLINE, ""},
    the_platform_deactivates_the_account: set(),
}


@pytest.mark.parametrize("end", KEEPS, ids=lambda end: end.__name__)
async def test_the_sessions_that_end(world: World, user: Account, end: End) -> None:
    """The application gets notices exactly for the OpenID Connect sessions that end (security S-9)."""
    till, tokens = world.till, world.tokens
    await run_sql(till.tenant.pool, "update services set backchannel_logout_uri = 'https://till.example.com/logout'")
    tokens[ONLINE] = await openid_tokens(till)
    tokens[OFFLINE] = await openid_tokens(till, scope=OFFLINE)
    tokens[""] = await till.tokens()
    await end(world)
    notices = {str(session) for (session,) in await run_sql(till.tenant.pool, "select session_id from logout_notices")}
    assert notices == {claims(tokens[scope])["sid"] for scope in {ONLINE, OFFLINE} - KEEPS[end]}
    usable = {scope for scope in (ONLINE, OFFLINE) if await is_usable(till, tokens[scope])}
    assert usable | ({""} if await till.is_live(tokens[""]) else set()) == KEEPS[end]
    refreshed = {scope for scope, pair in tokens.items() if (await till.refresh(pair["refresh_token"])).status == 200}
    assert refreshed == KEEPS[end]


@pytest.mark.parametrize("by", ["policy", "unassignment"])
async def test_the_loss_of_access_ends_all_sessions(world: World, user: Account, by: str) -> None:
    """Applications get notices for ended OpenID Connect sessions."""
    till, tenant = world.till, world.till.tenant
    path, token = f"{tenant.path}/services/{till.slug}", tenant.token("owner")
    await run_sql(tenant.pool, "update services set backchannel_logout_uri = 'https://till.example.com/logout'")
    if by == "unassignment":
        assert (await tenant.api.call("PUT", f"{path}/assignments/{user.id}", token=token)).status in (200, 204)
        assert (await tenant.api.call("PUT", f"{path}/access", {"policy": "assigned"}, token=token)).status == 200
    pairs = [await openid_tokens(till), await openid_tokens(till, scope=OFFLINE)]
    plain = await till.tokens()
    if by == "unassignment":
        assert (await tenant.api.delete(f"{path}/assignments/{user.id}", token=token)).status == 204
    else:
        assert (await tenant.api.call("PUT", f"{path}/access", {"policy": "members"}, token=token)).status == 200
    notices = await run_sql(tenant.pool, "select session_id from logout_notices")
    assert {str(session) for (session,) in notices} == {claims(pair)["sid"] for pair in pairs}
    assert not await till.is_live(plain)
    assert [(await till.refresh(pair["refresh_token"])).status for pair in (*pairs, plain)] == [400] * 3


@pytest.mark.parametrize(
    "end", [sign_out_on_our_page, another_user_signs_in, end_the_browser_session_elsewhere], ids=lambda end: end.__name__
)
async def test_a_code_that_is_exchanged_during_the_sign_out_leaves_no_session(world: World, end: End) -> None:
    """Either the exchange comes first, and its session ends too, or the code is refused."""
    till, answers = world.till, []
    await openid_tokens(till)  # the user agrees
    code = await till.code(scope=ONLINE, response_type="code")

    async def act(number: int) -> None:
        if number:
            await end(world)
        else:
            answers.append(await till.exchange(code))

    await run_concurrently(2, act)
    [answer] = answers
    assert answer.status in (200, 400)
    if answer.status == 200:
        assert not await is_usable(till, answer.json)
