"""Tests that every protocol applies the one rule for access to services (security C-5)."""

from dataclasses import dataclass

from adapters.postgres.engine.pool import Pool
from core.accounts.accounts_rules import Account
from core.authentication.service_access import may_use_service
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.federation.api.cli import DeviceClient
from tests.federation.api.relying import RelyingParty, add_relying_party, redirect_parts
from tests.support.browser import ACCOUNT, leads_to
from tests.support.builders import EMAIL, PASSWORD, add_provisioned, log_in, sign_in
from tests.support.saml import SamlApplication
from tests.support.saml_browser import SamlBrowser
from tests.support.services import add_service_user, service_context
from tests.support.tenants import Tenant


@dataclass(slots=True)
class Grants:
    """What a user has from before: a code, refresh tokens, and a device that they approved."""

    code: str
    refresh_token_of_code: str
    refresh_token_of_password: str
    approved: DeviceClient


async def test_every_protocol_refuses_a_user_that_the_directory_blocks(
    acme: Tenant, user: Account, browser: SamlBrowser, shop: SamlApplication, ports: Ports, pool: Pool, clock: FakeClock
) -> None:
    """Only the block changes: sessions, codes and approvals from before it are still live."""
    party: RelyingParty = await add_relying_party(acme, browser, "store")
    await add_service_user(ports, party.service, user.id)
    service = await service_context(pool, party.service)
    token = (await sign_in(ports, user)).access_token
    assert leads_to(await browser.sign_in()) == ACCOUNT

    async def new_device() -> DeviceClient:
        device = DeviceClient(acme.api, pool, clock, service)
        await device.begin()
        return device

    async def grant() -> Grants:
        approved = await new_device()
        assert (await approved.decide(token)).status == 200
        of_code, of_password = await party.tokens(), await log_in(ports, service=service)
        return Grants(await party.code(), of_code["refresh_token"], of_password.refresh_token, approved)

    async def allowed(grants: Grants) -> dict[str, bool]:
        """Return the protocols and whether they let the user in."""
        login = {"email": EMAIL, "password": PASSWORD, "org_slug": acme.slug, "service_slug": party.slug}
        renewal = {"refresh_token": grants.refresh_token_of_password}
        answers = {
            "password login": await acme.api.post("/api/auth/login", login),
            "code exchange": await party.exchange(grants.code),
            "OAuth refresh": await party.refresh(grants.refresh_token_of_code),
            "API refresh": await acme.api.post("/api/auth/refresh", renewal),
            "device approval": await (await new_device()).decide(token),
            "device redemption": await grants.approved.poll_after_interval(),
        }
        return {
            **{protocol: answer.status == 200 for protocol, answer in answers.items()},
            "OAuth authorization": "code" in redirect_parts(await party.open_request())[1],
            "SAML sign-on": (await browser.sign_on(shop, IsPassive="true")).statuses == ["Success"],
        }

    before, after = await grant(), await grant()
    outcome = await allowed(before)
    assert outcome == dict.fromkeys(outcome, True)
    await add_provisioned(pool, acme.org, user.id, provisioned=False, blocked=True)
    assert await allowed(after) == dict.fromkeys(outcome, False)
    async with ports.storage.reading() as read:
        assert not await may_use_service(read, acme.org, user.id)
