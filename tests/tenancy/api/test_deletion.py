"""An owner deletes an organization."""

from uuid import UUID

import pytest
from psycopg import sql

from adapters.postgres.engine.pool import Pool
from core.kernel.values import new_id
from core.maintenance import housekeeping
from core.tenancy.model import organizations as model_organizations
from ports import Ports
from tests.support.builders import (
    Answer,
    Api,
    add_account,
    add_invitation,
    add_member,
    add_organization,
    add_person,
    add_platform_owner,
    impersonate,
    run_concurrently,
    run_sql,
)
from tests.tenancy.organizations import ACME, log, recorded_events, token_of

# The tables that have an organization's rows.
OWNED = ["organizations", "memberships", "invitations", "audit_log", "audit_totals", "events", "login_events"]


async def add_tenant(api: Api, ports: Ports, pool: Pool, slug: str) -> tuple[UUID, str]:
    """Add an organization with a row in every table, and return it with its owner's token."""
    org = await add_organization(pool, slug)
    owner, token = await add_person(ports, pool, f"owner-of-{slug}", org, "owner")
    await add_person(ports, pool, f"member-of-{slug}", org)
    await add_invitation(ports, org)
    login = "insert into login_events (id, user_id, org_id, provider, success, created_at) values (%s, %s, %s, 'x', true, now())"
    await run_sql(pool, login, new_id(), owner.id, org)
    await api.patch(f"/api/organizations/{slug}", {"name": "Renamed"}, token=token)
    return org, token


async def rows_of(pool: Pool, org: UUID) -> dict[str, int]:
    counts = {}
    async with pool.connection() as connection:
        for table in OWNED:
            column = "id" if table == "organizations" else "org_id"
            query = sql.SQL("select count(*) from {} where {} = %s").format(sql.Identifier(table), sql.Identifier(column))
            [(counts[table],)] = await (await connection.execute(query, (org,))).fetchall()
    return counts


async def test_a_deleted_organization_leaves_no_rows(api: Api, ports: Ports, pool: Pool) -> None:
    org, token = await add_tenant(api, ports, pool, "acme")
    other_tenant, twins = await add_tenant(api, ports, pool, "twin")
    before = await rows_of(pool, other_tenant)
    assert set(before) == set(OWNED)
    assert all(before.values())
    answer = await api.delete(ACME, token=token)
    assert (answer.status, answer.text) == (204, "")
    assert await rows_of(pool, org) == dict.fromkeys(OWNED, 0)
    assert await rows_of(pool, other_tenant) == before
    assert (await api.get(ACME, token=token)).code == "NOT_FOUND"
    assert (await api.delete(ACME, token=token)).code == "NOT_FOUND"
    assert (await api.get("/api/organizations", token=token)).json == []
    assert (await api.get("/api/organizations/twin", token=twins)).status == 200


async def test_the_accounts_and_sessions_of_its_members_remain(api: Api, ports: Ports, pool: Pool) -> None:
    org = await add_organization(pool, "acme")
    user, token = await add_person(ports, pool, "ada", org, "owner")
    in_context = await token_of(ports, user, org)
    assert (await api.delete(ACME, token=token)).status == 204
    assert await run_sql(pool, "select id from users") == [(user.id,)]
    assert (await api.get("/api/user", token=token)).status == 200
    # The organization's token no longer works (security J-6).
    answer = await api.get("/api/user", token=in_context)
    assert (answer.status, answer.code) == (403, "FORBIDDEN")
    assert (await api.post("/api/auth/logout", token=in_context)).status == 200


async def test_only_the_platform_log_records_a_deletion(api: Api, ports: Ports, pool: Pool) -> None:
    org = await add_organization(pool, "acme")
    user, token = await add_person(ports, pool, "ada", org, "owner")
    await api.patch(ACME, {"name": "Acme Ltd."}, token=token)
    await api.delete(ACME, token=token, headers={"User-Agent": "tests"})
    details = {"slug": "acme", "name": "Acme Ltd."}
    assert await log(pool) == [(None, "organization.deleted", "organization", str(org), user.id, details)]
    assert await recorded_events(pool) == [(None, "organization.deleted", str(org), details)]
    assert await run_sql(pool, "select agent from audit_log") == [("tests",)]


async def test_the_slug_of_a_deleted_organization_is_free(api: Api, ports: Ports, pool: Pool) -> None:
    org = await add_organization(pool, "acme")
    _, token = await add_person(ports, pool, "ada", org, "owner")
    _, other = await add_person(ports, pool, "eve")
    await api.delete(ACME, token=token)
    answer = await api.post("/api/organizations", {"slug": "acme", "name": "Other"}, token=other)
    assert answer.status == 200
    assert answer.json["organization"]["id"] != str(org)
    assert (await api.get(ACME, token=token)).status == 403


async def test_an_impersonator_cannot_delete_an_organization(api: Api, ports: Ports, pool: Pool) -> None:
    org = await add_organization(pool, "acme")
    user, _ = await add_person(ports, pool, "ada", org, "owner")
    support = await add_platform_owner(ports)
    token = await impersonate(ports, support, user, org)
    answer = await api.delete(ACME, token=token)
    assert (answer.status, answer.code) == (403, "FORBIDDEN")
    assert "impersonating" in answer.json["error"]
    assert await run_sql(pool, "select count(*) from organizations") == [(1,)]


async def test_the_housekeeper_removes_the_rest_of_a_large_organization(
    api: Api, ports: Ports, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    org, token = await add_tenant(api, ports, pool, "acme")
    monkeypatch.setattr(model_organizations, "IMMEDIATE_PURGE_LIMIT", 2)
    assert (await api.delete(ACME, token=token)).status == 204
    assert await rows_of(pool, org) == {**dict.fromkeys(OWNED, 0), "login_events": 1, "audit_totals": 1}
    assert await run_sql(pool, "select id from deleted_organizations") == [(org,)]
    assert await housekeeping.sweep(ports, new_id()) == {"deleted_organizations": 2}
    assert await rows_of(pool, org) == dict.fromkeys(OWNED, 0)


@pytest.mark.slow
async def test_one_of_twenty_concurrent_deletions_wins(api: Api, ports: Ports, pool: Pool) -> None:
    org, token = await add_tenant(api, ports, pool, "acme")
    answers = await run_concurrently(20, lambda _: api.delete(ACME, token=token))
    assert sorted(answer.status for answer in answers) == [204] + [404] * 19
    assert await rows_of(pool, org) == dict.fromkeys(OWNED, 0)
    assert [entry[1] for entry in await log(pool)] == ["organization.deleted"]


@pytest.mark.slow
async def test_requests_that_run_during_a_deletion_all_get_an_answer(api: Api, ports: Ports, pool: Pool) -> None:
    """Updates, selections, and password changes, which write an event per organization."""
    org = await add_organization(pool, "acme")
    user, token = await add_person(ports, pool, "ada", org, "owner")
    other_accounts = [await add_account(ports, f"person-{number}@example.com") for number in range(6)]
    for other in other_accounts:
        await add_member(pool, org, other.id, "admin")
    tokens = [await token_of(ports, other) for other in other_accounts]
    password = {"current_password": "correct horse battery staple", "new_password": "another good password"}

    async def act(number: int) -> Answer:
        if number == 0:
            return await api.delete(ACME, token=token)
        kind, which = divmod(number - 1, 6)
        if kind == 0:
            return await api.post("/api/user/change-password", password, token=tokens[which])
        if kind == 1:
            return await api.patch(ACME, {"name": f"Name {which}"}, token=tokens[which])
        return await api.post(f"{ACME}/select", token=tokens[which])

    answers = await run_concurrently(19, act)
    assert {answer.status for answer in answers} <= {200, 204, 401, 404}
    assert [answer.status for answer in answers].count(204) == 1
    assert {target for (target,) in await run_sql(pool, "select id from users")} == {user.id, *(other.id for other in other_accounts)}
    # A password change that read the memberships before the deletion may write its events after it.
    await housekeeping.sweep(ports, new_id())
    assert await rows_of(pool, org) == dict.fromkeys(OWNED, 0)
