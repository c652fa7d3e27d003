"""The emails about an organization's state, to its owner and to platform owners (decision 207; security E-1, E-5)."""

from dataclasses import replace

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from ports import Ports
from tests.fakes.outside import FakeMailTransport
from tests.support.builders import Api, add_account, add_member, add_organization, add_platform_owner, deliver, run_sql, sign_in
from tests.support.direct import change_ports
from tests.support.platform import Platform

OWNER = "owner@acme.example"


async def add_owned(ports: Ports, pool: Pool, status: str) -> tuple[object, object]:
    """Add an organization with branding, a mail server and an owner. Return their ids."""
    org, owner = await add_organization(pool, "acme", status), await add_account(ports, OWNER)
    await add_member(pool, org, owner.id, "owner")
    await add_member(pool, org, (await add_account(ports, "admin@acme.example")).id, "admin")
    branding = "insert into branding (org_id, product_name, primary_color, updated_at) values (%s, 'Acme Portal', '#7a1fa2', now())"
    await run_sql(pool, branding, org)
    return org, owner.id


@pytest.mark.parametrize(
    ("action", "status", "body", "subject", "reason"),
    [
        ("approve", "pending", {}, "Acme was approved - Gatehouse", None),
        ("reject", "pending", {"reason": "Not a company."}, "Acme was rejected - Gatehouse", "Not a company."),
        ("suspend", "active", {"reason": "Unpaid since March."}, "Acme was suspended - Gatehouse", "Unpaid since March."),
        ("suspend", "active", {}, "Acme was suspended - Gatehouse", None),
        ("activate", "suspended", None, "Acme is active again - Gatehouse", None),
    ],
)
async def test_the_owner_learns_what_was_decided_and_why(
    platform: Platform,
    ports: Ports,
    pool: Pool,
    sent: FakeMailTransport,
    action: str,
    status: str,
    body: object,
    subject: str,
    reason: str | None,
) -> None:
    org, _ = await add_owned(ports, pool, status)
    answer = await platform.do(action, org, body)
    assert answer.status == 200, answer.text
    again = await platform.do(action, org, body)  # refused, because the status changed
    assert again.status == 400
    [(token,)] = await run_sql(pool, "select token from mails")
    assert (token is not None) == (reason is not None)
    assert reason is None or reason.encode() not in token  # sealed
    await deliver(ports)
    [email] = sent.emails
    assert (email.to, email.subject) == (OWNER, subject)
    assert "Acme Portal" not in email.text + email.html
    assert ("The reason: " in email.text, (reason or "") in email.text) == (reason is not None, True)
    assert sent.servers == {email.message_id: None}


async def test_no_email_is_sent_about_an_organization_without_a_usable_owner_or_a_deleted_one(
    platform: Platform, ports: Ports, pool: Pool, sent: FakeMailTransport
) -> None:
    org, owner = await add_owned(ports, pool, "active")
    await run_sql(pool, "update users set deactivated_at = now() where id = %s", owner)
    assert (await platform.do("suspend", org, {})).status == 200
    assert await run_sql(pool, "select kind from mails") == []
    await run_sql(pool, "update users set deactivated_at = null")
    assert (await platform.do("activate", org)).status == 200
    assert (await platform.do("delete", org)).status == 204
    await deliver(ports)
    assert sent.emails == []


async def create(api: Api, ports: Ports, slug: str, email: str = OWNER) -> str:
    """Create an organization, and return its id."""
    token = (await sign_in(ports, await add_account(ports, email))).access_token
    answer = await api.post("/api/organizations", {"slug": slug, "name": "Acme"}, token=token)
    assert answer.status == 200, answer.text
    return str(answer.json["organization"]["id"])


async def test_platform_owners_learn_of_an_organization_that_waits(
    platform: Platform, ports: Ports, pool: Pool, sent: FakeMailTransport
) -> None:
    await add_platform_owner(ports, "second@platform.example")
    gone = await add_platform_owner(ports, "gone@platform.example")
    await run_sql(pool, "update users set deactivated_at = now() where id = %s", gone.id)
    org = await create(platform.api, ports, "acme")
    await deliver(ports)
    assert sorted(email.to for email in sent.emails) == ["second@platform.example", platform.account.email]
    assert {email.subject for email in sent.emails} == {"An organization waits for approval - Gatehouse"}
    assert all(f"POST /api/platform/organizations/{org}/approve" in email.text and OWNER in email.text for email in sent.emails)


async def test_platform_owners_get_no_email_about_an_organization_that_no_longer_waits(
    platform: Platform, ports: Ports, sent: FakeMailTransport
) -> None:
    org = await create(platform.api, ports, "acme")
    assert (await platform.do("approve", org, {})).status == 200
    await deliver(ports)
    assert [email.to for email in sent.emails] == [OWNER]


async def test_platform_owners_get_no_email_if_it_is_turned_off_or_not_necessary(
    app: QuartTrio, platform: Platform, ports: Ports, sent: FakeMailTransport
) -> None:
    silent, automatic = replace(ports.policy, notify_owners_of_organizations=False), replace(ports.policy, auto_approve_organizations=True)
    for number, policy in enumerate((silent, automatic)):
        change_ports(app, policy=policy)
        await create(platform.api, ports, f"acme{number}", f"owner{number}@acme.example")
    change_ports(app, policy=ports.policy)
    # The creator knows.
    answer = await platform.api.post("/api/organizations", {"slug": "own", "name": "Own"}, token=platform.token)
    assert answer.status == 200
    await deliver(ports)
    assert sent.emails == []


async def test_many_new_organizations_do_not_flood_platform_owners(platform: Platform, ports: Ports, sent: FakeMailTransport) -> None:
    for number in range(ports.policy.mails_per_recipient + 2):
        await create(platform.api, ports, f"acme{number}", f"owner{number}@acme.example")
    await deliver(ports)
    assert [email.to for email in sent.emails] == [platform.account.email] * ports.policy.mails_per_recipient
