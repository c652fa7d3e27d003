"""The mailbox alone gets past no sign-in policy: a password reset keeps the factors that policies in force need (security A-6)."""

from datetime import timedelta
from typing import Any

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.kernel.causes import SYSTEM
from core.kernel.sign_in_policy.rules import Rules
from core.tenancy.model.sign_in_policies import SignInPolicy
from ports import Ports
from tests.authentication.api.recovery.lost import LostUser, add_lost_user
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.support.browser import FakeBrowser, hidden_fields
from tests.support.builders import EMAIL, NEW_PASSWORD, Api, add_account, deliver, link, run_sql, sign_in
from tests.support.mfa import add_mfa
from tests.support.passkeys.users import PasskeyUser
from tests.support.services import add_service, add_service_user
from tests.support.tenants import Tenant

TWO: dict[str, Any] = {"second_factor": ["everyone"]}
PASSKEY: dict[str, Any] = {"phishing_resistant": ["everyone"]}
PLACES = ["organization", "application", "platform"]


async def store_policy(acme: Tenant, place: str, user: Account, document: dict[str, Any]) -> None:
    """Store a policy that the user has to meet at this place."""
    service = await add_service(acme.pool, acme.org)
    if place == "organization":
        await acme.join("ada", user)
    elif place == "application":
        await add_service_user(acme.ports, service, user.id)
    else:
        await run_sql(acme.pool, "update users set is_platform_owner = true where id = %s", user.id)
    policy = SignInPolicy(
        org_id=None if place == "platform" else acme.org,
        service_id=service if place == "application" else None,
        rules=Rules.read(document),
        changed_at=acme.ports.clock.now(),
    )
    async with acme.ports.storage.transaction(by=SYSTEM) as tx:
        await tx.sign_in_policies.put(policy)


async def reset(api: Api, app: QuartTrio, ports: Ports, sent: FakeMailTransport, email: str = EMAIL, *, on_page: bool) -> None:
    """Reset the password by the mailbox alone. On the page, nothing is kept."""
    assert (await api.post("/api/auth/forgot-password", {"email": email})).status == 200
    await deliver(ports)
    token = link(sent.newest("/auth/reset-password", email))
    if not on_page:
        answer = await api.post("/api/auth/reset-password", {"token": token, "new_password": NEW_PASSWORD})
    else:
        browser = FakeBrowser(app)
        page = await browser.open(f"/auth/reset-password?token={token}")
        answer = await browser.send("/auth/reset-password", **{**hidden_fields(page), "new_password": NEW_PASSWORD})
    assert answer.status == 200, answer.text


async def factors(pool: Pool, user: Account) -> tuple[bool, int]:
    """Return whether the account has an app, and the number of its passkeys."""
    [row] = await run_sql(pool, "select mfa_enabled_at is not null, passkey_count from users where id = %s", user.id)
    return bool(row[0]), int(row[1])


@pytest.mark.parametrize("on_page", [False, True], ids=["API", "page"])
@pytest.mark.parametrize("document", [TWO, PASSKEY], ids=["app", "passkey"])
@pytest.mark.parametrize("place", [None, *PLACES])
async def test_a_reset_keeps_the_only_factor_that_meets_a_policy(
    acme: Tenant,
    api: Api,
    app: QuartTrio,
    ports: Ports,
    pool: Pool,
    sent: FakeMailTransport,
    place: str | None,
    document: dict[str, Any],
    on_page: bool,
) -> None:
    """Also one of today, when the policy may have begun. Without a policy, a thief of a session may have added it."""
    user, has_passkey = await add_account(ports), document is PASSKEY
    if has_passkey:
        await PasskeyUser(api, (await sign_in(ports, user)).access_token).add()
    else:
        await add_mfa(ports, user)
    if place is not None:
        await store_policy(acme, place, user, document)
    before = await factors(pool, user)
    await reset(api, app, ports, sent, on_page=on_page)
    is_kept = place is not None or (has_passkey and not on_page)  # over the API, passkeys stay in any case
    assert await factors(pool, user) == (before if is_kept else (False, 0))


async def test_a_reset_ends_a_recent_factor_beside_an_older_one(
    acme: Tenant, api: Api, app: QuartTrio, ports: Ports, pool: Pool, clock: FakeClock, sent: FakeMailTransport
) -> None:
    """A thief of a session may have added the second passkey. The first one still meets the policy."""
    user = await add_account(ports)
    await PasskeyUser(api, (await sign_in(ports, user)).access_token).add()
    clock.advance(timedelta(days=4))
    await PasskeyUser(api, (await sign_in(ports, user)).access_token).add()
    await store_policy(acme, "organization", user, PASSKEY)
    await reset(api, app, ports, sent, on_page=True)
    assert await factors(pool, user) == (False, 1)


@pytest.fixture
async def lost(app: QuartTrio, acme: Tenant, sent: FakeMailTransport) -> LostUser:
    return await add_lost_user(acme, FakeBrowser(app), sent)


@pytest.mark.parametrize("on_page", [False, True], ids=["API", "page"])
async def test_a_reset_keeps_the_factor_of_a_recovery(
    lost: LostUser, api: Api, app: QuartTrio, ports: Ports, pool: Pool, sent: FakeMailTransport, on_page: bool
) -> None:
    """Otherwise the code of the issuer would protect nothing for 72 hours. No policy asks for a factor here."""
    assert (await lost.send_app(await lost.recover())).status == 200
    await reset(api, app, ports, sent, str(lost.account.email), on_page=on_page)
    assert await factors(pool, lost.account) == (True, 0)
