"""Users under sign-in policies that accept different methods: they can still change their factors.

All proofs in the session count. The page that asks for a confirmation offers the methods that a policy misses.
"""

import re
from datetime import timedelta
from typing import Any

import pytest
from quart_trio import QuartTrio

from core.accounts.model.accounts import Account
from core.kernel.page_paths import PASSKEY_OFFER_PATH
from ports import Ports
from tests.accounts.api.test_reset_and_policies import put_policy
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.support.browser import FakeBrowser, form_token, hidden_fields, leads_to, main_of
from tests.support.builders import BASE_URL, EMAIL, PASSWORD, Api, add_account, add_member, add_organization, deliver, run_sql, sign_in
from tests.support.mfa import add_mfa
from tests.support.passkeys.authenticator import SoftAuthenticator
from tests.support.passkeys.users import PasskeyUser
from tests.support.tenants import Tenant

NEW_PASSKEY = "/app/account/passkeys/new"
REAUTHENTICATE = "/api/auth/reauthenticate"
MEMBERS = "/api/organizations/acme/members"
BY_PASSWORD: dict[str, Any] = {"methods": ["password", "totp"]}
BY_EMAIL: dict[str, Any] = {"methods": ["email", "passkey"]}
LATER: dict[str, Any] = {**BY_EMAIL, "due_at": {"methods": "2100-01-01T00:00:00Z"}, "until_due": BY_PASSWORD}


async def join(acme: Tenant, monkeypatch: pytest.MonkeyPatch, *documents: dict[str, Any]) -> Account:
    """Return a user who is a member in acme and in other organizations with these policies. Emails sign in, too."""
    monkeypatch.setattr(type(acme.ports.policy), "email_sign_in", True)
    user = await add_account(acme.ports)
    await acme.join("ada", user)
    await put_policy(acme, acme.org, None, documents[0])
    for number, document in enumerate(documents[1:]):
        org = await add_organization(acme.pool, f"org-{number}")
        await add_member(acme.pool, org, user.id, confirmed=True)
        await put_policy(acme, org, None, document)
    return user


async def emailed_code(ports: Ports, sent: FakeMailTransport) -> str:
    await deliver(ports)
    code = re.search(r"\b\d{6}\b", sent.emails[-1].text)
    assert code is not None
    return code[0]


@pytest.mark.parametrize("documents", [(BY_PASSWORD, BY_EMAIL), (LATER,)], ids=["two organizations", "grace period"])
async def test_two_methods_in_one_session_meet_policies_with_different_methods(
    acme: Tenant,
    api: Api,
    ports: Ports,
    sent: FakeMailTransport,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    documents: tuple[dict[str, Any], ...],
) -> None:
    """The first factor that was proved minutes ago stays beside the new factor. So the user can add what a third organization asks for."""
    await join(acme, monkeypatch, *documents, {"phishing_resistant": ["everyone"]})
    third = f"org-{len(documents) - 1}"
    holder = PasskeyUser(api, (await api.login(EMAIL, PASSWORD)).json["access_token"])
    refused = await api.post("/api/user/passkeys/options", {"kind": "passkey"}, token=holder.token)
    source = "Acme" if documents == (LATER,) else "Org-0"
    assert refused.status == 401, refused.text
    assert (refused.status, refused.json["rule"], refused.json["organization"]) == (401, "methods", source)
    assert f"{source} accepts only some ways to sign in: email, passkey. Confirm that it's you" in refused.json["error"]
    options = (await api.get("/api/auth/reauthenticate", token=holder.token)).json
    assert (options["needs_first_factor"], options["methods"]) == (True, ["email"])
    assert (await api.post("/api/auth/reauthenticate/email", token=holder.token)).status == 200
    code = await emailed_code(ports, sent)
    clock.advance(ports.policy.fresh_sign_in_ttl)
    assert (await api.post("/api/auth/reauthenticate", {"email_code": code}, token=holder.token)).status == 200
    assert (await api.get(f"/api/organizations/{third}/members", token=holder.token)).status == 403
    clock.advance(timedelta(seconds=1))
    refused = await api.post("/api/user/passkeys/options", {"kind": "passkey"}, token=holder.token)
    assert "ways to sign in: password, authenticator app." in refused.text, "the password is too old"
    assert (await api.post("/api/auth/reauthenticate", {"password": PASSWORD}, token=holder.token)).status == 200
    await holder.add()
    assert (await api.get(f"/api/organizations/{third}/members", token=holder.token)).status == 200


@pytest.mark.parametrize("with_key", [False, True])
async def test_a_second_factor_is_asked_for_once_in_ten_minutes(
    acme: Tenant, api: Api, ports: Ports, sent: FakeMailTransport, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, *, with_key: bool
) -> None:
    """This holds even if two organizations accept different methods, or ask again after a few minutes."""
    rules = {"second_factor": ["everyone"], "session_idle_minutes": 5}
    user = await join(acme, monkeypatch, {}, {})
    holder = PasskeyUser(api, (await sign_in(ports, user)).access_token)
    app = None if with_key else await add_mfa(ports, user)
    if with_key:
        await holder.add_key()
    for [org] in await run_sql(acme.pool, "select org_id from memberships where user_id = %s", user.id):
        await put_policy(acme, org, None, {"methods": ["password" if org == acme.org else "email", "totp", "passkey"], **rules})

    async def second() -> dict[str, Any]:
        if app is not None:
            return {"code": app.code()}
        options = (await api.post(f"{REAUTHENTICATE}/passkey/options", token=holder.token)).json["publicKey"]
        return {"passkey": holder.authenticator.get(options)}

    async def confirm(**factors: Any) -> int:
        return (await api.post(REAUTHENTICATE, factors, token=holder.token)).status

    assert await confirm(password=PASSWORD, **await second()) == 200
    clock.advance(timedelta(seconds=1))
    assert (await api.post("/api/user/passkeys/options", {"kind": "passkey"}, token=holder.token)).status == 401
    options = (await api.get(REAUTHENTICATE, token=holder.token)).json
    assert (options["needs_first_factor"], options["methods"], options["needs_second_factor"]) == (True, ["email"], False)
    assert (await api.post(f"{REAUTHENTICATE}/email", token=holder.token)).status == 200
    assert await confirm(email_code=await emailed_code(ports, sent)) == 200
    assert (await api.post("/api/user/passkeys/options", {"kind": "passkey"}, token=holder.token)).status == 200
    for needs_second in (False, True):
        assert (await api.get(MEMBERS, token=holder.token)).status == 200
        clock.advance(timedelta(minutes=6))
        assert (await api.get(MEMBERS, token=holder.token)).status == 401
        assert await confirm(password=PASSWORD) == (401 if needs_second else 200)
    assert await confirm(password=PASSWORD, **await second()) == 200


async def test_the_owner_of_a_stolen_passkey_deletes_it_under_two_policies(acme: Tenant, api: Api, ports: Ports) -> None:
    """The first policy asks for a passkey, and the second policy accepts none."""
    user = await add_account(ports)
    holder = PasskeyUser(api, (await sign_in(ports, user)).access_token)
    stolen = await holder.add()
    holder.authenticator = SoftAuthenticator(origin=BASE_URL)
    await holder.add()
    await acme.join("ada", user)
    await put_policy(acme, acme.org, None, {"phishing_resistant": ["everyone"]})
    globex = await add_organization(acme.pool, "globex")
    await add_member(acme.pool, globex, user.id, confirmed=True)
    await put_policy(acme, globex, None, BY_PASSWORD)
    holder.token = (await api.login(EMAIL, PASSWORD)).json["access_token"]
    refused = await api.delete(f"/api/user/passkeys/{stolen['id']}", token=holder.token)
    assert (refused.status, 'acr_values="phr"' in refused.headers["WWW-Authenticate"]) == (401, True)
    options = (await api.post("/api/auth/reauthenticate/passkey/options", token=holder.token)).json["publicKey"]
    proof = {"passkey": holder.authenticator.get(options)}
    assert (await api.post("/api/auth/reauthenticate", proof, token=holder.token)).status == 200
    assert (await api.delete(f"/api/user/passkeys/{stolen['id']}", token=holder.token)).status == 204


async def test_the_page_of_a_change_asks_for_the_method_that_is_missing_and_comes_back(
    acme: Tenant, app: QuartTrio, ports: Ports, sent: FakeMailTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    await join(acme, monkeypatch, BY_PASSWORD, BY_EMAIL)
    browser = FakeBrowser(app)
    await browser.sign_in(EMAIL, PASSWORD)
    asks = leads_to(await browser.open(NEW_PASSKEY))
    page = await browser.open(asks)
    assert "Org-0 accepts only some ways to sign in: email, passkey." in main_of(page)
    assert ('name="password"' in page.text, "Email me a code" in page.text) == (False, True)
    asks = leads_to(await browser.send("/app/reauthenticate/email", **hidden_fields(page)))
    page = await browser.open(asks)
    asks = leads_to(await browser.send("/app/reauthenticate", **hidden_fields(page), email_code=await emailed_code(ports, sent)))
    assert leads_to(await browser.open(asks)) == NEW_PASSKEY
    assert (await browser.open(NEW_PASSKEY)).status == 200


@pytest.mark.parametrize("document", [BY_EMAIL, {**BY_EMAIL, "due_at": {"methods": "2100-01-01T00:00:00Z"}}], ids=["now", "later"])
async def test_no_passkey_is_offered_to_a_sign_in_that_may_not_add_one(
    acme: Tenant, app: QuartTrio, monkeypatch: pytest.MonkeyPatch, document: dict[str, Any]
) -> None:
    """The user has asked for no passkey, so no page asks them to confirm anything. The sign-in's target stays."""
    target = "/app/organizations/acme/members"
    browser = FakeBrowser(app)

    async def sign_in_for_target() -> str:
        browser.cookies.clear()
        page = await browser.open(f"/app/sign-in?next={target}")
        return leads_to(await browser.fill(page, email=EMAIL, password=PASSWORD, next=target, can_passkey="yes"))

    await join(acme, monkeypatch, {})
    offer = await sign_in_for_target()
    assert offer.startswith(PASSKEY_OFFER_PATH)
    await put_policy(acme, acme.org, None, document)
    assert leads_to(await browser.open(offer)) == target
    form = {"next": target, "form_token": form_token(await browser.open("/app/account")), "credential": "{}"}
    assert leads_to(await browser.send(PASSKEY_OFFER_PATH, **form, conditional="yes")) == target
    assert leads_to(await browser.send(PASSKEY_OFFER_PATH, **form)) == target
    assert await sign_in_for_target() == target
