"""Changing factors after an old sign-in: one confirmation is enough, because the first refusal names the policy (PK-8)."""

import json
import re
from datetime import timedelta
from html import unescape
from typing import Final
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.kernel.sign_in_age import SignInAge
from entrypoints.http.edge.access.declaration import access_of
from ports import Ports
from tests.accounts.api.test_reset_and_policies import put_policy
from tests.fakes.outside import FakeClock
from tests.proof.access.calls import routes
from tests.support.browser import FakeBrowser, form_token, hidden_fields, leads_to, main_of
from tests.support.builders import EMAIL, Answer, Api, application, run_sql
from tests.support.mfa import Authenticator, add_mfa
from tests.support.passkeys.users import PasskeyUser
from tests.support.services import add_service, add_service_user
from tests.support.tenants import Tenant

ACCESS: Final = {route: access_of(view) for route, view in routes(application())}
OF_USERS: Final = ("person", "verified_person", "person_anywhere", "page_session", "sign_in_session")
LATER: Final = timedelta(minutes=11)
CODES: Final = "/app/account/two-factor/backup-codes"
# Acts that change no factor, so that no sign-in policy is asked. The other acts need a way that every policy accepts.
NO_FACTORS: Final = frozenset(
    {
        "DELETE /api/user",
        "POST /api/user/passkeys/wait",
        "DELETE /api/user/passkeys",
        "POST /app/account/passkeys/lost",
        "POST /app/account/passkeys/lost/remove",
        "POST /app/account/delete",
        "GET /api/privacy/export/<user_id>",
        "DELETE /api/privacy/forget/<user_id>",
        "POST /app/account/export",
        "POST /api/user/personal-tokens",
        "DELETE /api/user/personal-tokens/<personal_token_id>",
        "POST /app/account/personal-tokens/new",
        "POST /app/account/personal-tokens/<personal_token_id>/revoke",
        "DELETE /api/user/connections/<connection_id>",
        "POST /app/account/identities/connections/<connection_id>/unlink",
    }
)


@pytest.fixture
async def holder(acme: Tenant, api: Api, ports: Ports, pool: Pool, user: Account, app: QuartTrio) -> PasskeyUser:
    """A user with a password, an app and a passkey. Shop, which they use, asks for a passkey."""
    holder = PasskeyUser(api, (await api.login()).json["access_token"])
    await holder.add()
    shop = await add_service(pool, acme.org)
    await add_service_user(ports, shop, user.id, signed_in=False)
    await put_policy(acme, acme.org, shop, {"phishing_resistant": ["everyone"]})
    return holder


@pytest.fixture
async def authenticator(holder: PasskeyUser, ports: Ports, user: Account) -> Authenticator:
    return await add_mfa(ports, user)


async def test_the_first_refusal_names_the_policy_if_the_route_changes_factors(
    holder: PasskeyUser, app: QuartTrio, pool: Pool, clock: FakeClock
) -> None:
    browser, wrong, unnamed = FakeBrowser(app), list[str](), set[str]()
    await browser.sign_in()
    token = form_token(await browser.open("/app/account"))
    clock.advance(LATER)
    for route, access in ACCESS.items():
        method, _, path = route.partition(" ")
        if access.name not in OF_USERS or access.row(method).age is not SignInAge.FRESH:
            continue
        await run_sql(pool, "delete from rates")
        path = re.sub(r"<[^>]*provider>", "websuite", path)
        path = re.sub("<[^>]*>", str(uuid4()), path)
        if not path.startswith("/app"):
            answer = await holder.api.call(method, path, None if method in ("GET", "DELETE") else {}, token=holder.token)
            names = answer.json.get("organization") == "Shop" and 'acr_values="phr"' in answer.headers["WWW-Authenticate"]
            is_refused = (answer.status, "max_age" in answer.headers["WWW-Authenticate"]) == (401, True)
        else:
            answer = await (browser.send(path, form_token=token) if method == "POST" else browser.open(path))
            asked = urlsplit(leads_to(answer))
            names, is_refused = parse_qs(asked.query).get("policy") == ["**"], asked.path == "/app/reauthenticate"
        if not is_refused or names is not access.row(method).changes_factors:
            wrong.append(f"{route}: {answer.status} {answer.text or answer.headers}")
        if not access.row(method).changes_factors:
            unnamed.add(route)
    assert not wrong, "\n".join(wrong)
    assert unnamed == NO_FACTORS


async def confirm(browser: FakeBrowser, holder: PasskeyUser, page: Answer) -> str:
    """Use the passkey on the page that confirms, and return the next page."""
    found = re.search('data-options="([^"]*)"', page.text)
    assert found
    credential = json.dumps(holder.authenticator.get(json.loads(unescape(found[1]))))
    return leads_to(await browser.send("/app/reauthenticate", **{**hidden_fields(page), "credential": credential}))


async def test_one_round_with_the_passkey_confirms_the_change(
    holder: PasskeyUser, authenticator: Authenticator, app: QuartTrio, clock: FakeClock
) -> None:
    """This holds even if the old sign-in used the passkey."""
    browser = FakeBrowser(app)
    await browser.sign_in_with(authenticator)
    for _ in range(2):
        token = form_token(await browser.open("/app/account"))
        clock.advance(LATER)
        page = await browser.open(leads_to(await browser.send(CODES, form_token=token)))
        assert "Shop requires a passkey." in main_of(page)
        assert not any(way in page.text for way in ('name="password"', 'name="code"', "Email me a code"))
        kept = await browser.open(await confirm(browser, holder, page))
        assert "You can continue with what you asked for." in kept.text
        done = await browser.send(CODES, **hidden_fields(kept))
        assert (done.status, "backup codes" in done.text) == (200, True)


async def test_a_change_of_the_address_names_the_policy_too(holder: PasskeyUser, clock: FakeClock) -> None:
    clock.advance(LATER)
    changed = await holder.api.patch("/api/user", {"email": "moved@example.com"}, token=holder.token)
    assert (changed.status, changed.json["organization"], changed.json["rule"]) == (401, "Shop", "phishing_resistant")


async def test_without_a_policy_and_a_passkey_each_way_of_the_account_confirms(
    holder: PasskeyUser, pool: Pool, app: QuartTrio, clock: FakeClock
) -> None:
    await run_sql(pool, "delete from sign_in_policies")
    await run_sql(pool, "update passkeys set user_verified = false")  # otherwise the change needs the passkey
    browser = FakeBrowser(app)
    await browser.sign_in()
    clock.advance(LATER)
    page = await browser.open(leads_to(await browser.open("/app/account/passkeys/new")))
    assert (EMAIL in page.text, "not recently enough" in page.text, 'name="password"' in page.text) == (True, True, True)
