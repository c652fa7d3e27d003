"""Organizations whose names look like the product or another organization are marked for those who approve them (security T-7)."""

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.kernel.values import new_id
from ports import Ports
from tests.fakes.outside import FakeMailTransport
from tests.support.browser import FakeBrowser
from tests.support.builders import PASSWORD, add_account, add_organization, add_person, deliver, run_sql
from tests.support.platform import LIST, Platform


async def add(pool: Pool, slug: str, name: str, status: str = "pending") -> str:
    org = await add_organization(pool, slug, status)
    await run_sql(pool, "update organizations set name = %s where id = %s", name, org)
    return str(org)


async def resembled(platform: Platform, org: str) -> list[str]:
    listed = {item["organization"]["id"]: item["resembles"] for item in (await platform.listed())["organizations"]}
    details = (await platform.api.get(f"{LIST}/{org}", token=platform.token)).json
    assert details["resembles"] == listed[org]
    return list(listed[org])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Gatehouse Support", ["Gatehouse"]),
        ("GATEHOUSE", ["Gatehouse"]),
        ("Gate-House", ["Gatehouse"]),
        ("G\u0430teh\u043euse", ["Gatehouse"]),  # Cyrillic letters
        ("Gat\u00e9h0use", ["Gatehouse"]),
        ("Gatehouse by Globex", ["Gatehouse", "Globex"]),
        ("Globex", ["Globex"]),
        ("GIobex Inc.", ["Globex"]),  # a capital I
        ("MyGlobexTeam", ["Globex"]),
        ("\u13c0lobex", []),  # a letter that the table does not know
        ("Glob", []),
        ("ABC", ["A.B.C."]),
        ("ABC Tools", []),  # too short to be a part
        ("Refused", []),
        ("\U0001f512", []),
        ("Team of Ada", []),
    ],
)
async def test_a_name_is_compared_with_the_product_and_with_other_organizations(
    platform: Platform, pool: Pool, name: str, expected: list[str]
) -> None:
    await add(pool, "globex", "Globex", "active")
    await add(pool, "a-b-c", "A.B.C.", "suspended")
    await add(pool, "refused", "Refused", "rejected")
    assert await resembled(platform, await add(pool, "slug-of-it", name)) == expected


async def test_slugs_count_too(platform: Platform, pool: Pool) -> None:
    await add(pool, "globex", "The Firm", "active")
    assert await resembled(platform, await add(pool, "globex-billing", "Billing")) == ["The Firm"]
    assert await resembled(platform, await add(pool, "gatehouse-team", "Team")) == ["Gatehouse"]


async def test_five_names_are_listed_at_most(platform: Platform, pool: Pool) -> None:
    for number in range(7):
        await add(pool, f"globex-{number}", f"Globex{'!' * number}", "active")
    assert len(await resembled(platform, await add(pool, "new", "Gatehouse Globex"))) == 5


async def test_the_email_and_the_pages_of_approvers_say_it(
    app: QuartTrio, platform: Platform, ports: Ports, pool: Pool, sent: FakeMailTransport
) -> None:
    _, token = await add_person(ports, pool, "ada")
    created = await platform.api.post("/api/organizations", {"slug": f"x-{new_id()}"[:20], "name": "Gatehouse Support"}, token=token)
    assert created.status == 200, created.text
    await deliver(ports)
    [message] = [email for email in sent.emails if email.to == platform.account.email]
    assert "Look closely: its name contains, or looks like:\nGatehouse" in message.text
    browser, owner = FakeBrowser(app), await add_account(ports, "grace@example.com", is_platform_owner=True)
    await browser.sign_in(owner.email, PASSWORD)
    for page in ("/app/platform/organizations", f"/app/platform/organizations/{created.json['organization']['id']}"):
        assert "Looks like</span>" in (await browser.open(page)).text, page
