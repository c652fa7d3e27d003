"""The groups that a connection gives by its identity provider's claims."""

import random
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from adapters.postgres.engine.pool import Pool
from core.federation.connections.model.connections import ConnectionGroup, ConnectionIdentity
from core.kernel.causes import SYSTEM
from core.kernel.roles import ADMIN
from core.kernel.values import new_id
from core.tenancy import groups
from ports import Ports
from tests.fakes.http_server import Answer
from tests.fakes.openid_issuers import SECRET
from tests.federation.connections.people.conftest import House
from tests.support.browser import FakeBrowser, leads_to
from tests.support.builders import PASSWORD, add_account, add_member, run_sql
from tests.support.connections import add_connection

NAMES = ("staff", "sales", "all")
GROUPS = "/app/organizations/acme/connections/okta/groups"


@pytest.fixture
async def admin(house: House, ports: Ports, pool: Pool) -> UUID:
    """An admin who may fill groups."""
    account = await add_account(ports, "admin@elsewhere.example", PASSWORD)
    await add_member(pool, house.org, account.id, ADMIN, confirmed=True)
    return account.id


@pytest.fixture
async def given(house: House, admin: UUID) -> dict[str, UUID]:
    """Groups for the values `staff` and `sales`, and a group for all users."""
    now, ids = house.ports.clock.now(), {}
    async with house.ports.storage.transaction(by=SYSTEM) as tx:
        await tx.organizations.lock(house.org)
        for name in NAMES:
            group = await groups.add(tx, groups.new_group(house.org, name, now))
            ids[name], value = group.id, None if name == "all" else name
            mapping = ConnectionGroup(
                id=new_id(),
                org_id=house.org,
                connection_id=house.connection.id,
                value=value,
                group_id=group.id,
                mapped_by=admin,
                mapped_at=now,
            )
            await tx.connections.add_group(mapping)
    return ids


async def groups_of(pool: Pool, email: str = "ada@example.com") -> set[str]:
    sql = """
        select g.name from group_members m join groups g on g.id = m.group_id join users u on u.id = m.user_id where u.email = %s"""
    return {name for (name,) in await run_sql(pool, sql, email)}


async def arrive(house: House, claimed: list[str] | None, **claims: Any) -> None:
    house.issuer.userinfo = {"groups": claimed}
    assert leads_to(await house.arrive(**claims)) == "/app"


async def test_a_userinfo_endpoint_that_fails_takes_no_group_and_lets_users_in_whose_groups_are_there(
    house: House, pool: Pool, given: dict[str, UUID]
) -> None:
    await arrive(house, ["staff"])
    assert await groups_of(pool) == {"staff", "all"} <= {*given}
    house.issuer.answers["/userinfo"] = Answer(503)
    refused = await house.arrive()
    assert (refused.status, "userinfo" in refused.text) == (400, True)
    assert await groups_of(pool) == {"staff", "all"}
    assert leads_to(await house.arrive(groups=["sales"])) == "/app", "only the name is missing"
    assert await groups_of(pool) == {"sales", "all"}
    await house.set("update connections set mapping = mapping - 'groups'")
    assert leads_to(await house.arrive(subject="4712", email="new@example.com")) == "/app", "also a new user"


async def change_by_hand(house: House, group_id: UUID, *, joins: bool) -> None:
    [(user_id,)] = await run_sql(house.pool, "select id from users where email = 'ada@example.com'")
    async with house.ports.storage.transaction(by=SYSTEM) as tx:
        await tx.organizations.lock(house.org)
        group = await tx.groups.by_id(house.org, group_id)
        assert group is not None
        present = bool(await tx.groups.present(house.org, group_id, [user_id]))
        if present is not joins:
            await groups.change_members(tx, group, [user_id] if joins else (), () if joins else [user_id], house.ports.clock.now())


async def test_each_sign_in_renews_what_the_claims_give_and_nothing_else(house: House, pool: Pool, given: dict[str, UUID]) -> None:
    """A random walk of claims and changes by hand, compared with sets."""
    chance, present, recorded = random.Random(59), {"all"}, {"all": False}  # noqa: S311  (a walk, not a secret)
    await arrive(house, [])
    for _ in range(25):
        if chance.random() < 0.4:
            name, joins = chance.choice(NAMES), chance.random() < 0.5
            await change_by_hand(house, given[name], joins=joins)
            present = present | {name} if joins else present - {name}
        else:
            claimed = None if chance.random() < 0.2 else [name for name in ("staff", "sales", "unknown") if chance.random() < 0.5]
            await arrive(house, claimed)
            wanted = {"all"} | ({*recorded} if claimed is None else {*claimed} & {*NAMES})
            for name in {*recorded} - wanted:
                present = present if recorded.pop(name) else present - {name}
            for name in wanted - {*recorded}:
                recorded[name] = name in present
                present = present | {name}
        assert await groups_of(pool) == present


@pytest.mark.slow
async def test_the_loss_at_either_of_two_connections_takes_a_group_and_the_next_sign_in_at_the_other_gives_it_again(
    house: House, pool: Pool, admin: UUID, given: dict[str, UUID]
) -> None:
    """This holds even if the second connection brought the user to the group. A group that an admin gave stays."""
    storage, settings, mapping = house.ports.storage, house.connection.settings, house.connection.mapping
    second = await add_connection(storage, house.org, "second", settings=settings, mapping=mapping)
    now, staff = house.ports.clock.now(), given["staff"]
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.connections.save_client_secret(house.org, second.id, SECRET, now)
        ids = {"id": new_id(), "org_id": house.org, "connection_id": second.id, "group_id": staff, "mapped_by": admin}
        await tx.connections.add_group(ConnectionGroup(**ids, value="staff", mapped_at=now))
    await arrive(house, [])
    other = replace(house, connection=second)
    [(user_id,)] = await run_sql(pool, "select user_id from connection_identities")
    async with storage.transaction(by=SYSTEM) as tx:
        known = ConnectionIdentity(
            org_id=house.org, connection_id=second.id, user_id=user_id, subject="4711", email=None, linked_at=now, last_used_at=now
        )
        await tx.connection_identities.add(known)
    for first, last in ((house, other), (other, house)):
        await arrive(first, ["staff"])
        await arrive(last, ["staff"])
        assert "staff" in await groups_of(pool)
        await arrive(first, [])
        assert "staff" not in await groups_of(pool)
        await arrive(last, ["staff"])
        assert "staff" in await groups_of(pool)
        await arrive(first, ["staff"])
        await arrive(first, [])
        assert "staff" not in await groups_of(pool), "the other one brought the user to the group"
    await change_by_hand(house, staff, joins=True)
    await arrive(house, ["staff"])
    await arrive(other, ["staff"])
    await arrive(house, [])
    await arrive(other, [])
    assert "staff" in await groups_of(pool), "an admin gave it"


async def test_a_directory_decides_alone_about_its_users(house: House, pool: Pool, given: dict[str, UUID]) -> None:
    await arrive(house, ["staff"])
    assert await groups_of(pool) == {"staff", "all"}
    insert = """
        insert into scim_users (org_id, user_id, provisioned, membership_id, joined_at, updated_at)
        select m.org_id, m.user_id, true, m.id, m.created_at, now() from memberships m join users u on u.id = m.user_id
        where u.email = 'ada@example.com'"""
    await house.set(insert)
    await arrive(house, ["staff", "sales"])
    assert await groups_of(pool) == set()


@pytest.mark.parametrize(
    "loss",
    [
        "update memberships set role = 'member' where user_id = %s",
        "delete from memberships where user_id = %s",
    ],
)
async def test_a_mapping_adds_no_user_when_its_author_lost_the_rights(
    house: House, pool: Pool, admin: UUID, given: dict[str, UUID], loss: str
) -> None:
    await arrive(house, ["staff"])
    await house.set(loss, admin)
    await arrive(house, ["staff", "sales"])
    assert await groups_of(pool) == {"staff", "all"}


async def test_admins_map_groups_that_they_could_fill(house: House, pool: Pool, admin: UUID, given: dict[str, UUID]) -> None:
    browser = FakeBrowser(house.app)
    await browser.sign_in("admin@elsewhere.example", PASSWORD)
    page = await browser.open(GROUPS)
    assert all(f">{name}<" in page.text for name in NAMES)
    assert leads_to(await browser.submit(GROUPS, GROUPS, value="managers", group_id=str(given["staff"]))) == GROUPS
    assert (await browser.submit(GROUPS, GROUPS, value="managers", group_id=str(given["staff"]))).status == 409
    [(mapping,)] = await run_sql(pool, "select id from connection_groups where value = 'managers'")
    assert leads_to(await browser.submit(f"{GROUPS}/{mapping}/remove", GROUPS)) == GROUPS
    assert await run_sql(pool, "select 1 from connection_groups where value = 'managers'") == []
    owns = "update groups set role = 'admin', mapped_by = %s, mapped_at = now() where id = %s"
    await house.set(owns, admin, given["sales"])
    assert (await browser.submit(GROUPS, GROUPS, value="chiefs", group_id=str(given["sales"]))).status == 403
    mapping_page = GROUPS.replace("groups", "mapping")
    changed = await browser.submit(mapping_page, mapping_page, claim_email="email", claim_groups="department")
    assert changed.status == 403, "another claim would decide about a group that gives more"
