"""Anonymizations that race with anonymizations and with other changes (security Z-3, Z-5, Z-6; decision 148)."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.kernel.roles import OWNER
from core.kernel.values import new_id
from ports import Ports
from tests.applications.api.service_users import check_counts
from tests.privacy.api.anonymization.data import request_anonymization
from tests.support.builders import (
    EMAIL,
    PASSWORD,
    Answer,
    Api,
    add_account,
    mark_created_by,
    run_concurrently,
    run_during,
    run_sql,
    sign_in,
)
from tests.support.platform import Platform
from tests.support.refusals import FORBIDDEN, refused
from tests.support.services import add_service, sign_in_to
from tests.support.tenants import Tenant


@pytest.fixture
async def user(ports: Ports, pool: Pool, acme: Tenant) -> Account:
    """A confirmed member in the organization that created the account, and in no other organization."""
    account = await add_account(ports, EMAIL)
    await acme.join("ada", account)
    await mark_created_by(pool, acme.org, account.id)
    return account


async def is_anonymized(pool: Pool, account: Account) -> bool:
    """Return whether the account is anonymized, and check that this is recorded exactly then."""
    [(anonymized, address)] = await run_sql(pool, "select anonymized_at is not null, email from users where id = %s", account.id)
    assert anonymized == (address != account.email)
    [(entries,)] = await run_sql(pool, "select count(*) from privacy_log where user_id = %s", account.id)
    assert entries == anonymized
    return bool(anonymized)


@pytest.mark.slow
async def test_of_twenty_concurrent_anonymizations_one_is_recorded(
    api: Api, pool: Pool, acme: Tenant, user: Account, platform: Platform
) -> None:
    answers = await run_concurrently(
        20, lambda number: request_anonymization(api, user.id, (acme.token("owner"), platform.token)[number % 2])
    )
    assert Counter(answer.status for answer in answers) == {200: 20}
    assert await is_anonymized(pool, user)
    assert await acme.actions() == {"user.anonymized": 1}
    await check_counts(pool)


@pytest.mark.slow
async def test_twenty_concurrent_anonymizations_get_different_placeholders(api: Api, ports: Ports, pool: Pool, platform: Platform) -> None:
    people = [await add_account(ports, f"n{number}@example.com", None) for number in range(20)]
    answers = await run_concurrently(20, lambda number: request_anonymization(api, people[number].id, platform.token))
    assert Counter(answer.status for answer in answers) == {200: 20}
    assert all([await is_anonymized(pool, account) for account in people])


@pytest.mark.slow
async def test_owners_who_anonymize_common_members_concurrently_do_not_deadlock(
    api: Api, pool: Pool, acme: Tenant, other_tenant: Tenant, platform: Platform, ports: Ports
) -> None:
    """Every request locks the two organizations and two accounts."""
    await run_sql(
        pool, "update memberships set user_id = %s where org_id = %s and role = 'owner'", acme.people["owner"].id, other_tenant.org
    )
    people = [await add_account(ports, f"n{number}@example.com", None) for number in range(6)]
    for number, account in enumerate(people):
        for tenant in (acme, other_tenant):
            await tenant.join(f"n{number}", account)
    await mark_created_by(pool, acme.org, *(account.id for account in people))
    tokens = (acme.token("owner"), platform.token)
    answers = await run_concurrently(12, lambda number: request_anonymization(api, people[number % 6].id, tokens[number % 2]))
    assert Counter(answer.status for answer in answers) == {200: 12}
    for tenant in (acme, other_tenant):
        assert await tenant.actions() == {"user.anonymized": 6}


@pytest.mark.slow
async def test_no_session_survives_a_concurrent_login_or_refresh(api: Api, ports: Ports, pool: Pool, acme: Tenant, user: Account) -> None:
    """Neither a password nor a refresh token keeps the user signed in."""
    service = await add_service(pool, acme.org)
    refresh_tokens = [(await sign_in(ports, user)).refresh_token for _ in range(6)]
    refresh_tokens += [(await sign_in_to(ports, pool, service, user)).refresh_token for _ in range(6)]

    async def act(number: int) -> Answer:
        if number == 7:
            return await request_anonymization(api, user.id, acme.token("owner"))
        if number % 2:
            return await api.login(EMAIL, PASSWORD if number % 3 else "wrong password")
        token = refresh_tokens[number % len(refresh_tokens)]
        for _ in range(100):  # usually it ends much earlier
            answer = await api.post("/api/auth/refresh", {"refresh_token": token})
            if answer.status != 200:
                break
            token = answer.json["refresh_token"]
        return answer

    answers = await run_concurrently(20, act)
    assert {answer.status for answer in answers} <= {200, 401, 429}
    assert answers.count(next(answer for answer in answers if "user_id" in answer.json)) == 1
    assert await is_anonymized(pool, user)
    assert await run_sql(pool, "select 1 from sessions where user_id = %s", user.id) == []
    assert await run_sql(pool, "select 1 from refresh_tokens t where not exists (select 1 from sessions s where s.id = t.session_id)") == []
    tokens = [answer.json["access_token"] for answer in answers if "access_token" in answer.json]
    assert {(await api.get("/api/user", token=token)).status for token in tokens} <= {401}
    await check_counts(pool)


@pytest.mark.slow
async def test_no_account_is_both_a_platform_owner_and_anonymized(api: Api, ports: Ports, pool: Pool, platform: Platform) -> None:
    people = [await add_account(ports, f"n{number}@example.com", None) for number in range(10)]

    async def act(number: int) -> Answer:
        account = people[number // 2]
        if number % 2:
            return await request_anonymization(api, account.id, platform.token)
        return await api.post("/api/platform/owners", {"user_id": str(account.id)}, token=platform.token)

    answers = await run_concurrently(20, act)
    assert {answer.status for answer in answers} <= {200, 400, 403}
    for account in people:
        anonymized = await is_anonymized(pool, account)
        assert await run_sql(pool, "select is_platform_owner from users where id = %s", account.id) == [(not anonymized,)]


@pytest.mark.slow
async def test_an_organization_always_has_one_owner(api: Api, pool: Pool, acme: Tenant, user: Account, platform: Platform) -> None:
    async def act(number: int) -> Answer:
        match number % 4:
            case 0:
                return await acme.transfer("owner", "ada")
            case 1:
                return await request_anonymization(api, user.id, acme.token("owner"))
            case 2:
                return await request_anonymization(api, acme.id("owner"), (platform.token, acme.token("owner"))[number // 4 % 2])
            case _:
                return await acme.remove("owner", "ada")

    answers = await run_concurrently(20, act)
    assert {answer.status for answer in answers} <= {200, 400, 401, 403, 404}
    await acme.check()
    await check_counts(pool)


@pytest.mark.slow
async def test_a_concurrent_registration_gets_the_address_or_is_refused(api: Api, pool: Pool, acme: Tenant, user: Account) -> None:
    async def act(number: int) -> Answer:
        if number == 5:
            return await request_anonymization(api, user.id, acme.token("owner"))
        return await api.post("/api/auth/register", {"email": EMAIL, "password": PASSWORD})

    answers = await run_concurrently(20, act)
    assert {answer.status for answer in answers} <= {200, 409}
    assert await is_anonymized(pool, user)
    registrations = sum("message" in answer.json and "user_id" not in answer.json for answer in answers)
    rows = await run_sql(pool, "select id from users where email = %s", EMAIL)
    assert len(rows) == registrations <= 1
    assert (user.id,) not in rows


@pytest.mark.slow
async def test_a_user_who_just_joined_another_organization_cannot_be_anonymized_by_one_owner(
    api: Api, ports: Ports, pool: Pool, acme: Tenant, other_tenant: Tenant
) -> None:
    people = [await add_account(ports, f"n{number}@example.com", None) for number in range(8)]
    await mark_created_by(pool, acme.org, *(account.id for account in people))
    invitation_tokens = []
    for number, account in enumerate(people):
        await acme.join(f"n{number}", account)
        invitation_tokens.append((await other_tenant.invite(account.email))["token"])

    async def act(number: int) -> Answer:
        if number % 2:
            return await request_anonymization(api, people[number // 2].id, acme.token("owner"))
        return await api.post("/api/invitations/accept", {"token": invitation_tokens[number // 2]}, token=acme.token(f"n{number // 2}"))

    answers = await run_concurrently(16, act)
    assert {answer.status for answer in answers} <= {200, 400, 401, 403}
    members = {address for address in await other_tenant.members() if address.startswith("n")}
    for number, account in enumerate(people):
        assert await is_anonymized(pool, account) == (account.email not in members), number
    assert all(status in ("accepted", "cancelled") for status in (await other_tenant.statuses()).values())


# Facts that change while the request waits for its locks

Changes = Sequence[tuple[str, Any]]


async def test_an_owner_who_just_lost_the_organization_is_refused(api: Api, pool: Pool, acme: Tenant, user: Account) -> None:
    changes: Changes = [
        ("select 1 from organizations where id = %s for no key update", (acme.org,)),
        ("update memberships set role = 'member' where org_id = %s and role = 'owner'", (acme.org,)),
        ("update memberships set role = 'owner' where org_id = %s and user_id = %s", (acme.org, acme.people["admin"].id)),
    ]
    answer = await run_during(pool, changes, lambda: request_anonymization(api, user.id, acme.token("owner")))
    assert refused(answer) == FORBIDDEN
    assert not await is_anonymized(pool, user)


async def test_a_platform_owner_who_was_just_demoted_is_refused(api: Api, pool: Pool, user: Account, platform: Platform) -> None:
    changes: Changes = [("update users set is_platform_owner = false where id = %s", (platform.account.id,))]
    answer = await run_during(pool, changes, lambda: request_anonymization(api, user.id, platform.token))
    assert refused(answer) == FORBIDDEN
    assert not await is_anonymized(pool, user)


async def test_a_user_who_was_just_promoted_to_platform_owner_is_not_anonymized(api: Api, pool: Pool, acme: Tenant, user: Account) -> None:
    changes: Changes = [("update users set is_platform_owner = true where id = %s", (user.id,))]
    answer = await run_during(pool, changes, lambda: request_anonymization(api, user.id, acme.token("owner")))
    assert refused(answer) == FORBIDDEN
    assert not await is_anonymized(pool, user)


async def test_a_membership_just_added_in_another_organization_prevents_the_anonymization(
    api: Api, pool: Pool, acme: Tenant, other_tenant: Tenant, user: Account
) -> None:
    changes: Changes = [
        ("select 1 from users where id = %s for no key update", (user.id,)),
        (
            "insert into memberships (id, org_id, user_id, role, created_at, confirmed_at) values (%s, %s, %s, 'member', now(), now())",
            (new_id(), other_tenant.org, user.id),
        ),
    ]
    answer = await run_during(pool, changes, lambda: request_anonymization(api, user.id, acme.token("owner")))
    assert refused(answer) == FORBIDDEN
    assert not await is_anonymized(pool, user)


async def test_an_organization_just_joined_gets_the_event(
    api: Api, pool: Pool, acme: Tenant, other_tenant: Tenant, user: Account, platform: Platform
) -> None:
    """The anonymization starts over and also locks that organization."""
    insert = """
        with added as (
            insert into memberships (id, org_id, user_id, role, created_at) values (%s, %s, %s, 'member', now()) returning org_id)
        update organizations set member_count = member_count + 1 where id = (select org_id from added)"""
    changes: Changes = [
        ("select 1 from users where id = %s for no key update", (user.id,)),
        (insert, (new_id(), other_tenant.org, user.id)),
    ]
    answer = await run_during(pool, changes, lambda: request_anonymization(api, user.id, platform.token))
    assert answer.status == 200, answer.text
    assert await is_anonymized(pool, user)
    assert [await tenant.actions() for tenant in (acme, other_tenant)] == [{"user.anonymized": 1}] * 2


async def test_entries_just_written_are_redacted_too(api: Api, pool: Pool, acme: Tenant, user: Account) -> None:
    login = """
        insert into login_events (id, user_id, provider, success, address, agent, created_at)
        values (%s, %s, 'password', false, '203.0.113.9', 'a browser', now())"""
    answer = await run_during(pool, [(login, (new_id(), user.id))], lambda: request_anonymization(api, user.id, acme.token("owner")))
    assert answer.status == 200, answer.text
    assert await run_sql(pool, "select address, agent from login_events where user_id = %s", user.id) == [("0.0.0.0", "anonymized")]  # noqa: S104


async def test_roles_and_memberships_stay(api: Api, acme: Tenant, user: Account, platform: Platform) -> None:
    before = await acme.roles()
    for name in ("owner", "ada"):
        assert (await request_anonymization(api, acme.id(name), platform.token)).status == 200
    assert await acme.check() == before == {**before, "owner": OWNER}
