"""A policy that requires the connection leads a browser there and back."""

from urllib.parse import urlencode

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.kernel.causes import SYSTEM
from core.kernel.connections import RequiredConnection
from core.kernel.sign_in_policy.rules import Rules
from core.kernel.values import Domain, Email
from core.tenancy.model.sign_in_policies import SignInPolicy
from ports import Ports
from tests.federation.connections.people.conftest import House
from tests.support.browser import FakeBrowser, leads_to
from tests.support.builders import PASSWORD, add_account, add_member

PAGE = "/app/organizations/acme"


async def test_a_user_with_a_password_comes_through_the_connection_and_back_to_the_page(house: House, ports: Ports, pool: Pool) -> None:
    user: Account = await add_account(ports, "ada@example.com")
    await add_member(pool, house.org, user.id, confirmed=True)
    await house.set(
        """
        insert into connection_identities (org_id, connection_id, user_id, subject, linked_at, last_used_at)
        values (%s, %s, %s, '4711', now(), now())""",
        house.org,
        house.connection.id,
        user.id,
    )
    required = RequiredConnection(house.connection.id, house.connection.slug)
    policy = SignInPolicy(
        org_id=house.org, rules=Rules(required_connections={Domain("example.com"): required}), changed_at=ports.clock.now()
    )
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.sign_in_policies.put(policy)
    browser = FakeBrowser(house.app)
    await browser.sign_in(Email("ada@example.com"), PASSWORD)
    confirmation = leads_to(await browser.open(PAGE))
    start = leads_to(await browser.open(confirmation))
    assert start == f"/auth/connections/{house.connection.id}/start?{urlencode({'next': confirmation})}"
    leaves = await browser.open(start)
    house.issuer.subject, house.issuer.claims = "4711", {"email": "ada@example.com", "email_verified": True}
    returned = house.issuer.visit(leaves.headers["Location"])
    back = leads_to(await browser.open(f"/auth/connections/{house.connection.id}/callback?{urlencode(returned)}"))
    assert back == confirmation
    assert leads_to(await browser.open(back)) == PAGE
    assert (await browser.open(PAGE)).status == 200
    assert (await browser.open("/app/account/security")).status == 200, "the own sign-in stays in the session"
