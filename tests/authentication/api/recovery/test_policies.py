"""Recoveries for users with a sign-in policy."""

import json
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.mfa import OwnerRecoveryNeeded, RecoveryNeeded
from core.authentication.model.recovery import (
    FactorNotEnough,
    PasskeyNotAccepted,
)
from core.kernel.roles import ADMIN
from core.kernel.values import new_id
from tests.authentication.api.recovery.lost import REASON, RECOVER, WRONG, LostUser, app_of, options_of, says
from tests.support.browser import FakeBrowser, form_token, leads_to
from tests.support.builders import (
    BASE_URL,
    PASSWORD,
    add_account,
    add_organization,
    run_sql,
    sign_in,
)
from tests.support.passkeys.authenticator import SoftAuthenticator
from tests.support.platform import Platform
from tests.support.services import add_service, add_service_user

SECOND = timedelta(seconds=1)


async def test_a_policy_that_asks_for_passkeys_refuses_an_app(ada: LostUser) -> None:
    path = await ada.recover()
    app = app_of(ada, await ada.browser.open(path))
    await ada.require(phishing_resistant=["everyone"])
    page = await ada.browser.open(path)
    assert "authenticator app</h2>" not in page.text
    refused = await ada.browser.send(f"{path}/app", form_token=form_token(page), code=app.code())
    assert (refused.status, "Set up a passkey." in refused.text) == (400, True)
    assert (await ada.send_passkey(path, SoftAuthenticator(origin=BASE_URL))).status == 200


@pytest.mark.parametrize(
    ("methods", "factors"),
    [
        (["password", "totp"], "authenticator app"),
        (["password", "passkey"], "passkey"),
        (["password", "totp", "passkey"], "passkey or authenticator app"),
    ],
    ids=str,
)
async def test_the_email_names_the_accepted_factors(ada: LostUser, methods: list[str], factors: str) -> None:
    await ada.issue()
    await ada.require(methods=methods)  # the email is prepared afterwards
    token, sentence = await ada.link(), f"you set up a new {factors}."
    message = ada.sent.newest(RECOVER, ada.account.email)
    assert [sentence in " ".join(text.split()) for text in (message.text, message.html)] == [True, True]
    pages = [(await ada.browser.open(f"{RECOVER}?token={each}")).text for each in (token, WRONG)]
    assert ["you set up a new way to prove" in page for page in pages] == [True, True], "a page says nothing about the link"


@pytest.mark.parametrize("is_listed", [False, True])
async def test_for_break_glass_a_recovery_sets_up_the_factor_of_later_rules(ada: LostUser, pool: Pool, is_listed: bool) -> None:
    """Otherwise the user would need a second recovery when the rule starts."""
    connection = {"acme.example": {"id": str(UUID(int=1)), "slug": "okta"}}
    due_at = {"phishing_resistant": "2100-01-01T00:00:00+00:00"}
    await ada.require(phishing_resistant=["admins"], due_at=due_at, required_connections=connection)
    path = await ada.recover()
    await run_sql(pool, "update memberships set role = 'admin' where user_id = %s", ada.account.id)
    if is_listed:
        await run_sql(pool, "insert into break_glass_users (org_id, user_id) values (%s, %s)", ada.acme.org, ada.account.id)
    page = await ada.browser.open(path)
    assert [name for name in ("app", "passkey") if f'action="{path}/{name}"' in page.text] == ["app", "passkey"][is_listed:]
    assert (await ada.send_passkey(path, SoftAuthenticator(origin=BASE_URL))).status == 200


@pytest.mark.parametrize("is_of_application", [False, True], ids=["organization", "application"])
@pytest.mark.parametrize(
    ("methods", "accepted"),
    [
        (["password", "totp"], ["app"]),
        (["password", "passkey"], ["passkey"]),
        (["password", "email"], ["app", "passkey"]),
        (["password", "totp", "passkey"], ["app", "passkey"]),
    ],
    ids=str,
)
async def test_a_recovery_sets_up_only_factors_by_allowed_methods(
    ada: LostUser, pool: Pool, methods: list[str], accepted: list[str], is_of_application: bool
) -> None:
    shop = await add_service(pool, ada.acme.org)
    await add_service_user(ada.acme.ports, shop, ada.account.id)
    path = await ada.recover()
    page = await ada.browser.open(path)
    app, options = app_of(ada, page), options_of(page)
    await ada.require(shop if is_of_application else None, methods=methods)
    page = await ada.browser.open(path)
    assert [name for name in ("app", "passkey") if f'action="{path}/{name}"' in page.text] == accepted
    credential = json.dumps(SoftAuthenticator(origin=BASE_URL).create(options))
    for name, fields in {"app": {"code": app.code()}, "passkey": {"credential": credential}}.items():
        if name not in accepted:
            refused = await ada.browser.send(f"{path}/{name}", form_token=form_token(page), **fields)
            assert says(refused, FactorNotEnough if name == "app" else PasskeyNotAccepted)


@pytest.mark.parametrize("is_member", [True, False], ids=["member", "end user"])
@pytest.mark.parametrize("is_of_application", [False, True], ids=["organization", "application"])
@pytest.mark.parametrize(
    "rules",
    [
        {"second_factor": ["everyone"]},
        {"second_factor": ["high_risk"]},
        {"second_factor": ["everyone"], "due_at": {"second_factor": "2100-01-01T00:00:00+00:00"}},
    ],
    ids=["everyone", "high risk", "later"],
)
async def test_where_a_policy_asks_for_a_second_factor_only_a_recovery_removes_it(
    ada: LostUser, pool: Pool, platform: Platform, rules: dict[str, Any], is_of_application: bool, is_member: bool
) -> None:
    shop = await add_service(pool, ada.acme.org)
    await add_service_user(ada.acme.ports, shop, ada.account.id)
    if not is_member:
        await run_sql(pool, "delete from memberships where user_id = %s", ada.account.id)
    await ada.require(shop if is_of_application else None, **rules)
    for name in ("owner", "admin"):
        ada.acme.sessions[name] = await sign_in(ada.acme.ports, ada.acme.people[name], ada.acme.org, second_factor=True)
    removals = [
        (f"{ada.acme.path}/users/{ada.account.id}/mfa", None, ada.acme.token("owner")),
        (f"/api/platform/users/{ada.account.id}/mfa", {"reason": REASON}, platform.token),
    ]
    for path, body, token in removals:
        answer = await ada.acme.api.call("DELETE", path, body, token=token)
        assert (answer.status, answer.json["error"]) == (403, str(RecoveryNeeded.__doc__)), answer.text
    assert await run_sql(pool, "select mfa_enabled_at is not null from users where id = %s", ada.account.id) == [(True,)]


@pytest.mark.parametrize("asks", ["no policy", "organization", "platform"])
async def test_pages_offer_only_a_removal_that_is_possible(ada: LostUser, app: QuartTrio, pool: Pool, asks: str) -> None:
    """The platform's policy protects its owners in the grace period, too."""
    await add_service_user(ada.acme.ports, await add_service(pool, ada.acme.org), ada.account.id)
    await ada.acme.join("grace", await add_account(ada.acme.ports, "grace@acme.example", is_platform_owner=True), ADMIN)
    if asks == "organization":
        await ada.require(second_factor=["high_risk"])
    if asks == "platform":
        await run_sql(pool, "update users set is_platform_owner = true where id = %s", ada.account.id)
        rules = {"second_factor": ["everyone"], "due_at": {"second_factor": "2100-01-01T00:00:00+00:00"}}
        await run_sql(pool, "insert into sign_in_policies (id, rules, changed_at) values (%s, %s, now())", new_id(), json.dumps(rules))
    browser = FakeBrowser(app)
    await browser.sign_in("grace@acme.example", PASSWORD)
    for page in (f"/app/platform/people/{ada.account.id}", f"/app/organizations/acme/users/{ada.account.id}"):
        text = (await browser.open(page)).text
        assert (f'href="{page}/end-sessions"' in text, f'href="{page}/second-factor"' in text) == (True, asks == "no policy"), page


async def test_the_rules_of_other_applications_keep_no_second_factor(ada: LostUser, pool: Pool) -> None:
    """An organization decides about its own applications, and only about applications that the user may use."""
    globex = await add_organization(pool, "globex")
    await add_service_user(ada.acme.ports, await add_service(pool, ada.acme.org), ada.account.id)
    await ada.require(other := await add_service(pool, ada.acme.org, "other"), second_factor=["everyone"])
    await run_sql(pool, "update services set access_policy = 'assigned' where id = %s", other)
    await ada.require(None, globex, second_factor=["everyone"])
    owner = await sign_in(ada.acme.ports, ada.acme.people["owner"], ada.acme.org, second_factor=True)
    assert (await ada.acme.api.delete(f"{ada.acme.path}/users/{ada.account.id}/mfa", token=owner.access_token)).status == 204


async def test_the_rules_of_an_organization_protect_its_end_users(ada: LostUser, pool: Pool) -> None:
    await add_service_user(ada.acme.ports, await add_service(pool, ada.acme.org), ada.account.id)
    await run_sql(pool, "delete from memberships where user_id = %s", ada.account.id)
    await ada.require(second_factor=["everyone"])
    owner = await sign_in(ada.acme.ports, ada.acme.people["owner"], ada.acme.org, second_factor=True)
    user = f"{ada.acme.path}/users/{ada.account.id}"
    refused = await ada.acme.api.delete(f"{user}/mfa", token=owner.access_token)
    assert (refused.status, refused.json["error"]) == (403, str(RecoveryNeeded.__doc__))
    issued = await ada.acme.api.post(f"{user}/recovery", {"reason": REASON}, token=owner.access_token)
    path = leads_to(await ada.open(await ada.link(), issued.json["code"]))
    assert "authenticator app</h2>" in (await ada.browser.open(path)).text
    await run_sql(pool, "delete from sign_in_policies where org_id = %s", ada.acme.org)
    await ada.require(phishing_resistant=["everyone"])
    assert "authenticator app</h2>" not in (await ada.browser.open(path)).text


async def test_for_a_platform_owner_the_refusal_names_the_command_that_helps(ada: LostUser, pool: Pool, platform: Platform) -> None:
    await run_sql(pool, "update users set is_platform_owner = true where id = %s", ada.account.id)
    await ada.require(second_factor=["everyone"])
    answer = await ada.acme.api.call("DELETE", f"/api/platform/users/{ada.account.id}/mfa", {"reason": REASON}, token=platform.token)
    assert (answer.status, answer.json["error"]) == (403, str(OwnerRecoveryNeeded.__doc__))
