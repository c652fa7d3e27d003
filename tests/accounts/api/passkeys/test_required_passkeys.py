"""Users with a passkey show it before they change a way in, end their part, or export their data (security PK-12)."""

import json
import re
from collections.abc import Mapping
from datetime import timedelta
from html import unescape
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts import factor_changes
from core.accounts.model.accounts import Account
from core.kernel.callers import Person
from core.kernel.sign_in_policy.explanations import SignInNotAccepted
from entrypoints.http.edge.access.declaration import access_of
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.proof.access.calls import routes
from tests.support.browser import FakeBrowser, form_token, hidden_fields, leads_to, main_of
from tests.support.builders import EMAIL, Answer, Api, add_member, add_organization, application, run_sql, sign_in
from tests.support.mfa import Authenticator, add_mfa
from tests.support.passkeys.users import PASSKEYS, PasskeyUser, sign_in_with_passkey

ACCESS: Final = {route: access_of(view) for route, view in routes(application())}
WAYS_IN: Final = sorted(route for route, access in ACCESS.items() if access.row(route.partition(" ")[0]).changes_factors)
# Acts that end the user's part, and the export. The deletions come last.
ENDS: Final[Mapping[str, Any]] = {
    "POST /api/user/personal-tokens": {"name": "Sync", "scopes": ["account:read"], "expires_in_days": 30},
    "GET /api/privacy/export/<user_id>": None,
    "POST /app/account/export": {},
    "POST /app/account/organizations/acme/leave": {},
    "POST /api/organizations/acme/leave": {},
    "POST /app/account/delete": {"email": EMAIL},
    "DELETE /api/user": None,
}


class Session:
    """The same user over the API and in a browser."""

    def __init__(self, api: Api, app: QuartTrio, pool: Pool, user: Account) -> None:
        self.api, self.pool, self.user = api, pool, user
        self.token, self.browser, self.form_token = "", FakeBrowser(app), ""

    async def call(self, route: str, body: Any) -> Answer:
        """Call a route. Pages get the body as a form."""
        await run_sql(self.pool, "delete from rates")
        method, _, path = route.partition(" ")
        path = re.sub("<[^>]*provider>", "websuite", path).replace("<user_id>", str(self.user.id))
        path = re.sub("<[^>]*>", str(uuid4()), path)
        if not path.startswith("/app"):
            return await self.api.call(method, path, None if method in ("GET", "DELETE") else body, token=self.token)
        if method == "GET":
            return await self.browser.open(path)
        return await self.browser.send(path, form_token=self.form_token, **body)

    async def asks_for_passkey(self, route: str, body: Any = None) -> bool:
        """Return whether the route refuses the session because of the passkey."""
        answer = await self.call(route, body or {})
        if " /app" in route:
            asked = urlsplit(leads_to(answer)) if answer.status == 303 else urlsplit("")
            return asked.path == "/app/reauthenticate" and parse_qs(asked.query)["policy"][0] in ("**", "****")
        challenge = answer.headers.get("WWW-Authenticate", "")
        return answer.status == 401 and 'error="insufficient_user_authentication", acr_values="phr", max_age="600"' in challenge


@pytest.fixture
async def holder(api: Api, user: Account) -> PasskeyUser:
    holder = PasskeyUser(api, (await api.login()).json["access_token"])
    await holder.add()
    return holder


@pytest.fixture(params=["password", "password and code"])
async def weak(
    request: pytest.FixtureRequest, holder: PasskeyUser, app: QuartTrio, pool: Pool, ports: Ports, user: Account, clock: FakeClock
) -> Session:
    """A thief's sessions with the password, and with a code if the account asks for a code."""
    await add_member(pool, await add_organization(pool, "acme"), user.id, confirmed=True)
    session = Session(holder.api, app, pool, user)
    if request.param == "password":
        session.token = (await holder.api.login()).json["access_token"]
        await session.browser.sign_in()
    else:
        authenticator = await add_mfa(ports, user)
        session.token = await code_session(holder.api, authenticator)
        clock.advance(timedelta(seconds=30))  # another code
        await session.browser.sign_in_with(authenticator)
    session.form_token = form_token(await session.browser.open("/app/account"))
    return session


async def code_session(api: Api, authenticator: Authenticator) -> str:
    """Return the token from a sign-in with the password and a code."""
    pending = (await api.login()).json
    answer = await api.post("/api/auth/mfa/verify", {"code": authenticator.code()}, token=pending["access_token"])
    assert answer.status == 200, answer.text
    token: str = answer.json["access_token"]
    return token


async def confirm(browser: FakeBrowser, holder: PasskeyUser, page: Answer) -> str:
    """Use the passkey on the page that confirms, and return the next page."""
    found = re.search('data-options="([^"]*)"', page.text)
    assert found
    credential = json.dumps(holder.authenticator.get(json.loads(unescape(found[1]))))
    return leads_to(await browser.send("/app/reauthenticate", **{**hidden_fields(page), "credential": credential}))


async def strengthen(session: Session, holder: PasskeyUser) -> None:
    """Show the passkey in both sessions."""
    options = (await holder.api.post("/api/auth/reauthenticate/passkey/options", token=session.token)).json["publicKey"]
    body = {"passkey": holder.authenticator.get(options)}
    assert (await holder.api.post("/api/auth/reauthenticate", body, token=session.token)).status == 200
    await confirm(session.browser, holder, await session.browser.open("/app/reauthenticate?policy=****"))


@pytest.mark.slow
async def test_each_change_of_a_way_in_asks_for_the_passkey(weak: Session, holder: PasskeyUser) -> None:
    assert len(WAYS_IN) > 25
    assert [route for route in WAYS_IN if not await weak.asks_for_passkey(route)] == []
    await strengthen(weak, holder)
    assert [route for route in WAYS_IN if await weak.asks_for_passkey(route)] == []


@pytest.mark.slow
async def test_each_end_of_the_own_part_asks_for_the_passkey(weak: Session, holder: PasskeyUser, pool: Pool) -> None:
    assert [route for route, body in ENDS.items() if not await weak.asks_for_passkey(route, body)] == []
    assert await run_sql(pool, "select count(*) from memberships") == [(1,)]
    await strengthen(weak, holder)
    answers = {route: await weak.call(route, body) for route, body in list(ENDS.items())[:4]}
    assert [answer.status for answer in answers.values()] == [200, 200, 200, 303]
    assert await run_sql(pool, "select count(*) from memberships") == [(0,)]
    assert (await weak.call("DELETE /api/user", None)).status in (200, 202, 204)
    assert await run_sql(pool, "select count(*) from users where closed_at is null and anonymized_at is null") == [(0,)]


async def test_an_owner_who_anonymizes_themselves_shows_the_passkey(holder: PasskeyUser, api: Api, pool: Pool, user: Account) -> None:
    await add_member(pool, await add_organization(pool, "acme"), user.id, "owner", confirmed=True)
    token, path = (await api.login()).json["access_token"], f"/api/privacy/forget/{user.id}"
    refused = await api.delete(path, token=token)
    assert (refused.status, 'acr_values="phr"' in refused.headers["WWW-Authenticate"]) == (401, True)
    assert (await api.delete(path, token=holder.token)).status == 200


async def test_the_thief_of_a_password_cannot_reach_phr(holder: PasskeyUser, api: Api) -> None:
    token = (await api.login()).json["access_token"]
    [passkey] = await holder.listed()
    assert (await api.post(f"{PASSKEYS}/options", {}, token=token)).status == 401
    assert (await api.delete(f"{PASSKEYS}/{passkey['id']}", token=token)).status == 401
    assert (await sign_in_with_passkey(api, holder.authenticator)).status == 200


@pytest.mark.parametrize("change", ["kind = 'security_key'", "user_verified = false", "rp_id = 'old.test'"])
async def test_a_passkey_that_does_not_sign_in_here_is_not_asked_for(holder: PasskeyUser, api: Api, pool: Pool, change: str) -> None:
    await run_sql(pool, f"update passkeys set {change}")  # noqa: S608
    token = (await api.login()).json["access_token"]
    assert (await api.post(f"{PASSKEYS}/options", {}, token=token)).status == 200


async def test_a_change_of_the_address_asks_for_the_passkey(holder: PasskeyUser, api: Api) -> None:
    token = (await api.login()).json["access_token"]
    refused = await api.patch("/api/user", {"email": "moved@example.com"}, token=token)
    assert (refused.status, 'acr_values="phr"' in refused.headers["WWW-Authenticate"]) == (401, True)
    assert (await api.patch("/api/user", {"email": "moved@example.com"}, token=holder.token)).status == 200


async def test_a_passkey_that_came_during_the_request_counts(api: Api, ports: Ports, user: Account, holder: PasskeyUser) -> None:
    """The edge refuses earlier, and the use case decides under the lock."""
    tokens = await sign_in(ports, user)
    caller = Person(user_id=user.id, email=user.email, session_id=tokens.session_id)
    async with ports.storage.transaction(by=caller) as tx:
        with pytest.raises(SignInNotAccepted):
            await factor_changes.lock_account_to_add(ports, tx, caller, ports.clock.now())


async def test_the_page_asks_for_the_passkey_and_comes_back_to_the_form(
    holder: PasskeyUser, app: QuartTrio, pool: Pool, user: Account, clock: FakeClock
) -> None:
    await add_member(pool, await add_organization(pool, "acme"), user.id, confirmed=True)
    browser = FakeBrowser(app)
    await browser.sign_in()
    token = form_token(await browser.open("/app/account"))
    page = await browser.open(leads_to(await browser.send("/app/account/organizations/acme/leave", form_token=token)))
    assert "Your account has a passkey, and this needs it." in main_of(page)
    assert "I've lost my passkey" in main_of(page)
    assert not any(way in page.text for way in ('name="password"', 'name="code"', "Email me a code"))
    kept = await browser.open(await confirm(browser, holder, page))
    assert leads_to(await browser.send("/app/account/organizations/acme/leave", **hidden_fields(kept))) == "/app/account/organizations"
    assert await run_sql(pool, "select count(*) from memberships") == [(0,)]


async def test_the_page_names_the_recovery_where_no_wait_helps(holder: PasskeyUser, app: QuartTrio, ports: Ports, user: Account) -> None:
    browser = FakeBrowser(app)
    await browser.sign_in_with(await add_mfa(ports, user))
    page = await browser.open(leads_to(await browser.open("/app/account/password")))
    assert "Only a recovery replaces it" in main_of(page)
    assert "I've lost my passkey" not in main_of(page)
