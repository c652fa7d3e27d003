"""Tests that an organization which ends a user's sessions also ends unused codes and device
approvals (security A-6, R-6, S-4; docs/adr/0009).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.accounts_rules import Account
from entrypoints.http.app import Edge
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.federation.api.cli import DeviceClient, oauth_error
from tests.federation.api.relying import RelyingParty, add_relying_party, sign_in_browser
from tests.support.browser import FakeBrowser
from tests.support.builders import SignedIn, add_account, run_during, run_sql, sign_in
from tests.support.scim import directory_of
from tests.support.services import add_api_key, service_context
from tests.support.tenants import Tenant

if TYPE_CHECKING:
    from uuid import UUID

INVALID = (400, "invalid_grant", "BAD_REQUEST")
DENIED = (400, "access_denied", "BAD_REQUEST")


@dataclass(slots=True)
class There:
    """A code of a web application and a device code, both approved by the user."""

    party: RelyingParty
    cli: DeviceClient
    code: str

    async def approve(self, session: SignedIn) -> None:
        await self.cli.begin()
        assert (await self.cli.decide(session.access_token)).status == 200


async def say_yes(tenant: Tenant, app: QuartTrio, edge: Edge, pool: Pool, clock: FakeClock, person: Account, session: SignedIn) -> There:
    party = await add_relying_party(tenant, FakeBrowser(app, edge.base_url))
    await sign_in_browser(party, person)
    cli = DeviceClient(tenant.api, pool, clock, await service_context(pool, party.service))
    there = There(party, cli, await party.code())
    await there.approve(session)
    return there


@pytest.fixture
async def session(ports: Ports, user: Account) -> SignedIn:
    return await sign_in(ports, user)


@pytest.fixture
async def there(acme: Tenant, app: QuartTrio, edge: Edge, pool: Pool, clock: FakeClock, user: Account, session: SignedIn) -> There:
    return await say_yes(acme, app, edge, pool, clock, user, session)


async def end_sessions(there: There, user: Account) -> None:
    tenant = there.party.tenant
    answer = await tenant.api.delete(f"{tenant.path}/users/{user.id}/sessions", token=tenant.token("admin"))
    assert (answer.status, answer.json["sessions_revoked"]) == (200, 0), "the codes are not sessions"


async def remove_member(there: There, user: Account) -> None:
    await there.party.tenant.join("ada", user)
    assert (await there.party.tenant.remove("owner", "ada")).status == 200


async def remove_from_service(there: There, user: Account) -> None:
    key = await add_api_key(there.party.tenant.pool, there.party.service)
    assert (await there.party.api.delete(f"/api/service/users/{user.id}", headers={"X-Api-Key": key})).status == 204


async def take_out_of_the_group(there: There, user: Account) -> None:
    tenant = there.party.tenant
    await tenant.join("ada", user)
    directory = await directory_of(tenant)
    answer = await directory.remove_member(user.id)
    assert answer.status == 200, answer.text


WAYS = {
    "out of the group": take_out_of_the_group,
    "end sessions": end_sessions,
    "remove member": remove_member,
    "remove from service": remove_from_service,
}


@pytest.mark.parametrize("way", WAYS)
async def test_codes_from_before_the_end_start_no_session(
    there: There,
    other_tenant: Tenant,
    app: QuartTrio,
    edge: Edge,
    pool: Pool,
    clock: FakeClock,
    ports: Ports,
    user: Account,
    session: SignedIn,
    way: str,
) -> None:
    """Codes of other organizations and of other users stay valid."""
    elsewhere = await say_yes(other_tenant, app, edge, pool, clock, user, session)
    bob = await add_account(ports, "bob@example.com")
    await sign_in_browser(there.party, bob)
    his = await there.party.code()
    await WAYS[way](there, user)
    assert oauth_error(await there.party.exchange(there.code)) == INVALID
    assert oauth_error(await there.cli.poll()) == DENIED
    assert await run_sql(pool, "select 1 from sessions where service_id is not null") == []
    assert (await elsewhere.party.exchange(elsewhere.code)).status == 200
    assert (await elsewhere.cli.poll()).status == 200
    assert (await there.party.exchange(his)).status == 200


async def test_an_exchanged_code_stays_stored(there: There, user: Account) -> None:
    """A second use of it still ends the session (security O-4)."""
    assert (await there.party.exchange(there.code)).status == 200
    tenant = there.party.tenant
    answer = await tenant.api.delete(f"{tenant.path}/users/{user.id}/sessions", token=tenant.token("owner"))
    assert answer.json["sessions_revoked"] == 1
    assert await run_sql(tenant.pool, "select count(session_id) from authorization_codes") == [(1,)]


async def test_a_later_approval_works(there: There, user: Account, session: SignedIn) -> None:
    await end_sessions(there, user)
    assert (await there.party.exchange(await there.party.code())).status == 200
    await there.approve(session)
    assert (await there.cli.poll()).status == 200


@pytest.mark.parametrize("device", [False, True])
async def test_an_exchange_that_waits_for_the_end_starts_no_session(
    there: There, user: Account, acme: Tenant, pool: Pool, device: bool
) -> None:
    """The exchange has found the code valid, and waits for the account that the other transaction locks."""
    held: list[tuple[str, tuple[UUID, ...]]] = [
        ("select 1 from users where id = %s for update", (user.id,)),
        ("delete from authorization_codes where user_id = %s", (user.id,)),
        ("update device_codes set status = 'denied', session_id = null where org_id = %s", (acme.org,)),
    ]
    if device:
        assert oauth_error(await run_during(pool, held, there.cli.poll)) in (DENIED, INVALID)
    else:
        assert oauth_error(await run_during(pool, held, lambda: there.party.exchange(there.code))) == INVALID
    assert await run_sql(pool, "select 1 from sessions where service_id is not null") == []
