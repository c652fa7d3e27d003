"""Where no wait replaces lost passkeys, the refusal names who asks for more, and a recovery is the way (security PK-13, security M-8)."""

import json
from datetime import timedelta

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from ports import Ports
from tests.accounts.api.passkeys.test_waits import DAY, LOST, Loser
from tests.accounts.api.passkeys.test_waits import loser as loser
from tests.accounts.api.passkeys.test_ways_in import add_policy, put_policy
from tests.authentication.api.recovery.lost import REASON, RECOVER, options_of
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.support.browser import FakeBrowser, form_token, leads_to, main_of
from tests.support.builders import EMAIL, Api, deliver, link, run_sql, sign_in
from tests.support.mfa import add_mfa
from tests.support.passkeys.authenticator import SoftAuthenticator
from tests.support.passkeys.users import PASSKEYS, PasskeyUser, sign_in_with_passkey
from tests.support.platform import Platform
from tests.support.services import add_service, add_service_user

WHO = "Ask an admin of your organization, or the operator of this site, to start one."


@pytest.mark.parametrize("second", ["passkey", "app"])
async def test_a_gap_of_72_hours_in_the_second_factor_does_not_count(
    holder: PasskeyUser, api: Api, ports: Ports, user: Account, sent: FakeMailTransport, clock: FakeClock, second: str
) -> None:
    """The user turned the second factor off an hour ago. Otherwise a reset and the wait would need the mailbox alone."""
    await holder.add(second_factor=second == "passkey")
    if second == "app":
        await add_mfa(ports, user)
    clock.advance(20 * DAY)
    token = (await sign_in_with_passkey(api, holder.authenticator)).json["access_token"]
    path, body = {"passkey": (f"{PASSKEYS}/second-factor", {"enabled": False}), "app": ("/api/user/mfa", None)}[second]
    assert (await api.call("DELETE" if body is None else "PUT", path, body, token=token)).status == 200
    loser = Loser(api, ports, sent)
    for age, status in ((timedelta(hours=1), 400), (timedelta(hours=70), 400), (timedelta(hours=3), 201)):
        clock.advance(age)
        await loser.show_both()
        refused = await loser.start()
        assert refused.status == status, (age, refused.text)
    clock.advance(DAY)
    await loser.show_both()
    assert (await loser.remove()).status == 204


async def test_the_refusal_names_the_policies_on_the_pages_too(
    loser: Loser, app: QuartTrio, ports: Ports, pool: Pool, user: Account
) -> None:
    org = await add_policy(ports, pool, user, second_factor=["everyone"])
    shop = await add_service(pool, org)
    await add_service_user(ports, shop, user.id, signed_in=False)
    await put_policy(ports, org, shop, {"phishing_resistant": ["high_risk"]})
    names = "Only a recovery replaces your passkey, because sign-in policies ask for more than a password: Acme, Shop."
    refused = await loser.start()
    assert (refused.status, refused.json["error"]) == (400, f"{names} {WHO}")
    browser = FakeBrowser(app)
    await browser.sign_in()
    asked = main_of(await browser.open(leads_to(await browser.open("/app/account/password"))))
    assert f'Only a recovery replaces it: ask an admin of your organization, or the operator of this site. <a href="{LOST}">' in asked
    page = await browser.open(LOST)
    assert (page.status, f"{names} {WHO}" in main_of(page), "<form" in main_of(page)) == (200, True, False)
    await run_sql(pool, "delete from sign_in_policies where service_id is not null")
    assert "than a password: Acme." in (await loser.start()).json["error"]
    await run_sql(pool, "delete from sign_in_policies")
    assert (await loser.start()).status == 201


async def recover(api: Api, app: QuartTrio, ports: Ports, sent: FakeMailTransport, platform: Platform, user: Account) -> SoftAuthenticator:
    """Let a platform owner start a recovery, and set up a passkey in it."""
    owner = (await sign_in(ports, platform.account, second_factor=True)).access_token
    code = (await api.post(f"/api/platform/users/{user.id}/recovery", {"reason": REASON}, token=owner)).json["code"]
    await deliver(ports)
    token, browser, authenticator = link(sent.newest(RECOVER, EMAIL)), FakeBrowser(app), SoftAuthenticator(origin=ports.tokens.issuer)
    page = await browser.open(f"{RECOVER}?token={token}")
    path = leads_to(await browser.send(RECOVER, form_token=form_token(page), token=token, code=code))
    page = await browser.open(path)
    credential = json.dumps(authenticator.create(options_of(page)))
    assert (await browser.send(f"{path}/passkey", form_token=form_token(page), credential=credential)).status == 200
    return authenticator


async def test_after_a_recovery_the_user_leaves_the_organization_and_keeps_the_account(
    loser: Loser,
    app: QuartTrio,
    ports: Ports,
    pool: Pool,
    user: Account,
    sent: FakeMailTransport,
    platform: Platform,
    clock: FakeClock,
) -> None:
    """A thief who has the password joined the account to an organization of their own, with a policy that refuses the wait."""
    await add_policy(ports, pool, user, phishing_resistant=["everyone"])
    assert (await loser.start()).status == 400
    assert (await loser.api.post("/api/organizations/acme/leave", token=loser.token)).status == 401
    authenticator = await recover(loser.api, app, ports, sent, platform, user)
    clock.advance(timedelta(minutes=1))
    signed_in = await sign_in_with_passkey(loser.api, authenticator)
    assert signed_in.status == 200, signed_in.text
    left = await loser.api.post("/api/organizations/acme/leave", token=signed_in.json["access_token"])
    assert left.status == 204, left.text
    assert await run_sql(pool, "select count(*) from memberships where user_id = %s", user.id) == [(0,)]
    assert [key["name"] for key in await PasskeyUser(loser.api, signed_in.json["access_token"]).listed()]
    clock.advance(4 * DAY)
    assert (await sign_in_with_passkey(loser.api, authenticator)).status == 200


async def test_a_recovery_ends_the_wait_with_an_event(
    loser: Loser, app: QuartTrio, ports: Ports, pool: Pool, user: Account, sent: FakeMailTransport, platform: Platform
) -> None:
    assert (await loser.start()).status == 201
    await recover(loser.api, app, ports, sent, platform, user)
    ended = "select details ->> 'by' from audit_log where action = 'security.passkey_wait.ended'"
    assert await run_sql(pool, ended) == [("recovery",)]
    assert await run_sql(pool, "select passkey_wait_at from users where id = %s", user.id) == [(None,)]
