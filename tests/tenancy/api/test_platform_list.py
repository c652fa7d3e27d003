"""Tiers and the list with all organizations, for platform owners (decisions 236, 238; security T-7)."""

from datetime import timedelta
from uuid import UUID

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.kernel.values import new_id
from ports import Ports
from tests.fakes.outside import FakeMailTransport
from tests.support.browser import FakeBrowser
from tests.support.builders import (
    FREE_ID,
    PASSWORD,
    PROFESSIONAL_ID,
    add_account,
    add_member,
    add_organization,
    add_person,
    deliver,
    run_sql,
)
from tests.support.platform import LIST, NOWHERE, STATUSES, Platform
from tests.support.services import add_service

LONG_NAME = "The Society for the Preservation of Analytical Engines"


async def add_hourly(pool: Pool, *slugs: str) -> list[UUID]:
    """Add active organizations, created at intervals of an hour."""
    org_ids = [await add_organization(pool, slug) for slug in slugs]
    for hours, org in enumerate(org_ids):
        await run_sql(
            pool, "update organizations set created_at = timestamptz '2026-01-01Z' + %s where id = %s", timedelta(hours=hours), org
        )
    return org_ids


# Tiers


async def test_two_tiers_exist_at_first(platform: Platform) -> None:
    answer = await platform.api.get("/api/platform/tiers", token=platform.token)
    assert answer.json == [
        {
            "id": FREE_ID,
            "name": "free",
            "display_name": "Free",
            "default_max_services": 3,
            "default_max_users": 100,
            "price_cents": 0,
        },
        {
            "id": PROFESSIONAL_ID,
            "name": "professional",
            "display_name": "Professional",
            "default_max_services": 10,
            "default_max_users": 1000,
            "price_cents": 0,
        },
    ]


# The list


async def test_an_organization_is_listed_with_its_owner_and_its_tier(platform: Platform, ports: Ports, pool: Pool) -> None:
    user, eve = await add_account(ports, "ada@example.com", None), await add_account(ports, "eve@example.com", None)
    org = await add_organization(pool, "acme")
    await add_member(pool, org, eve.id, "admin")
    await add_member(pool, org, user.id, "owner")
    await run_sql(pool, "update organizations set created_at = '2026-01-02T03:04:05Z', updated_at = '2026-02-03T04:05:06.7Z'")
    assert await platform.listed() == {
        "organizations": [
            {
                "organization": {
                    "id": str(org),
                    "slug": "acme",
                    "name": "Acme",
                    "status": "active",
                    "tier_id": FREE_ID,
                    "max_services": None,
                    "max_users": None,
                    "device_trust_days": 30,
                    "personal_tokens": True,
                    "members_see_end_users": True,
                    "created_at": "2026-01-02T03:04:05Z",
                    "updated_at": "2026-02-03T04:05:06.700000Z",
                    "approved_at": None,
                    "rejected_reason": None,
                    "suspended_reason": None,
                },
                "owner": {
                    "id": str(user.id),
                    "email": "ada@example.com",
                    "is_platform_owner": False,
                    "created_at": ports.clock.now().isoformat().replace("+00:00", "Z"),
                },
                "tier": {"id": FREE_ID, "name": "free", "display_name": "Free"},
                "resembles": [],
            }
        ],
        "total": 1,
    }


async def test_an_organization_without_an_owner_is_listed_with_a_placeholder(platform: Platform, ports: Ports, pool: Pool) -> None:
    user = await add_account(ports, "ada@example.com", None)
    org = await add_organization(pool, "acme")
    await add_member(pool, org, user.id, "owner")
    await run_sql(pool, "delete from memberships where user_id = %s", user.id)
    await run_sql(pool, "delete from users where id = %s", user.id)
    [item] = (await platform.listed())["organizations"]
    assert item["owner"] == {
        "id": "unknown",
        "email": "deleted-user@unknown",
        "is_platform_owner": False,
        "created_at": "1970-01-01T00:00:00Z",
    }


async def test_the_details_of_an_organization_have_its_size_and_its_limits(platform: Platform, ports: Ports, pool: Pool) -> None:
    org, other = await add_organization(pool, "acme", "suspended"), await add_organization(pool, "other")
    await add_member(pool, org, (await add_account(ports, "ada@example.com", None)).id, "owner")
    for one, slug in ((org, "shop"), (org, "wiki"), (other, "shop")):
        await add_service(pool, one, slug)
    await run_sql(pool, "update organizations set max_users = 7, suspended_reason = 'unpaid' where id = %s", org)
    answer = await platform.api.get(f"{LIST}/{org}", token=platform.token)
    assert answer.status == 200, answer.text
    [listed] = [item for item in (await platform.listed())["organizations"] if item["organization"]["slug"] == "acme"]
    assert answer.json == {**listed, "members": 1, "services": 2, "member_limit": 7, "service_limit": 3, "admin_networks": []}
    assert (listed["organization"]["suspended_reason"], listed["owner"]["email"]) == ("unpaid", "ada@example.com")
    for unknown in (NOWHERE, "acme"):
        assert (await platform.api.get(f"{LIST}/{unknown}", token=platform.token)).status == 404


async def test_an_organization_without_a_tier_is_listed_without_one(platform: Platform, pool: Pool) -> None:
    await add_organization(pool, "acme")
    await run_sql(pool, "update organizations set tier_id = null")
    [item] = (await platform.listed())["organizations"]
    assert (item["tier"], item["organization"]["tier_id"]) == (None, None)


async def test_the_newest_organizations_come_first(platform: Platform, pool: Pool) -> None:
    await add_hourly(pool, "oldest", "older", "newest")
    assert await platform.slugs() == ["newest", "older", "oldest"]


async def test_the_list_is_filtered_by_status_and_tier(platform: Platform, pool: Pool) -> None:
    org_ids = {status: await add_organization(pool, f"o-{status}", status) for status in STATUSES}
    for status in ("active", "pending"):
        await run_sql(pool, "update organizations set tier_id = %s where id = %s", PROFESSIONAL_ID, org_ids[status])
    for status in STATUSES:
        assert await platform.slugs(f"?status={status}") == [f"o-{status}"]
    assert set(await platform.slugs(f"?tier_id={PROFESSIONAL_ID}")) == {"o-active", "o-pending"}
    assert set(await platform.slugs(f"?tier_id={FREE_ID}")) == {"o-suspended", "o-rejected"}
    assert await platform.listed(f"?tier_id={PROFESSIONAL_ID}&status=suspended") == {"organizations": [], "total": 0}
    answer = await platform.listed(f"?tier_id={PROFESSIONAL_ID}&status=active&unknown=1")
    assert ([item["organization"]["slug"] for item in answer["organizations"]], answer["total"]) == (["o-active"], 1)


async def test_a_search_matches_a_part_of_the_slug_or_the_name_in_any_case(platform: Platform, pool: Pool) -> None:
    await add_hourly(pool, "acme", "globex", "initech")
    await run_sql(pool, "update organizations set name = 'The 100%% ACME CAFÉ' where slug = 'globex'")
    for search, slugs in {
        "acme": ["globex", "acme"],
        "ACM": ["globex", "acme"],
        "%20caf%C3%A9%20": ["globex"],
        "init": ["initech"],
        "100%25": ["globex"],
        "%25": ["globex"],
        "_": [],
        "": ["initech", "globex", "acme"],
        "acme&status=pending": [],
        "acme&limit=1": ["globex"],
    }.items():
        assert await platform.slugs(f"?search={search}") == slugs, search


async def test_a_tier_that_does_not_exist_matches_nothing(platform: Platform, pool: Pool) -> None:
    await add_organization(pool, "acme")
    for tier_id in (str(NOWHERE), "", "free", "1", FREE_ID.replace("-", ""), f"{{{FREE_ID}}}", FREE_ID + "0", "%27%20or%201=1", "x" * 500):
        assert await platform.listed(f"?tier_id={tier_id}") == {"organizations": [], "total": 0}, tier_id


async def test_an_unknown_status_is_refused_and_the_error_names_the_valid_ones(platform: Platform) -> None:
    for status in ("", "Active", "deleted", "active,pending", "0"):
        answer = await platform.api.get(f"{LIST}?status={status}", token=platform.token)
        assert (answer.status, answer.code) == (400, "BAD_REQUEST"), status
        assert all(word in answer.json["error"] for word in ("status", *STATUSES))


async def test_limit_and_offset_select_a_part_of_the_list(platform: Platform, pool: Pool) -> None:
    await add_hourly(pool, "a", "b", "c", "d", "e")
    for query, slugs in {
        "?limit=2": ["e", "d"],
        "?limit=2&offset=2": ["c", "b"],
        "?limit=2&offset=4": ["a"],
        "?limit=2&offset=5": [],
        "?offset=3": ["b", "a"],
        "?limit=0": ["e"],
        "?limit=-7": ["e"],
        "?limit=1&offset=-3": ["e"],
        f"?offset={10**30}": [],
        f"?limit={10**30}&offset=-{10**30}": ["e", "d", "c", "b", "a"],
        "?limit=2&status=active&offset=1": ["d", "c"],
    }.items():
        answer = await platform.listed(query)
        assert ([item["organization"]["slug"] for item in answer["organizations"]], answer["total"]) == (slugs, 5), query


async def test_a_page_has_fifty_items_by_default_and_at_most_a_hundred(platform: Platform, pool: Pool) -> None:
    await run_sql(
        pool,
        """
        insert into organizations (id, slug, name, status, created_at, updated_at)
        select gen_random_uuid(), 'o' || n, 'O', 'active', now(), now() from generate_series(1, 101) n""",
    )
    for query, length in {"": 50, "?limit=100": 100, "?limit=101": 100, "?limit=99999999999999999999": 100, "?limit=99": 99}.items():
        answer = await platform.listed(query)
        assert (len(answer["organizations"]), answer["total"]) == (length, 101), query


async def test_pages_do_not_overlap_if_organizations_have_the_same_creation_time(platform: Platform, pool: Pool) -> None:
    for number in range(6):
        await add_organization(pool, f"o{number}")
    await run_sql(pool, "update organizations set created_at = '2026-01-01Z'")
    slugs = [slug for offset in range(0, 6, 2) for slug in await platform.slugs(f"?limit=2&offset={offset}")]
    assert sorted(slugs) == [f"o{number}" for number in range(6)]


async def test_invalid_query_parameters_are_refused(platform: Platform) -> None:
    for query in ("limit=x", "limit=", "limit=1.5", "offset=x", "offset=", "offset=1e3", "limit=1&limit=2", "tier_id=%00"):
        answer = await platform.api.get(f"{LIST}?{query}", token=platform.token)
        assert (answer.status, answer.code) == (400, "BAD_REQUEST"), query
        assert query.partition("=")[0] in answer.json["error"]


# Names that look like other names


async def add_named(pool: Pool, slug: str, name: str, status: str = "pending") -> str:
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
        (f"Friends of {LONG_NAME}", [LONG_NAME]),
    ],
)
async def test_a_name_is_compared_with_the_product_and_with_other_organizations(
    platform: Platform, pool: Pool, name: str, expected: list[str]
) -> None:
    await add_named(pool, "globex", "Globex", "active")
    await add_named(pool, "a-b-c", "A.B.C.", "suspended")
    await add_named(pool, "refused", "Refused", "rejected")
    await add_named(pool, "symbols", "!!!", "active")
    await add_named(pool, "long-name", LONG_NAME, "active")
    assert await resembled(platform, await add_named(pool, "slug-of-it", name)) == expected


async def test_slugs_count_too(platform: Platform, pool: Pool) -> None:
    await add_named(pool, "globex", "The Firm", "active")
    assert await resembled(platform, await add_named(pool, "globex-billing", "Billing")) == ["The Firm"]
    assert await resembled(platform, await add_named(pool, "gatehouse-team", "Team")) == ["Gatehouse"]


async def test_five_names_are_listed_at_most(platform: Platform, pool: Pool) -> None:
    for number in range(7):
        await add_named(pool, f"globex-{number}", f"Globex{'!' * number}", "active")
    assert len(await resembled(platform, await add_named(pool, "new", "Gatehouse Globex"))) == 5


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
        assert "Similar name</span>" in (await browser.open(page)).text, page
    [(owner_id, members)] = await run_sql(
        pool,
        "select m.user_id, o.member_count from organizations o join memberships m on m.org_id = o.id where o.id = %s",
        UUID(created.json["organization"]["id"]),
    )
    listed = (await browser.open("/app/platform/organizations")).text
    assert f'<a href="/app/platform/people/{owner_id}">' in listed
    assert f'<td data-label="Members">{members}</td>' in listed
