"""An audit log's order, pages and filters (security N-6)."""

import pytest

from core.accounts.model.accounts import Account
from tests.eventing.api.audit.log import LOG, Record, World, actions, logs, person
from tests.support.builders import Api


async def test_entries_are_sorted_newest_first(api: Api, world: World, record: Record) -> None:
    for name in ("user.invited", "plan.created", "api_key.deleted"):
        await record(name)
    assert await actions(api, world) == ["api_key.deleted", "plan.created", "user.invited"]


async def test_entries_of_one_transaction_keep_their_order(api: Api, world: World, record: Record) -> None:
    names = ["webhook.deleted", "user.joined", "plan.created", "user.invited", "domain.set", "user.joined", "api_key.created"]
    await record(*names)
    assert await actions(api, world) == names[::-1]


PAGES = {
    # query: targets, (page, limit, pages, has_next, has_prev)
    "": ("43210", (1, 50, 1, False, False)),
    "?limit=2": ("43", (1, 2, 3, True, False)),
    "?limit=2&page=2": ("21", (2, 2, 3, True, True)),
    "?limit=2&page=3": ("0", (3, 2, 3, False, True)),
    "?limit=2&page=4": ("", (4, 2, 3, False, True)),
    "?limit=5": ("43210", (1, 5, 1, False, False)),
    "?limit=5&page=2": ("", (2, 5, 1, False, True)),
    "?limit=0&page=0": ("4", (1, 1, 5, True, False)),
    "?limit=-7&page=-7": ("4", (1, 1, 5, True, False)),
    "?limit=1000&page=1": ("43210", (1, 100, 1, False, False)),
    f"?limit={10**40}&page={10**40}": ("", (2**31 - 1, 100, 1, False, True)),
}


@pytest.mark.slow
async def test_the_log_has_pages(api: Api, world: World, record: Record) -> None:
    for number in range(5):
        await record("user.invited", target=str(number))
        await record("user.invited", target=f"twin-{number}", org=world.other_tenant)
    for query, (targets, (number, limit, pages, has_next, has_prev)) in PAGES.items():
        answer = await api.get(f"{LOG}{query}", token=world.token)
        assert [entry["target_id"] for entry in answer.json["logs"]] == list(targets), query
        assert answer.json["pagination"] == {
            "page": number,
            "limit": limit,
            "total": 5,
            "total_pages": pages,
            "has_next": has_next,
            "has_prev": has_prev,
        }, query


async def test_an_empty_log_has_no_pages(api: Api, world: World) -> None:
    answer = await api.get(LOG, token=world.token)
    assert answer.json["logs"] == []
    assert answer.json["pagination"] == {"page": 1, "limit": 50, "total": 0, "total_pages": 0, "has_next": False, "has_prev": False}


async def test_a_page_that_is_not_an_integer_is_refused(api: Api, world: World) -> None:
    for query in ("page=x", "page=", "page=1.0", "limit=0x10", "limit=%205", "limit=%D9%A3", "limit=--1", "page=1&page=2"):
        answer = await api.get(f"{LOG}?{query}", token=world.token)
        assert (answer.status, answer.code) == (400, "BAD_REQUEST"), query
        assert query.partition("=")[0] in answer.json["error"]


ORGANIZATION = ["branding.updated", "domain.verified", "domain.set", "organization.updated"]

FILTERS = [
    ("", [*ORGANIZATION, "plan.created", "user.joined", "user.joined", "user.role_updated"]),
    ("action=user.joined", ["user.joined", "user.joined"]),
    ("action=domain.set", ["domain.set"]),
    ("action=plan.deleted", []),
    ("action=organization.deleted", []),
    ("action=no.such.action", []),
    ("action=", []),
    ("action=user.%25", []),
    ("action=USER.JOINED", []),
    ("target_type=user", ["user.joined", "user.joined", "user.role_updated"]),
    ("target_type=plan", ["plan.created"]),
    ("target_type=service", []),
    ("target_type=organization", ORGANIZATION),
    ("target_type=domain", ["domain.verified", "domain.set"]),
    ("target_type=branding", ["branding.updated"]),
    ("target_type=user&target_id=u1", ["user.joined", "user.role_updated"]),
    ("target_type=user&target_id=u3", []),
    ("target_type=user&target_id=", []),
    ("target_type=user&target_id='%20or%20true--", []),
    ("target_type=plan&target_id=u1", ["plan.created"]),
    ("target_type=organization&target_id={org}", ORGANIZATION),
    ("target_type=domain&target_id={org}", ["domain.verified", "domain.set"]),
    ("target_type=branding&target_id={org}", ["branding.updated"]),
    ("target_type=organization&target_id={other_tenant}", []),
    ("target_type=domain&target_id={other_tenant}", []),
    ("target_type=domain&target_id=x", []),
    ("actor_id={owner}", ["organization.updated", "plan.created", "user.role_updated"]),
    ("actor_id={admin}", ["branding.updated", "domain.set", "user.joined", "user.joined"]),
    ("actor_id={other}", []),
    ("actor_id=00000000-0000-0000-0000-000000000000", []),
    ("actor_id=not-an-id", []),
    ("actor_id=", []),
    ("actor_id=system", ["domain.verified"]),
    ("actor_id=system&action=domain.set", []),
    ("actor_id=anonymous", []),
    ("actor_id=unknown", []),
    ("action=user.joined&target_type=user", ["user.joined", "user.joined"]),
    ("action=user.joined&target_type=plan", []),
    ("action=domain.set&target_type=domain", ["domain.set"]),
    ("action=domain.set&target_type=organization", ["domain.set"]),
    ("action=domain.set&target_type=branding", []),
    ("action=user.joined&target_type=user&target_id=u2", ["user.joined"]),
    ("action=user.joined&target_type=user&target_id=u2&actor_id={admin}", ["user.joined"]),
    ("action=user.joined&target_type=user&target_id=u2&actor_id={owner}", []),
    ("action=user.joined&actor_id={admin}", ["user.joined", "user.joined"]),
    ("action=user.joined&actor_id=x", []),
    ("target_type=user&actor_id={owner}", ["user.role_updated"]),
    ("target_type=domain&actor_id={admin}", ["domain.set"]),
    ("target_type=domain&target_id={org}&actor_id={admin}", ["domain.set"]),
    ("target_type=user&target_id=u1&actor_id={owner}", ["user.role_updated"]),
    ("action=plan.created&success=false", []),
    ("action=plan.created&success=True", ["plan.created"]),
    ("since=2999-01-01T00:00:00Z", []),
    ("until=2999-01-01T00:00:00Z&since=2000-01-01T00:00:00%2B02:00&action=plan.created", ["plan.created"]),
    # Ignored like all unknown parameters.
    ("action=plan.created&start_date=2999-01-01&end_date=x&from=1&q=%25", ["plan.created"]),
    ("org_id={other_tenant}&org_slug=twin&action=plan.created", ["plan.created"]),
]


@pytest.mark.slow
async def test_filters_select_entries(api: Api, world: World, admin_with_entries: Account) -> None:
    for query, expected in FILTERS:
        filled = query.format(
            org=world.org, other_tenant=world.other_tenant, owner=world.owner.id, admin=admin_with_entries.id, other=world.other.id
        )
        entries = await logs(api, world, f"?{filled}")
        assert [entry["action"] for entry in entries] == expected, query
        assert {entry["org_id"] for entry in entries} <= {str(world.org)}


@pytest.mark.slow
async def test_the_total_counts_the_filtered_entries(api: Api, world: World, record: Record) -> None:
    for number in range(6):
        await record("domain.set", "user.role_updated", "domain.verified", target=str(number), by=person(world.owner))
    for query, total in (
        ("target_type=domain", 12),
        ("action=domain.set", 6),
        ("target_type=user", 6),
        (f"target_type=domain&actor_id={world.owner.id}", 12),
    ):
        whole = (await api.get(f"{LOG}?limit=100&{query}", token=world.token)).json["logs"]
        pages = [(await api.get(f"{LOG}?limit=5&page={number}&{query}", token=world.token)).json for number in (1, 2, 3, 4)]
        assert [entry for page in pages for entry in page["logs"]] == whole
        assert {page["pagination"]["total"] for page in pages} == {total} == {len(whole)}


async def test_an_unknown_target_type_is_refused_with_the_list_of_types(api: Api, world: World) -> None:
    for target_type in ("users", "User", "", "x", "user,plan", "domain."):
        answer = await api.get(f"{LOG}?target_type={target_type}", token=world.token)
        assert (answer.status, answer.code) == (400, "BAD_REQUEST"), target_type
        for type_ in ("user", "service", "organization", "plan", "subscription", "invitation", "api_key", "domain", "branding"):
            assert f"'{type_}'" in answer.json["error"]


async def test_a_target_id_without_target_type_is_refused(api: Api, world: World) -> None:
    for query in ("target_id=u1", "target_id=", "target_id=u1&action=user.invited", "target_id=x&actor_id=x"):
        answer = await api.get(f"{LOG}?{query}", token=world.token)
        assert (answer.status, answer.code) == (400, "BAD_REQUEST"), query
        assert "target_type" in answer.json["error"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["action", "actor_id", "target_type=user&target_id"])
async def test_parameters_that_are_not_valid_are_refused(api: Api, world: World, name: str) -> None:
    for value in ("%00", "a%0Ab", "%E2%80%AE", "x" * 2049, f"a&{name}=b"):
        answer = await api.get(f"{LOG}?{name}={value}", token=world.token)
        assert (answer.status, answer.code) == (400, "BAD_REQUEST"), value
