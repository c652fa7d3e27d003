"""Concurrent changes to users by API keys and other callers (security Z-1, Z-5, Z-6)."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from core.accounts import events
from core.accounts.model.accounts import Account
from core.kernel.callers import Person
from tests.applications.api.service_users import Shop, check_counts, open_shop, traces
from tests.support.builders import PASSWORD, Answer, add_account, add_member, run_concurrently, run_during, run_sql
from tests.support.services import add_service_user, sign_in_to
from tests.support.tenants import Tenant, Tenants

EMAIL = "mine@example.com"


@pytest.fixture
async def shop(acme: Tenant) -> Shop:
    return await open_shop(acme)


@pytest.fixture
async def foreign(other_tenant: Tenant) -> Shop:
    """A service in another organization."""
    return await open_shop(other_tenant)


async def login(shop: Shop, email: str) -> Answer:
    body = {"email": email, "password": PASSWORD, "org_slug": shop.tenant.slug, "service_slug": "shop"}
    return await shop.tenant.api.post("/api/auth/login", body)


@pytest.mark.slow
async def test_twenty_concurrent_creations_make_one_account(shop: Shop) -> None:
    answers = await run_concurrently(20, lambda _: shop.create(EMAIL))
    assert {answer.status for answer in answers} == {200}
    [user] = {answer.json["id"] for answer in answers}
    assert [(name, target) for name, target, _ in await shop.tenant.webhook_events()] == [
        ("user.signup.success", user),
        ("user.created", user),
    ]
    assert (await shop.list_users()).json["total"] == 1
    await check_counts(shop.tenant.pool)


@pytest.mark.slow
async def test_twenty_creations_by_two_organizations_and_registration_make_one_account(shop: Shop, foreign: Shop, tenants: Tenants) -> None:
    async def act(number: int) -> Answer:
        if number % 3 == 2:
            return await tenants.api.post("/api/auth/register", {"email": EMAIL, "password": PASSWORD})
        return await (shop, foreign)[number % 3].create(EMAIL)

    answers = await run_concurrently(20, act)
    assert {answer.status for answer in answers} <= {200, 409}
    [(user,)] = await run_sql(tenants.pool, "select id from users where email = %s", EMAIL)
    assert {answer.json["id"] for answer in answers if "id" in answer.json} == {str(user)}
    assert len(await shop.stored_emails()) + len(await foreign.stored_emails()) <= 1, "only the creator of the account enrolled it"
    registered = sum("message" in answer.json for answer in answers)
    assert len(await shop.stored_emails()) + len(await foreign.stored_emails()) + registered == 1
    await check_counts(tenants.pool)


@pytest.mark.slow
async def test_of_twenty_concurrent_deletions_one_succeeds(shop: Shop) -> None:
    user = await shop.add_user(EMAIL)
    answers = await run_concurrently(20, lambda _: shop.delete(user))
    assert sorted(answer.status for answer in answers) == [204] + [404] * 19
    assert sorted(entry["action"] for entry in await shop.tenant.log()) == ["user.created", "user.removed"]
    await check_counts(shop.tenant.pool)


@pytest.mark.slow
async def test_logins_during_a_deletion_do_not_survive_it(shop: Shop, tenants: Tenants) -> None:
    account = await shop.add_own_user(EMAIL, PASSWORD)

    async def act(number: int) -> Answer:
        if number == 5:
            return await shop.delete(account.id)
        if number % 2:
            return await tenants.api.login(EMAIL, "wrong password" if number % 3 == 0 else PASSWORD)
        return await login(shop, EMAIL)

    answers = await run_concurrently(11, act)  # below the limit for concurrent attempts
    assert {answer.status for answer in answers} <= {200, 204, 401}
    assert [answer.status for answer in answers].count(204) == 1
    # Logins that were faster than the deletion had a session for a moment.
    tokens = [answer.json["access_token"] for answer in answers if answer.status == 200]
    assert {(await tenants.api.get("/api/user", token=token)).status for token in tokens} <= {401}
    assert await traces(tenants.pool, account.id) <= {"audit_log.target_id", "events.target_id", "events.actor_id"}
    await check_counts(tenants.pool)


@pytest.mark.slow
async def test_a_login_during_a_removal_leaves_a_consistent_state(shop: Shop, tenants: Tenants) -> None:
    account = await add_account(tenants.ports, EMAIL)
    await add_service_user(tenants.ports, shop.id, account.id)
    answers = await run_concurrently(20, lambda number: shop.delete(account.id) if number % 2 else login(shop, EMAIL))
    assert {answer.status for answer in answers} <= {200, 204, 404}
    uses = bool(await shop.stored_emails())
    # A service session is valid only as long as the user uses the service.
    tokens = [answer.json["access_token"] for answer in answers if answer.status == 200]
    alive = [token for token in tokens if (await tenants.api.get("/api/user", token=token)).status == 200]
    assert len(alive) == (await run_sql(tenants.pool, "select count(*) from sessions where service_id = %s", shop.id))[0][0]
    assert uses or not alive
    await check_counts(tenants.pool)


@pytest.mark.slow
@pytest.mark.parametrize("origin", ["user", "member", "platform owner"])
async def test_tokens_refreshed_during_a_deletion_do_not_survive_it(shop: Shop, tenants: Tenants, origin: str) -> None:
    """A refresh locks the token's row and then needs the session. A deletion needs the token's row and the session."""
    account = await shop.add_own_user(EMAIL, PASSWORD, is_platform_owner=origin == "platform owner")
    if origin == "member":
        await add_member(tenants.pool, shop.tenant.org, account.id)
    tokens = [(await sign_in_to(tenants.ports, tenants.pool, shop.id, account)).refresh_token for _ in range(16)]

    async def act(number: int) -> Answer:
        if number == 3:
            return await shop.delete(account.id)
        token = tokens[number % 16]
        for _ in range(100):  # the loop ends long before
            answer = await tenants.api.post("/api/auth/refresh", {"refresh_token": token})
            if answer.status != 200:
                break
            token = answer.json["refresh_token"]
        return answer

    answers = await run_concurrently(17, act)
    assert sorted(answer.status for answer in answers) == [204] + [401] * 16
    assert await run_sql(tenants.pool, "select 1 from sessions where service_id = %s", shop.id) == []
    await check_counts(tenants.pool)


@pytest.mark.slow
async def test_counters_stay_correct_during_concurrent_creations_and_deletions(shop: Shop, tenants: Tenants) -> None:
    second = await open_shop(shop.tenant, "second")
    accounts = [await shop.add_own_user(f"mine-{number}@example.com", PASSWORD) for number in range(10)]
    for account in accounts:
        await add_service_user(tenants.ports, second.id, account.id)
    await run_concurrently(10, lambda number: login(shop, accounts[number].email))

    async def act(number: int) -> Answer:
        match number % 4:
            case 0:
                return await shop.delete(accounts[number // 2].id)
            case 1:
                return await second.delete(accounts[number // 2].id)
            case 2:
                return await shop.create(f"new-{number}@example.com")
        return await login(shop, accounts[number // 2].email)

    answers = await run_concurrently(20, act)
    assert {answer.status for answer in answers} <= {200, 204, 401, 404}
    await check_counts(tenants.pool)
    assert len(await shop.stored_emails()) == (await shop.list_users()).json["total"]


@pytest.mark.slow
async def test_two_organizations_delete_users_with_entries_in_the_same_log(shop: Shop, foreign: Shop, tenants: Tenants) -> None:
    """The entries are in a third organization's log, and every deletion updates its totals."""
    tenants_without_user = [await tenants.add(slug, cast={}) for slug in ("former", "earlier")]
    people = [await one.add_own_user(f"{one.tenant.slug}-{number}@example.com") for number in range(8) for one in (shop, foreign)]
    for account in people:
        caller = Person(user_id=account.id, email=account.email, session_id=account.id, address="203.0.113.9")
        for tenant in tenants_without_user:
            async with tenants.ports.storage.transaction(by=caller, in_session=False) as tx:
                tx.record(replace(events.password_changed(account.id, "change"), org_id=tenant.org))
    await check_counts(tenants.pool)
    answers = await run_concurrently(16, lambda number: (shop, foreign)[number % 2].delete(people[number].id))
    assert {answer.status for answer in answers} == {204}
    assert [await tenant.log() for tenant in tenants_without_user] == [[], []]
    await check_counts(tenants.pool)


@pytest.mark.slow
async def test_of_concurrent_claims_of_an_address_one_succeeds(shop: Shop, tenants: Tenants) -> None:
    user_ids = [await shop.add_user(f"mine-{number}@example.com") for number in range(10)]

    async def act(number: int) -> Answer:
        if number < 10:
            return await shop.update(user_ids[number], email=EMAIL)
        return await tenants.api.post("/api/auth/register", {"email": EMAIL, "password": PASSWORD})

    answers = await run_concurrently(20, act)
    statuses = [answer.status for answer in answers]
    assert statuses.count(200) == 1
    assert set(statuses) <= {200, 400, 409}
    [(holder,)] = await run_sql(tenants.pool, "select id from users where email = %s", EMAIL)
    assert (holder in user_ids) == any("id" in answer.json for answer in answers)
    assert len(await shop.stored_emails()) == 10
    await check_counts(tenants.pool)


@pytest.mark.slow
async def test_twenty_concurrent_address_changes_leave_one_address(shop: Shop, tenants: Tenants) -> None:
    user = await shop.add_user(EMAIL)
    answers = await run_concurrently(20, lambda number: shop.update(user, email=f"n{number % 3}@example.com"))
    assert {answer.status for answer in answers} == {200}
    [(email,)] = await run_sql(tenants.pool, "select email from users where id = %s", user)
    assert [email] == await shop.stored_emails()
    assert email in {f"n{number}@example.com" for number in range(3)}


# Changes to the account that happen while an API key's request waits for its lock

JOIN = """
    with joined as (
        insert into memberships (id, org_id, user_id, role, created_at) values (gen_random_uuid(), %(elsewhere)s, %(user)s, 'member', now())
        returning org_id)
    update organizations o set member_count = member_count + 1 from joined where o.id = joined.org_id"""
LEAVE = """
    with parted as (delete from memberships where org_id = %(elsewhere)s and user_id = %(user)s returning org_id)
    update organizations o set member_count = member_count - 1 from parted where o.id = parted.org_id"""
CHANGES_DURING_WAIT: dict[str, tuple[str, Callable[[Shop, Account], Awaitable[Answer]], int, bool]] = {
    "joined another organization: account stays": (JOIN, lambda shop, account: shop.delete(account.id), 204, True),
    "became a platform owner: account stays": (
        "update users set is_platform_owner = true where id = %(user)s",
        lambda shop, account: shop.delete(account.id),
        204,
        True,
    ),
    "left the other organization: account is deleted": (LEAVE, lambda shop, account: shop.delete(account.id), 204, False),
    "got a password: address stays": (
        "update users set password_hash = 'x' where id = %(user)s",
        lambda shop, account: shop.update(account.id, email="new@example.com"),
        403,
        True,
    ),
    "joined another organization: address stays": (
        JOIN,
        lambda shop, account: shop.update(account.id, email="new@example.com"),
        403,
        True,
    ),
}


@pytest.mark.parametrize("case", CHANGES_DURING_WAIT)
async def test_a_key_sees_the_account_as_it_is_after_the_lock(shop: Shop, foreign: Shop, tenants: Tenants, case: str) -> None:
    statement, act, status, emails = CHANGES_DURING_WAIT[case]
    account = await shop.add_own_user(EMAIL)
    if statement is LEAVE:
        await foreign.tenant.join("theirs", account)
    names = {"user": account.id, "elsewhere": foreign.tenant.org}
    changes = [("select 1 from users where id = %(user)s for no key update", names), (statement, names)]
    answer = await run_during(tenants.pool, changes, lambda: act(shop, account))
    assert answer.status == status
    rows = await run_sql(tenants.pool, "select email from users where id = %s", account.id)
    assert rows == ([(EMAIL,)] if emails else [])
    await check_counts(tenants.pool)


@pytest.mark.parametrize("password", [PASSWORD, "wrong password"])
async def test_a_login_that_waits_for_a_deletion_finds_no_account(tenants: Tenants, password: str) -> None:
    account = await add_account(tenants.ports)
    changes = [("delete from users where id = %s", (account.id,))]
    answer = await run_during(tenants.pool, changes, lambda: tenants.api.login(account.email, password))
    assert (answer.status, answer.code) == (401, "UNAUTHORIZED")
