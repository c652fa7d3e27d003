"""The profile in GET and PATCH /api/user, and where the user's organizations see it (decision 247)."""

from typing import Any
from uuid import UUID

import pytest

from adapters.postgres.engine.pool import Pool
from ports import Ports
from tests.accounts.profiles import ALL_FIELDS, NO_FIELDS, set_profile
from tests.support.builders import Api, add_account, add_member, run_concurrently, run_sql, sign_in
from tests.support.refusals import BAD, refused
from tests.support.tenants import Tenant


@pytest.fixture
async def token(ports: Ports) -> str:
    return (await sign_in(ports, await add_account(ports))).access_token


async def read_profile(api: Api, token: str) -> dict[str, Any]:
    answer = await api.get("/api/user", token=token)
    assert answer.status == 200
    return {name: answer.json[name] for name in ALL_FIELDS if name in answer.json}


async def test_a_change_sets_the_named_fields_and_null_clears_them(api: Api, token: str) -> None:
    assert await read_profile(api, token) == NO_FIELDS
    answer = await api.patch("/api/user", ALL_FIELDS, token=token)
    assert (answer.status, answer.json | ALL_FIELDS) == (200, answer.json)
    answer = await api.patch("/api/user", {"name": " Countess ", "picture": None, "gender": None}, token=token)
    expected = {**ALL_FIELDS, "name": "Countess", "picture": None}
    del expected["gender"]
    assert answer.json | expected == answer.json
    assert await read_profile(api, token) == expected


async def test_a_refused_field_changes_nothing(api: Api, token: str) -> None:
    await api.patch("/api/user", ALL_FIELDS, token=token)
    before = (await api.get("/api/user", token=token)).json
    for bad in (
        {"name": ""},
        {"name": 5},
        {"picture": "http://x.example/a"},
        {"locale": "en_US"},
        {"zoneinfo": "Mars/Base"},
        {"birthdate": "1990-02-30"},
        {"website": "http://x.example"},
        {"nickname": ""},
        {"email": None},
    ):
        answer = await api.patch("/api/user", {"name": "New", "email": "new@example.com", **bad}, token=token)
        assert refused(answer) == BAD, bad
    assert (await api.get("/api/user", token=token)).json == before


async def test_the_profile_stays_if_the_new_address_is_refused(api: Api, ports: Ports, token: str) -> None:
    await add_account(ports, "taken@example.com")
    for email in ("taken@example.com", "not an address"):
        assert refused(await api.patch("/api/user", {"name": "New", "email": email}, token=token)) == BAD
    assert await read_profile(api, token) == NO_FIELDS


async def test_a_change_is_recorded_in_confirmed_organizations_without_values(acme: Tenant, api: Api) -> None:
    for body in ({"name": "Ada", "locale": "en"}, {"name": "Ada", "locale": "en"}, {}):  # the second changes nothing
        assert (await api.patch("/api/user", body, token=acme.token("member"))).status == 200
    [entry] = await acme.log()
    assert (entry["action"], entry["target_id"], str(entry["actor_id"])) == ("user.updated", acme.id("member"), acme.id("member"))
    assert entry["details"] == {"changed": ["name", "locale"]}
    assert [name for name, *_ in await acme.webhook_events()] == ["user.updated"]


async def test_concurrent_changes_of_different_fields_are_all_kept(api: Api, token: str) -> None:
    fields = list(ALL_FIELDS.items())
    await run_concurrently(20, lambda number: api.patch("/api/user", dict([fields[number % len(fields)]]), token=token))
    assert await read_profile(api, token) == ALL_FIELDS


async def test_members_show_the_name_of_confirmed_memberships_only(acme: Tenant, pool: Pool, ports: Ports) -> None:
    """Otherwise an organization that adds an address would learn its owner's name."""
    stranger = await add_account(ports, "stranger@example.com")
    await add_member(pool, acme.org, stranger.id)
    for user_id in (stranger.id, acme.people["member"].id):
        await set_profile(ports, user_id)
    listed = (await acme.api.get(f"{acme.path}/members", token=acme.token("owner"))).json["members"]
    names = {UUID(item["user"]["id"]): item["user"]["name"] for item in listed}
    assert (names[stranger.id], names[acme.people["member"].id]) == (None, "Ada Lovelace")
    await run_sql(pool, "update memberships set confirmed_at = now()")
    listed = (await acme.api.get(f"{acme.path}/members", token=acme.token("owner"))).json["members"]
    assert sum(item["user"]["name"] == "Ada Lovelace" for item in listed) == 2
