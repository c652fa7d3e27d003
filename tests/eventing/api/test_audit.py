"""The audit log of an organization: what an entry shows, filters, pages, event types (organizations.md sections 2.8, 4.9 and 6.3;
decisions, points 9, 11, 13, 111, 153 and 226 to 232; security.md I-5, L-5, T-1, T-2)."""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID, uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts.accounts_rules import Account
from core.kernel import event_catalog
from core.kernel.event_catalog import EVENT_KINDS, Event
from core.kernel.principals import SYSTEM, Anonymous, Caller, Person
from ports import Ports
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.support.builders import (
    PASSWORD,
    Answer,
    Api,
    add_account,
    add_member,
    add_organization,
    add_platform_owner,
    deliver,
    impersonate,
    link,
    run_sql,
    sign_in,
)

LOG = "/api/organizations/acme/audit-log"
PERSON = Anonymous(address="203.0.113.9", agent="tests/1.0")
FIELDS = [
    *["id", "org_id", "actor", "action", "target_type", "target_id", "ip_address", "user_agent", "success", "details", "created_at"],
]


class World(NamedTuple):
    """An organization, its owner and the owner's token, and another one with an owner of its own."""

    org: UUID
    owner: Account
    token: str
    twin: UUID
    other: Account
    other_token: str


@pytest.fixture
async def world(ports: Ports, pool: Pool) -> World:
    owner, other = await add_account(ports, "owner@example.com"), await add_account(ports, "other@example.com")
    org, twin = await add_organization(pool, "acme"), await add_organization(pool, "twin")
    await add_member(pool, org, owner.id, "owner", confirmed=True)
    await add_member(pool, twin, other.id, "owner", confirmed=True)
    return World(org, owner, (await sign_in(ports, owner)).access_token, twin, other, (await sign_in(ports, other)).access_token)


Record = Callable[..., Awaitable[None]]


@pytest.fixture
def record(ports: Ports, clock: FakeClock, world: World) -> Record:
    """Record that something happened in `org`, a second after what was recorded before."""

    async def record(
        *names: str, org: UUID | None = None, target: str = "x", by: Caller = SYSTEM, details: Mapping[str, Any] | None = None
    ) -> None:
        clock.advance(timedelta(seconds=1))
        async with ports.storage.transaction(by=by, in_session=False) as tx:
            for name in names:
                tx.record(Event(EVENT_KINDS[name], target, org_id=org or world.org, details=details or {}))

    return record


def acting(account: Account, **changes: Any) -> Person:
    plain = Person(user_id=account.id, email=account.email, session_id=uuid4(), address="203.0.113.9", agent="tests/1.0")
    return replace(plain, **changes)


async def logs(api: Api, world: World, query: str = "") -> list[dict[str, Any]]:
    answer = await api.get(f"{LOG}{query}", token=world.token)
    assert answer.status == 200, answer.text
    found: list[dict[str, Any]] = answer.json["logs"]
    assert answer.json["pagination"]["total"] == len(found)
    return found


async def actions(api: Api, world: World, query: str = "") -> list[str]:
    return [entry["action"] for entry in await logs(api, world, query)]


# What an entry shows


async def test_an_entry_has_the_documented_fields(api: Api, world: World, record: Record, clock: FakeClock) -> None:
    details = {"service_slug": "shop", "service_name": "Shop", "permissions": ["read:users"], "nested": {"a": None}}
    await record("service.created", target="service-1", by=acting(world.owner), details=details)
    answer = await api.get(LOG, token=world.token)
    assert list(answer.json) == ["logs", "pagination"]
    [entry] = answer.json["logs"]
    assert list(entry) == FIELDS
    assert str(UUID(entry.pop("id")))
    assert entry == {
        "org_id": str(world.org),
        "actor": {"id": str(world.owner.id), "email": "owner@example.com", "is_platform_owner": False},
        "action": "service.created",
        "target_type": "service",
        "target_id": "service-1",
        "ip_address": "203.0.113.9",
        "user_agent": "tests/1.0",
        "success": True,
        "details": details,
        "created_at": clock.now().isoformat().replace("+00:00", "Z"),
    }


async def test_an_actor_is_shown_as_the_account_is_now(api: Api, world: World, record: Record, pool: Pool) -> None:
    await record("user.removed", by=acting(world.owner))
    await run_sql(pool, "update users set email = 'new@example.com', is_platform_owner = true where id = %s", world.owner.id)
    [entry] = await logs(api, world)
    assert entry["actor"] == {"id": str(world.owner.id), "email": "new@example.com", "is_platform_owner": True}


async def test_an_actor_whose_account_is_gone_is_unknown(api: Api, ports: Ports, world: World, record: Record, pool: Pool) -> None:
    gone = await add_account(ports, "gone@example.com")
    await record("user.removed", by=acting(gone))
    await run_sql(pool, "delete from users where id = %s", gone.id)
    [entry] = await logs(api, world)
    assert entry["actor"] == {"id": "unknown", "email": "deleted-user@unknown", "is_platform_owner": False}
    assert (entry["ip_address"], entry["user_agent"]) == ("203.0.113.9", "tests/1.0")


async def test_a_background_job_is_the_system_without_address(api: Api, world: World, record: Record) -> None:
    await record("invitation.expired", by=SYSTEM)
    [entry] = await logs(api, world)
    assert entry["actor"] == {"id": "system", "email": "system@internal", "is_platform_owner": False}
    assert (entry["ip_address"], entry["user_agent"]) == (None, None)


async def test_who_was_not_signed_in_is_anonymous_with_an_address(api: Api, world: World, record: Record) -> None:
    await record("invitation.declined", by=PERSON)
    [entry] = await logs(api, world)
    assert entry["actor"] == {"id": "anonymous", "email": "anonymous@internal", "is_platform_owner": False}
    assert (entry["ip_address"], entry["user_agent"]) == ("203.0.113.9", "tests/1.0")


async def test_whoever_has_no_account_is_found_by_the_id_that_the_log_shows(api: Api, world: World, record: Record) -> None:
    for action, by in (("invitation.declined", PERSON), ("invitation.expired", SYSTEM), ("user.invited", acting(world.owner))):
        await record(action, by=by)
    for query, found in (("anonymous", ["invitation.declined"]), ("system", ["invitation.expired"]), ("unknown", [])):
        assert [entry["action"] for entry in await logs(api, world, f"?actor_id={query}")] == found


async def test_a_request_without_agent_has_none(api: Api, world: World, record: Record) -> None:
    await record("invitation.declined", by=Anonymous(address="203.0.113.9"))
    [entry] = await logs(api, world)
    assert (entry["ip_address"], entry["user_agent"]) == ("203.0.113.9", None)


async def test_what_is_done_while_impersonating_names_both_persons(api: Api, ports: Ports, world: World, record: Record) -> None:
    support = await add_platform_owner(ports, "support@example.com")
    await record("user.invited", by=acting(world.owner, impersonator_id=support.id), details={"role": "member", "impersonator": "forged"})
    [entry] = await logs(api, world)
    assert entry["actor"]["email"] == "owner@example.com"
    assert entry["details"] == {"role": "member", "impersonator": {"id": str(support.id), "email": "support@example.com"}}


async def test_an_impersonator_whose_account_is_gone_is_unknown(api: Api, ports: Ports, world: World, record: Record, pool: Pool) -> None:
    support = await add_platform_owner(ports, "support@example.com")
    await record("user.invited", by=acting(world.owner, impersonator_id=support.id))
    await run_sql(pool, "delete from users where id = %s", support.id)
    [entry] = await logs(api, world)
    assert entry["details"] == {"impersonator": {"id": "unknown", "email": "deleted-user@unknown"}}


async def test_one_reads_the_log_also_while_impersonating(api: Api, ports: Ports, world: World, record: Record) -> None:
    await record("user.invited")
    support = await add_platform_owner(ports, "support@example.com")
    answer = await api.get(LOG, token=await impersonate(ports, support, world.owner, world.org))
    assert (answer.status, len(answer.json["logs"])) == (200, 1)


# Passwords: the first entries that were ever written


async def test_a_change_of_password_is_in_the_log_of_each_of_ones_organizations(api: Api, world: World, pool: Pool) -> None:
    await add_member(pool, world.twin, world.owner.id, confirmed=True)
    await api.post(
        "/api/user/change-password",
        {"current_password": PASSWORD, "new_password": "another good password"},
        token=world.token,
    )
    for path, token in ((LOG, world.token), ("/api/organizations/twin/audit-log", world.other_token)):
        [entry] = (await api.get(path, token=token)).json["logs"]
        assert (entry["action"], entry["target_type"], entry["target_id"]) == ("security.password.changed", "user", str(world.owner.id))
        assert (entry["actor"]["id"], entry["details"]) == (str(world.owner.id), {"method": "change"})


async def test_a_reset_is_by_nobody_who_is_signed_in_and_says_how(api: Api, ports: Ports, world: World, sent: FakeMailTransport) -> None:
    await api.post("/api/auth/forgot-password", {"email": "owner@example.com"})
    await deliver(ports)
    token = link(sent.letters[-1])
    answer = await api.post(
        "/api/auth/reset-password", {"token": token, "new_password": "another good password"}, headers={"User-Agent": "mail/2"}
    )
    assert answer.status == 200
    again = (await sign_in(ports, world.owner)).access_token
    [entry] = (await api.get(LOG, token=again)).json["logs"]
    assert (entry["action"], entry["target_id"], entry["details"]) == (
        "security.password.changed",
        str(world.owner.id),
        {"method": "reset"},
    )
    assert (entry["actor"]["id"], entry["user_agent"], entry["ip_address"] is None) == ("anonymous", "mail/2", False)
    assert "another good password" not in json.dumps(entry)
    assert token not in json.dumps(entry)


# Order and pages


async def test_the_newest_entry_comes_first(api: Api, world: World, record: Record) -> None:
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
async def test_pages(api: Api, world: World, record: Record) -> None:
    for number in range(5):
        await record("user.invited", target=str(number))
        await record("user.invited", target=f"twin-{number}", org=world.twin)
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


async def test_what_is_no_integer_is_refused(api: Api, world: World) -> None:
    for query in ("page=x", "page=", "page=1.0", "limit=0x10", "limit=%205", "limit=%D9%A3", "limit=--1", "page=1&page=2"):
        answer = await api.get(f"{LOG}?{query}", token=world.token)
        assert (answer.status, answer.code) == (400, "BAD_REQUEST"), query
        assert query.partition("=")[0] in answer.json["error"]


# Filters


@pytest.fixture
async def mixed(ports: Ports, world: World, record: Record) -> Account:
    """Entries of many kinds here and next door; the account is that of another member, who did some of them."""
    admin = await add_account(ports, "admin@example.com")
    for org in (world.org, world.twin):
        await record("user.invited", target="u1", by=acting(world.owner), org=org)
        await record("user.joined", target="u1", by=acting(admin), org=org)
        await record("user.joined", target="u2", by=acting(admin), org=org)
        await record("plan.created", target="u1", by=acting(world.owner), org=org)
        await record("organization.updated", target=str(org), by=acting(world.owner), org=org)
        await record("domain.set", target=str(org), by=acting(admin), org=org)
        await record("domain.verified", target=str(org), by=SYSTEM, org=org)
        await record("branding.updated", target=str(org), by=acting(admin), org=org)
    return admin


ORGANIZATION = ["branding.updated", "domain.verified", "domain.set", "organization.updated"]


FILTERS = [
    ("", [*ORGANIZATION, "plan.created", "user.joined", "user.joined", "user.invited"]),
    ("action=user.joined", ["user.joined", "user.joined"]),
    ("action=domain.set", ["domain.set"]),
    ("action=plan.deleted", []),
    ("action=organization.deleted", []),
    ("action=no.such.action", []),
    ("action=", []),
    ("action=user.%25", []),
    ("action=USER.JOINED", []),
    ("target_type=user", ["user.joined", "user.joined", "user.invited"]),
    ("target_type=plan", ["plan.created"]),
    ("target_type=service", []),
    ("target_type=organization", ORGANIZATION),
    ("target_type=domain", ["domain.verified", "domain.set"]),
    ("target_type=branding", ["branding.updated"]),
    ("target_type=user&target_id=u1", ["user.joined", "user.invited"]),
    ("target_type=user&target_id=u3", []),
    ("target_type=user&target_id=", []),
    ("target_type=user&target_id='%20or%20true--", []),
    ("target_type=plan&target_id=u1", ["plan.created"]),
    ("target_type=organization&target_id={org}", ORGANIZATION),
    ("target_type=domain&target_id={org}", ["domain.verified", "domain.set"]),
    ("target_type=branding&target_id={org}", ["branding.updated"]),
    ("target_type=organization&target_id={twin}", []),
    ("target_type=domain&target_id={twin}", []),
    ("target_type=domain&target_id=x", []),
    ("actor_id={owner}", ["organization.updated", "plan.created", "user.invited"]),
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
    ("target_type=user&actor_id={owner}", ["user.invited"]),
    ("target_type=domain&actor_id={admin}", ["domain.set"]),
    ("target_type=domain&target_id={org}&actor_id={admin}", ["domain.set"]),
    ("target_type=user&target_id=u1&actor_id={owner}", ["user.invited"]),
    # Declared unsupported, so ignored like any other unknown parameter (point 231).
    ("action=plan.created&success=false&success=x&start_date=2999-01-01&end_date=x&from=1&q=%25", ["plan.created"]),
    ("org_id={twin}&org_slug=twin&action=plan.created", ["plan.created"]),
]


@pytest.mark.slow
async def test_filters(api: Api, world: World, mixed: Account) -> None:
    for query, found in FILTERS:
        filled = query.format(org=world.org, twin=world.twin, owner=world.owner.id, admin=mixed.id, other=world.other.id)
        entries = await logs(api, world, f"?{filled}")
        assert [entry["action"] for entry in entries] == found, query
        assert {entry["org_id"] for entry in entries} <= {str(world.org)}


@pytest.mark.slow
async def test_filtered_pages_count_what_was_filtered(api: Api, world: World, record: Record) -> None:
    for number in range(6):
        await record("domain.set", "user.invited", "domain.verified", target=str(number), by=acting(world.owner))
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


async def test_an_unknown_target_type_is_refused_with_the_known_ones(api: Api, world: World) -> None:
    for given in ("users", "User", "", "x", "user,plan", "domain."):
        answer = await api.get(f"{LOG}?target_type={given}", token=world.token)
        assert (answer.status, answer.code) == (400, "BAD_REQUEST"), given
        for known in ("user", "service", "organization", "plan", "subscription", "invitation", "api_key", "domain", "branding"):
            assert f"'{known}'" in answer.json["error"]


async def test_a_target_without_its_type_is_refused(api: Api, world: World) -> None:
    for query in ("target_id=u1", "target_id=", "target_id=u1&action=user.invited", "target_id=x&actor_id=x"):
        answer = await api.get(f"{LOG}?{query}", token=world.token)
        assert (answer.status, answer.code) == (400, "BAD_REQUEST"), query
        assert "target_type" in answer.json["error"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["action", "actor_id", "target_type=user&target_id"])
async def test_parameters_that_cannot_be_meant_are_refused(api: Api, world: World, name: str) -> None:
    for value in ("%00", "a%0Ab", "%E2%80%AE", "x" * 2049, f"a&{name}=b"):
        answer = await api.get(f"{LOG}?{name}={value}", token=world.token)
        assert (answer.status, answer.code) == (400, "BAD_REQUEST"), value


# Who may read it


@pytest.mark.slow
async def test_neither_the_others_log_nor_its_size_is_seen(api: Api, world: World, mixed: Account) -> None:
    mine, theirs = [
        (await api.get(f"/api/organizations/{slug}/audit-log", token=token)).json["logs"]
        for slug, token in (("acme", world.token), ("twin", world.other_token))
    ]
    assert len(mine) == len(theirs) == 8
    assert not {entry["id"] for entry in mine} & {entry["id"] for entry in theirs}
    assert str(world.twin) not in json.dumps(mine)
    for slug, token in (("twin", world.token), ("acme", world.other_token)):
        for path in ("audit-log", "audit-log/event-types", "audit-log?target_id=x", "audit-log?page=x"):
            answer = await api.get(f"/api/organizations/{slug}/{path}", token=token)
            assert (answer.status, answer.code) == (403, "FORBIDDEN")


@pytest.mark.parametrize(("role", "status"), [("owner", 200), ("admin", 200), ("member", 403)])
async def test_owners_and_admins_read_it(api: Api, ports: Ports, pool: Pool, world: World, role: str, status: int) -> None:
    reader = await add_account(ports, "reader@example.com")
    if role == "owner":
        await run_sql(pool, "delete from memberships where org_id = %s", world.org)
    await add_member(pool, world.org, reader.id, role)
    token = (await sign_in(ports, reader)).access_token
    for path in (LOG, f"{LOG}/event-types"):
        assert (await api.get(path, token=token)).status == status


@pytest.mark.parametrize("status", ["pending", "suspended", "rejected"])
async def test_not_of_an_organization_that_is_not_active(api: Api, world: World, pool: Pool, status: str) -> None:
    await run_sql(pool, "update organizations set status = %s where id = %s", status, world.org)
    for path in (LOG, f"{LOG}/event-types", f"{LOG}?target_type=x"):
        answer = await api.get(path, token=world.token)
        assert (answer.status, answer.code) == (403, "ORGANIZATION_NOT_ACTIVE")


async def test_of_an_unknown_organization_there_is_none(api: Api, world: World) -> None:
    for path in ("audit-log", "audit-log/event-types", "audit-log?target_type=x"):
        answer: Answer = await api.get(f"/api/organizations/nothing-there/{path}", token=world.token)
        assert (answer.status, answer.code) == (404, "NOT_FOUND")


# Event types


async def test_the_event_types_are_those_of_the_catalogue(api: Api, world: World) -> None:
    answer = await api.get(f"{LOG}/event-types", token=world.token)
    assert answer.status == 200
    assert answer.json == [
        {"value": kind.name, "label": kind.label, "category": kind.category} for kind in event_catalog.AUDIT_ACTIONS.values()
    ]
    listed = {one["value"]: one for one in answer.json}
    assert len(listed) == len(answer.json)
    assert listed["api_key.created"] == {"value": "api_key.created", "label": "API key created", "category": "API keys"}
    assert not {"organization.deleted", "user.login.success", "user.mfa.enabled"} & listed.keys()


@pytest.mark.slow
async def test_every_event_type_finds_its_entries(api: Api, world: World, record: Record) -> None:
    names = [one["value"] for one in (await api.get(f"{LOG}/event-types", token=world.token)).json]
    await record(*names)
    for name in names:
        [entry] = await logs(api, world, f"?action={name}")
        assert entry["action"] == name
    assert sorted(await actions(api, world, "?limit=100")) == sorted(names)
