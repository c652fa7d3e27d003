"""Unused codes and device approvals end when an organization ends the user's sessions.

Covers security A-6, R-6 and S-4, and decision record 9 (docs/adr/0009).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
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
class ApprovedCodes:
    """A web application's code and a device code, which the user approved."""

    party: RelyingParty
    cli: DeviceClient
    code: str

    async def approve(self, session: SignedIn) -> None:
        await self.cli.begin()
        assert (await self.cli.decide(session.access_token)).status == 200


async def approve_codes(
    tenant: Tenant, app: QuartTrio, edge: Edge, pool: Pool, clock: FakeClock, person: Account, session: SignedIn
) -> ApprovedCodes:
    party = await add_relying_party(tenant, FakeBrowser(app, edge.base_url))
    await sign_in_browser(party, person)
    cli = DeviceClient(tenant.api, pool, clock, await service_context(pool, party.service))
    codes = ApprovedCodes(party, cli, await party.code())
    await codes.approve(session)
    return codes


@pytest.fixture
async def session(ports: Ports, user: Account) -> SignedIn:
    return await sign_in(ports, user)


@pytest.fixture
async def codes(acme: Tenant, app: QuartTrio, edge: Edge, pool: Pool, clock: FakeClock, user: Account, session: SignedIn) -> ApprovedCodes:
    return await approve_codes(acme, app, edge, pool, clock, user, session)


async def end_sessions(codes: ApprovedCodes, user: Account) -> None:
    tenant = codes.party.tenant
    answer = await tenant.api.delete(f"{tenant.path}/users/{user.id}/sessions", token=tenant.token("admin"))
    assert (answer.status, answer.json["sessions_revoked"]) == (200, 0), "the codes are not sessions"


async def remove_member(codes: ApprovedCodes, user: Account) -> None:
    await codes.party.tenant.join("ada", user)
    assert (await codes.party.tenant.remove("owner", "ada")).status == 200


async def remove_from_service(codes: ApprovedCodes, user: Account) -> None:
    key = await add_api_key(codes.party.tenant.pool, codes.party.service)
    assert (await codes.party.api.delete(f"/api/service/users/{user.id}", headers={"X-Api-Key": key})).status == 204


async def remove_from_group(codes: ApprovedCodes, user: Account) -> None:
    tenant = codes.party.tenant
    await tenant.join("ada", user)
    directory = await directory_of(tenant)
    answer = await directory.remove_member(user.id)
    assert answer.status == 200, answer.text


ENDINGS = {
    "out of the group": remove_from_group,
    "end sessions": end_sessions,
    "remove member": remove_member,
    "remove from service": remove_from_service,
}


@pytest.mark.parametrize("ending", ENDINGS)
async def test_codes_from_before_the_end_start_no_session(
    codes: ApprovedCodes,
    other_tenant: Tenant,
    app: QuartTrio,
    edge: Edge,
    pool: Pool,
    clock: FakeClock,
    ports: Ports,
    user: Account,
    session: SignedIn,
    ending: str,
) -> None:
    """Codes from other organizations and users stay valid."""
    other_approval = await approve_codes(other_tenant, app, edge, pool, clock, user, session)
    bob = await add_account(ports, "bob@example.com")
    await sign_in_browser(codes.party, bob)
    other_code = await codes.party.code()
    await ENDINGS[ending](codes, user)
    assert oauth_error(await codes.party.exchange(codes.code)) == INVALID
    assert oauth_error(await codes.cli.poll()) == DENIED
    assert await run_sql(pool, "select 1 from sessions where service_id is not null") == []
    assert (await other_approval.party.exchange(other_approval.code)).status == 200
    assert (await other_approval.cli.poll()).status == 200
    assert (await codes.party.exchange(other_code)).status == 200


async def test_an_exchanged_code_stays_stored(codes: ApprovedCodes, user: Account) -> None:
    """A second use still ends the session (security O-4)."""
    assert (await codes.party.exchange(codes.code)).status == 200
    tenant = codes.party.tenant
    answer = await tenant.api.delete(f"{tenant.path}/users/{user.id}/sessions", token=tenant.token("owner"))
    assert answer.json["sessions_revoked"] == 1
    assert await run_sql(tenant.pool, "select count(session_id) from authorization_codes") == [(1,)]


async def test_a_later_approval_works(codes: ApprovedCodes, user: Account, session: SignedIn) -> None:
    await end_sessions(codes, user)
    assert (await codes.party.exchange(await codes.party.code())).status == 200
    await codes.approve(session)
    assert (await codes.cli.poll()).status == 200


@pytest.mark.parametrize("device", [False, True])
async def test_an_exchange_that_waits_for_the_end_starts_no_session(
    codes: ApprovedCodes, user: Account, acme: Tenant, pool: Pool, device: bool
) -> None:
    """The exchange has found the code valid, and waits for the account that the concurrent transaction locks."""
    changes: list[tuple[str, tuple[UUID, ...]]] = [
        ("select 1 from users where id = %s for update", (user.id,)),
        ("delete from authorization_codes where user_id = %s", (user.id,)),
        ("update device_codes set status = 'denied', session_id = null where org_id = %s", (acme.org,)),
    ]
    if device:
        assert oauth_error(await run_during(pool, changes, codes.cli.poll)) in (DENIED, INVALID)
    else:
        assert oauth_error(await run_during(pool, changes, lambda: codes.party.exchange(codes.code))) == INVALID
    assert await run_sql(pool, "select 1 from sessions where service_id is not null") == []
