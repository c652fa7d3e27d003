"""A refused action shows the reason on the page with its button, and changes nothing."""

from datetime import timedelta
from uuid import UUID

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.kernel.roles import OWNER
from ports import Ports
from tests.support.browser import FakeBrowser
from tests.support.builders import PASSWORD, Answer, add_account, add_invitation, add_member, add_organization, run_sql
from tests.support.services import add_plan, add_service, add_subscription
from tests.support.webhooks import add_webhook, happen, queue

ROOT = "/app/organizations/acme"
SHOP = f"{ROOT}/applications/shop"


@pytest.fixture
async def acme(ports: Ports, pool: Pool) -> UUID:
    """An organization with an owner and an application."""
    org = await add_organization(pool, "acme")
    owner = await add_account(ports, "ada@example.com", PASSWORD)
    await add_member(pool, org, owner.id, OWNER, confirmed=True)
    return org


@pytest.fixture
async def owner(app: QuartTrio, acme: UUID) -> FakeBrowser:
    browser = FakeBrowser(app)
    await browser.sign_in("ada@example.com", PASSWORD)
    return browser


def check(answer: Answer, reason: str) -> None:
    """Check that the answer is a console page that shows this reason."""
    assert (answer.status, 'id="navigation"' in answer.text) == (400, True), answer.text
    assert "Nothing was changed. " + reason in answer.text


async def test_a_paused_webhook_gets_no_delivery(owner: FakeBrowser, acme: UUID, ports: Ports, pool: Pool) -> None:
    webhook = await add_webhook(ports, acme, "https://hooks.example.com/")
    await happen(ports, acme)
    [delivery] = await queue(pool)
    await run_sql(pool, "update webhooks set is_active = false")
    path = f"{ROOT}/webhooks/{webhook.id}"
    check(await owner.submit(f"{path}/test"), "The webhook is")
    check(await owner.submit(f"{path}/deliveries/{delivery['id']}/replay"), "The webhook is")


async def test_a_plan_with_subscribers_is_not_deleted(owner: FakeBrowser, acme: UUID, ports: Ports, pool: Pool) -> None:
    shop = await add_service(pool, acme)
    plan = await add_plan(pool, shop)
    user = await add_account(ports, "eve@example.com")
    await add_subscription(ports, pool, shop, user.id, plan, ends=ports.clock.now() + timedelta(days=30))
    check(await owner.submit(f"{SHOP}/plans/{plan}/delete"), "This plan has active or past due")


async def test_there_is_no_certificate_without_saml(owner: FakeBrowser, acme: UUID, pool: Pool) -> None:
    await add_service(pool, acme)
    check(await owner.submit(f"{SHOP}/saml/certificate"), "SAML is not enabled")


async def test_an_invitation_of_a_member_is_not_sent_again(owner: FakeBrowser, acme: UUID, ports: Ports, pool: Pool) -> None:
    invitation = await add_invitation(ports, acme, "eve@example.com")
    await add_member(pool, acme, (await add_account(ports, "eve@example.com")).id)
    check(await owner.submit(f"{ROOT}/invitations/{invitation.id}/resend"), "This user is already a member")


async def test_an_active_organization_is_not_activated(app: QuartTrio, acme: UUID, ports: Ports) -> None:
    steward = FakeBrowser(app)
    await add_account(ports, "steward@platform.example", PASSWORD, is_platform_owner=True)
    await steward.sign_in("steward@platform.example", PASSWORD)
    check(await steward.submit(f"/app/platform/organizations/{acme}/activate"), "The organization is active.")
