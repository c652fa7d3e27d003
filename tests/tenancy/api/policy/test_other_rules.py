"""The rules about passwords, invited addresses and trusted devices, which count outside a sign-in."""

import re
from typing import Any

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from ports import Ports
from tests.fakes.outside import FakeMailTransport
from tests.support.browser import FakeBrowser
from tests.support.builders import PASSWORD, Answer, Api, add_account, add_member, deliver, link, log_in, mark_created_by, run_sql, sign_in
from tests.support.tenants import Tenant
from tests.tenancy.api.policy.policies import save

EMAIL = "grace@example.com"
SHORT, LONG = "a short pass", "four random words are long"
REFUSED = "Acme requires passwords of at least 20 characters. Choose a longer one."


async def test_an_organization_sets_the_least_length_for_accounts_that_it_controls(
    acme: Tenant, other_tenant: Tenant, api: Api, ports: Ports, pool: Pool, sent: FakeMailTransport
) -> None:
    user = await add_account(ports, EMAIL)
    await add_member(pool, acme.org, user.id, confirmed=True)
    assert (await save(acme, {"min_password_length": 20})).status == 200
    token = (await sign_in(ports, user)).access_token

    async def change(password: str) -> Answer:
        passwords = {"current_password": PASSWORD, "new_password": password}
        return await api.post("/api/user/change-password", passwords, token=(await sign_in(ports, user)).access_token)

    async def change_back(password: str) -> None:
        assert (await change(password)).status == 200
        await run_sql(pool, "update users set password_hash = %s where id = %s", user.password_hash, user.id)

    await change_back(SHORT)  # the user created the account
    await mark_created_by(pool, acme.org, user.id)
    refused = await change(SHORT)
    assert (refused.status, refused.json["error"]) == (400, REFUSED)
    await change_back(LONG)
    assert (await log_in(ports, EMAIL)) is not None, "the present password works, whatever its length"
    await api.post("/api/auth/forgot-password", {"email": EMAIL})
    await deliver(ports)
    [*_, email] = [one for one in sent.emails if one.to == EMAIL and "/auth/reset-password" in one.text]
    refused = await api.post("/api/auth/reset-password", {"token": link(email), "new_password": SHORT})
    assert (refused.status, refused.json["error"]) == (400, REFUSED)
    assert (await api.post("/api/auth/reset-password", {"token": link(email), "new_password": LONG})).status == 200
    await run_sql(pool, "update users set password_hash = null where id = %s", user.id)
    token = (await sign_in(ports, user)).access_token
    refused = await api.post("/api/user/set-password", {"new_password": SHORT}, token=token)
    assert (refused.status, refused.json["error"]) == (400, REFUSED)
    await add_member(pool, other_tenant.org, user.id, confirmed=True)
    assert (await api.post("/api/user/set-password", {"new_password": SHORT}, token=token)).status == 200


@pytest.mark.parametrize("is_controlled", [True, False])
async def test_pages_for_a_new_password_say_the_least_length_of_the_account(
    acme: Tenant, api: Api, app: QuartTrio, ports: Ports, pool: Pool, sent: FakeMailTransport, is_controlled: bool
) -> None:
    """They say it to a signed-in user, and to a user who proved the mailbox."""
    user = await add_account(ports, EMAIL)
    await add_member(pool, acme.org, user.id, confirmed=True)
    if is_controlled:
        await mark_created_by(pool, acme.org, user.id)
    assert (await save(acme, {"min_password_length": 20})).status == 200
    await api.post("/api/auth/forgot-password", {"email": EMAIL})
    await deliver(ports)
    browser, reset = FakeBrowser(app), f"/auth/reset-password?token={link(sent.newest('/auth/reset-password', EMAIL))}"
    pages = [await browser.open(reset)]
    await browser.sign_in(EMAIL, PASSWORD)
    pages.append(await browser.open("/app/account/password"))
    await run_sql(pool, "update users set password_hash = null where id = %s", user.id)
    pages.append(await browser.open("/app/account/password"))
    pages.append(await browser.open(f"{reset[:-1]}x"))
    lengths = [re.findall(r'minlength="(\d+)"|Use (\d+) to 128 characters', page.text) for page in pages]
    least = "20" if is_controlled else "8"
    assert lengths == [[(least, ""), ("", least)]] * 3 + [[]]


async def test_only_addresses_at_the_allowed_domains_are_invited(acme: Tenant, api: Api) -> None:
    earlier = await acme.invite("ada@other.example")
    assert (await save(acme, {"invited_domains": ["acme.com", "acme.org"]})).status == 200
    message = "The sign-in policy allows only addresses at acme.com or acme.org. Invite one of these, or ask an admin to change the policy."
    refused: list[Any] = [await acme.try_invite("eve@mail.acme.com")]
    refused.append(await api.post(f"{acme.invitations}/{earlier['invitation']['id']}/resend", token=acme.token("owner")))
    assert [(answer.status, answer.json["error"]) for answer in refused] == [(400, message)] * 2
    assert (await acme.try_invite("Eve@ACME.com")).status == 200
    people = {"invitations": [{"email": "eve@other.example", "role": "member"}, {"email": "bob@acme.org", "role": "member"}]}
    answer = await api.post(f"{acme.invitations}/bulk", people, token=acme.token("owner"))
    assert answer.status == 200, answer.text
    assert [result.get("error") for result in answer.json["results"]] == [message, None]
