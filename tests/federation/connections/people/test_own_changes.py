"""Users of a required connection cannot free themselves by changing their address or removing their link (security SP-9)."""

from datetime import timedelta

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.kernel.causes import SYSTEM
from core.kernel.connections import RequiredConnection
from core.kernel.sign_in_policy.rules import Rules
from core.kernel.values import Domain
from core.tenancy.model.sign_in_policies import SignInPolicy
from ports import Ports
from tests.accounts.email_changes import UNDO, EmailChanger, open_proof, undo
from tests.fakes.outside import FakeMailTransport
from tests.federation.connections.people.conftest import House
from tests.support.browser import FakeBrowser
from tests.support.builders import Answer, Api, add_account, add_member, deliver, link, run_sql, sign_in
from tests.support.saml import add_application
from tests.support.services import add_service_user

pytestmark = pytest.mark.slow
ADDRESS, ELSEWHERE = "ada@example.com", "ada@elsewhere.org"
LINK = """
    insert into connection_identities (org_id, connection_id, user_id, subject, linked_at, last_used_at)
    values (%s, %s, %s, '4711', now(), now())"""


async def require(house: House) -> None:
    """Require the connection for the addresses at example.com."""
    required = RequiredConnection(house.connection.id, house.connection.slug)
    policy = SignInPolicy(
        org_id=house.org, rules=Rules(required_connections={Domain("example.com"): required}), changed_at=house.ports.clock.now()
    )
    async with house.ports.storage.transaction(by=SYSTEM) as tx:
        await tx.sign_in_policies.put(policy)


@pytest.fixture
async def ada(house: House, ports: Ports) -> Account:
    return await add_account(ports, ADDRESS)


@pytest.fixture
async def token(ports: Ports, ada: Account) -> str:
    """The access token for a session that began with the password."""
    return (await sign_in(ports, ada)).access_token


async def ask_for(api: Api, token: str, email: str) -> Answer:
    return await api.patch("/api/user", {"email": email}, token=token)


async def unlink(house: House, api: Api, token: str) -> Answer:
    return await api.delete(f"/api/user/connections/{house.connection.id}", token=token)


async def add_to_application(house: House, user: Account) -> None:
    shop = await add_application(house.ports, house.pool, house.org, "acme")
    await add_service_user(house.ports, shop.id, user.id)


@pytest.mark.parametrize("confirmed", [True, False])
async def test_an_unlinked_member_keeps_an_address_that_binds(
    house: House, api: Api, pool: Pool, ada: Account, token: str, confirmed: bool
) -> None:
    await add_member(pool, house.org, ada.id, confirmed=confirmed)
    await require(house)
    refused = await ask_for(api, token, ELSEWHERE)
    assert (refused.status, refused.json["error"]) == (
        400,
        "Acme requires that you sign in through its identity provider. "
        "Sign in there once to link your account, or leave the organization. Then change the address.",
    )
    assert (await ask_for(api, token, "countess@example.com")).status == 200, "this address binds, too"
    assert (await api.post("/api/organizations/acme/leave", token=token)).status == 204
    assert (await ask_for(api, token, ELSEWHERE)).status == 200


@pytest.mark.parametrize("is_blocked_by_admin", [False, True])
async def test_applications_block_an_unlinked_user_who_takes_an_address_that_does_not_bind(
    house: House, api: Api, ports: Ports, pool: Pool, sent: FakeMailTransport, ada: Account, token: str, *, is_blocked_by_admin: bool
) -> None:
    """The user has no membership to leave, and the organization must not hold the address. An undo ends no block by an admin."""
    await add_to_application(house, ada)
    await require(house)
    changer, warning = EmailChanger(api, ports, sent), "You use applications of <bdi>Acme</bdi>, which requires"
    browser = FakeBrowser(house.app)
    await browser.sign_in(ADDRESS)
    old = ADDRESS
    for new, blocked in [("countess@example.com", []), (ELSEWHERE, [(house.org, ada.id)])]:
        assert warning in (await browser.open("/app/account/email")).text
        proof, _ = await changer.request(token, new, old=old)
        assert (await open_proof(api, proof)).status == 200
        assert await run_sql(pool, "select org_id, user_id from end_user_blocks") == blocked
        old = new
        browser = FakeBrowser(house.app)
        await browser.sign_in(new)
    assert warning not in (await browser.open("/app/account/email")).text
    if is_blocked_by_admin:
        async with ports.storage.transaction(by=SYSTEM) as tx:
            assert await tx.end_users.block(house.org, ada.id, ports.clock.now() + timedelta(seconds=1))
    await deliver(ports)
    [*_, notice] = [email for email in sent.emails if UNDO in email.text]
    assert (await undo(api, link(notice))).status == 200
    assert await run_sql(pool, "select org_id, user_id from end_user_blocks") == ([(house.org, ada.id)] if is_blocked_by_admin else [])
    recorded = "select name, actor_id from events where org_id = %s and name like 'user.%%blocked' order by created_at, name"
    unblocked = [] if is_blocked_by_admin else [("user.unblocked", None)]
    assert await run_sql(pool, recorded, house.org) == [("user.blocked", None), *unblocked]


async def test_a_link_binds_at_each_address_and_stays(
    house: House, api: Api, ports: Ports, pool: Pool, sent: FakeMailTransport, ada: Account, token: str
) -> None:
    await add_member(pool, house.org, ada.id, confirmed=True)
    await run_sql(pool, LINK, house.org, house.connection.id, ada.id)
    await require(house)
    proof, _ = await EmailChanger(api, ports, sent).request(token, ELSEWHERE)
    assert (await open_proof(api, proof)).status == 200
    refused = await unlink(house, api, token)
    assert (refused.status, "An admin can unlink you." in refused.json["error"]) == (400, True), refused.text
    assert await house.known() == [("4711", ELSEWHERE)]
    assert (await api.post("/api/organizations/acme/leave", token=token)).status < 300
    assert await house.known() == []


async def test_the_address_binds_a_user_who_removes_the_link(house: House, api: Api, pool: Pool, ada: Account, token: str) -> None:
    await add_member(pool, house.org, ada.id, confirmed=True)
    await run_sql(pool, LINK, house.org, house.connection.id, ada.id)
    await require(house)
    assert (await unlink(house, api, token)).status == 204
    assert (await ask_for(api, token, ELSEWHERE)).status == 400


async def test_a_rule_that_is_newer_than_the_request_binds(
    house: House, api: Api, ports: Ports, pool: Pool, sent: FakeMailTransport, ada: Account, token: str
) -> None:
    await add_member(pool, house.org, ada.id, confirmed=True)
    proof, _ = await EmailChanger(api, ports, sent).request(token, ELSEWHERE)
    await require(house)
    assert (await open_proof(api, proof)).status == 400
    assert await run_sql(pool, "select email from users where id = %s", ada.id) == [(ADDRESS,)]
