"""The sign-in that makes a link in a sign-in to an application: the account's own ways count, whatever the application requires."""

from urllib.parse import urlencode

import pytest

from adapters.postgres.engine.pool import Pool
from core.kernel.causes import SYSTEM
from core.kernel.sign_in_policy.rules import Rules
from core.tenancy.model.sign_in_policies import SignInPolicy
from ports import Ports
from tests.federation.connections.people.conftest import House
from tests.support.browser import FakeBrowser, is_step, leads_to, main_of
from tests.support.builders import PASSWORD, Api, add_account, run_sql, sign_in
from tests.support.mfa import add_mfa
from tests.support.passkeys.users import PasskeyUser
from tests.support.services import add_service

ADA = "ada@example.com"
REQUEST = {
    "org": "acme",
    "service": "shop",
    "redirect_uri": "https://shop.example.com/callback",
    "response_type": "code",
    "connection": "okta",
}


@pytest.mark.parametrize(("by_policy", "has_passkey"), [(False, False), (True, False), (False, True)])
async def test_each_way_of_the_account_makes_the_link(
    house: House, api: Api, pool: Pool, ports: Ports, *, by_policy: bool, has_passkey: bool
) -> None:
    """An account with a passkey is linked after a sign-in by passkey only (PK-12)."""
    user = await add_account(ports, ADA, PASSWORD)
    await PasskeyUser(api, (await sign_in(ports, user)).access_token).add()
    if not has_passkey:
        await run_sql(pool, "update passkeys set user_verified = false")
    app = await add_mfa(ports, user)
    shop, browser = await add_service(pool, house.org, "shop"), FakeBrowser(house.app)
    if by_policy:
        rules = Rules.read({"methods": ["passkey"]})
        async with ports.storage.transaction(by=SYSTEM) as tx:
            await tx.sign_in_policies.put(SignInPolicy(org_id=house.org, service_id=shop, rules=rules, changed_at=ports.clock.now()))
    else:
        await run_sql(pool, "update services set required_acr = 'phr'")
    start = leads_to(await browser.open(f"/auth/authorize?{urlencode(REQUEST)}", follows=False))
    away = await browser.open(start, follows=False)
    house.issuer.claims = {"email_verified": True}
    returned = house.issuer.authorize(away.headers["Location"])
    question = await browser.open(f"/auth/connections/{house.connection.id}/callback?{urlencode(returned)}")
    page = await browser.open(leads_to(await browser.answer(question, "continue")))
    for _ in range(2):
        assert f"Sign in to your account {ADA} to link it." in main_of(page)
        assert "accept" not in main_of(page), "each way is offered"
        page = await browser.fill(page, email=ADA, password="a wrong password")
    assert is_step(leads_to(await browser.fill(page, email=ADA, password=PASSWORD)), "code")
    assert await house.known() == []
    asked = await browser.open(leads_to(await browser.show_code(app.code())))
    assert await house.known() == ([] if has_passkey else [("4711", ADA)])
    assert "Shop requires a passkey." in main_of(asked) or "Shop accepts only" in main_of(asked), "the application asks afterwards"
