"""What API keys do to users while others do something, too: many at the same moment, and one that waits for another (security.md section
21, Z-1, Z-5 and Z-6; identity.md section 4.5)."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from core.accounts import events
from core.accounts.accounts_rules import Account
from core.kernel.principals import Person
from tests.applications.api.service_users import Shop, check_counts, open_shop, traces
from tests.support.builders import PASSWORD, Answer, add_account, add_member, everyone, meanwhile, run_sql
from tests.support.services import add_service_user, sign_in_to
from tests.support.tenants import Tenant, Tenants

EMAIL = "mine@example.com"


@pytest.fixture
async def shop(acme: Tenant) -> Shop:
    return await open_shop(acme)


@pytest.fixture
async def other(twin: Tenant) -> Shop:
    """A service of another organization."""
    return await open_shop(twin)


async def login(shop: Shop, email: str) -> Answer:
    body = {"email": email, "password": PASSWORD, "org_slug": shop.tenant.slug, "service_slug": "shop"}
    return await shop.tenant.api.post("/api/auth/login", body)


@pytest.mark.slow
async def test_twenty_equal_creations_make_one_account(shop: Shop) -> None:
    answers = await everyone(20, lambda _: shop.create(EMAIL))
    assert {answer.status for answer in answers} == {200}
    [user] = {answer.json["id"] for answer in answers}
    assert [(name, target) for name, target, _ in await shop.tenant.told()] == [("user.signup.success", user), ("user.created", user)]
    assert (await shop.list_users()).json["total"] == 1
    await check_counts(shop.tenant.pool)


@pytest.mark.slow
async def test_twenty_creations_by_two_organizations_and_registration_make_one_account(shop: Shop, other: Shop, tenants: Tenants) -> None:
    async def act(number: int) -> Answer:
        if number % 3 == 2:
            return await tenants.api.post("/api/auth/register", {"email": EMAIL, "password": PASSWORD})
        return await (shop, other)[number % 3].create(EMAIL)

    answers = await everyone(20, act)
    assert {answer.status for answer in answers} <= {200, 409}
    [(user,)] = await run_sql(tenants.pool, "select id from users where email = %s", EMAIL)
    assert {answer.json["id"] for answer in answers if "id" in answer.json} == {str(user)}
    assert len(await shop.stored_emails()) + len(await other.stored_emails()) <= 1, "only who made it has made somebody use the service"
    registered = sum("message" in answer.json for answer in answers)
    assert len(await shop.stored_emails()) + len(await other.stored_emails()) + registered == 1
    await check_counts(tenants.pool)


@pytest.mark.slow
async def test_of_twenty_deletions_one_does_it(shop: Shop) -> None:
    user = await shop.created(EMAIL)
    answers = await everyone(20, lambda _: shop.delete(user))
    assert sorted(answer.status for answer in answers) == [204] + [404] * 19
    assert sorted(entry["action"] for entry in await shop.tenant.log()) == ["user.created", "user.removed"]
    await check_counts(shop.tenant.pool)


@pytest.mark.slow
async def test_nobody_signs_in_to_an_account_that_is_being_deleted(shop: Shop, tenants: Tenants) -> None:
    account = await shop.add_own_user(EMAIL, PASSWORD)

    async def act(number: int) -> Answer:
        if number == 5:
            return await shop.delete(account.id)
        if number % 2:
            return await tenants.api.login(EMAIL, "wrong password" if number % 3 == 0 else PASSWORD)
        return await login(shop, EMAIL)

    answers = await everyone(11, act)  # no more logins than may be tried at once
    assert {answer.status for answer in answers} <= {200, 204, 401}
    assert [answer.status for answer in answers].count(204) == 1
    # Whoever was faster had a session for a moment.
    tokens = [answer.json["access_token"] for answer in answers if answer.status == 200]
    assert {(await tenants.api.get("/api/user", token=token)).status for token in tokens} <= {401}
    assert await traces(tenants.pool, account.id) <= {"audit_log.target_id", "events.target_id", "events.actor_id"}
    await check_counts(tenants.pool)


@pytest.mark.slow
async def test_whoever_signs_in_while_being_detached_uses_the_service_or_does_not(shop: Shop, tenants: Tenants) -> None:
    account = await add_account(tenants.ports, EMAIL)
    await add_service_user(tenants.ports, shop.id, account.id)
    answers = await everyone(20, lambda number: shop.delete(account.id) if number % 2 else login(shop, EMAIL))
    assert {answer.status for answer in answers} <= {200, 204, 404}
    uses = bool(await shop.stored_emails())
    # A session of the service lives exactly as long as the person uses it.
    tokens = [answer.json["access_token"] for answer in answers if answer.status == 200]
    alive = [token for token in tokens if (await tenants.api.get("/api/user", token=token)).status == 200]
    assert len(alive) == (await run_sql(tenants.pool, "select count(*) from sessions where service_id = %s", shop.id))[0][0]
    assert uses or not alive
    await check_counts(tenants.pool)


@pytest.mark.slow
@pytest.mark.parametrize("who", ["user", "member", "platform owner"])
async def test_tokens_that_are_renewed_meanwhile_are_gone_all_the_same(shop: Shop, tenants: Tenants, who: str) -> None:
    """Renewing holds the token's row and wants the session's; deleting wants both."""
    account = await shop.add_own_user(EMAIL, PASSWORD, is_platform_owner=who == "platform owner")
    if who == "member":
        await add_member(tenants.pool, shop.tenant.org, account.id)
    held = [(await sign_in_to(tenants.ports, tenants.pool, shop.id, account)).refresh_token for _ in range(16)]

    async def act(number: int) -> Answer:
        if number == 3:
            return await shop.delete(account.id)
        token = held[number % 16]
        for _ in range(100):  # it is over long before
            answer = await tenants.api.post("/api/auth/refresh", {"refresh_token": token})
            if answer.status != 200:
                break
            token = answer.json["refresh_token"]
        return answer

    answers = await everyone(17, act)
    assert sorted(answer.status for answer in answers) == [204] + [401] * 16
    assert await run_sql(tenants.pool, "select 1 from sessions where service_id = %s", shop.id) == []
    await check_counts(tenants.pool)


@pytest.mark.slow
async def test_counts_stay_true_while_some_come_and_others_go(shop: Shop, tenants: Tenants) -> None:
    second = await open_shop(shop.tenant, "second")
    mine = [await shop.add_own_user(f"mine-{number}@example.com", PASSWORD) for number in range(10)]
    for account in mine:
        await add_service_user(tenants.ports, second.id, account.id)
    await everyone(10, lambda number: login(shop, mine[number].email))

    async def act(number: int) -> Answer:
        match number % 4:
            case 0:
                return await shop.delete(mine[number // 2].id)
            case 1:
                return await second.delete(mine[number // 2].id)
            case 2:
                return await shop.create(f"new-{number}@example.com")
        return await login(shop, mine[number // 2].email)

    answers = await everyone(20, act)
    assert {answer.status for answer in answers} <= {200, 204, 401, 404}
    await check_counts(tenants.pool)
    assert len(await shop.stored_emails()) == (await shop.list_users()).json["total"]


@pytest.mark.slow
async def test_two_organizations_forget_people_that_a_third_one_knew(shop: Shop, other: Shop, tenants: Tenants) -> None:
    """Their entries are in the same logs, whose totals each deletion counts down."""
    former = [await tenants.add(slug, cast={}) for slug in ("former", "earlier")]
    people = [await one.add_own_user(f"{one.tenant.slug}-{number}@example.com") for number in range(8) for one in (shop, other)]
    for account in people:
        caller = Person(user_id=account.id, email=account.email, session_id=account.id, address="203.0.113.9")
        for tenant in former:
            async with tenants.ports.storage.transaction(by=caller, in_session=False) as tx:
                tx.record(replace(events.password_changed(account.id, "change"), org_id=tenant.org))
    await check_counts(tenants.pool)
    answers = await everyone(16, lambda number: (shop, other)[number % 2].delete(people[number].id))
    assert {answer.status for answer in answers} == {204}
    assert [await tenant.log() for tenant in former] == [[], []]
    await check_counts(tenants.pool)


@pytest.mark.slow
async def test_one_of_those_who_want_an_address_gets_it(shop: Shop, tenants: Tenants) -> None:
    mine = [await shop.created(f"mine-{number}@example.com") for number in range(10)]

    async def act(number: int) -> Answer:
        if number < 10:
            return await shop.update(mine[number], email=EMAIL)
        return await tenants.api.post("/api/auth/register", {"email": EMAIL, "password": PASSWORD})

    answers = await everyone(20, act)
    statuses = [answer.status for answer in answers]
    assert statuses.count(200) == 1
    assert set(statuses) <= {200, 400, 409}
    [(holder,)] = await run_sql(tenants.pool, "select id from users where email = %s", EMAIL)
    assert (holder in mine) == any("id" in answer.json for answer in answers)
    assert len(await shop.stored_emails()) == 10
    await check_counts(tenants.pool)


@pytest.mark.slow
async def test_twenty_changes_of_one_address_leave_one(shop: Shop, tenants: Tenants) -> None:
    user = await shop.created(EMAIL)
    answers = await everyone(20, lambda number: shop.update(user, email=f"n{number % 3}@example.com"))
    assert {answer.status for answer in answers} == {200}
    [(email,)] = await run_sql(tenants.pool, "select email from users where id = %s", user)
    assert [email] == await shop.stored_emails()
    assert email in {f"n{number}@example.com" for number in range(3)}


# What becomes of the account while a key waits for it is what the key finds.

JOINED = """
    with joined as (
        insert into memberships (id, org_id, user_id, role, created_at) values (gen_random_uuid(), %(elsewhere)s, %(user)s, 'member', now())
        returning org_id)
    update organizations o set member_count = member_count + 1 from joined where o.id = joined.org_id"""
LEFT = """
    with parted as (delete from memberships where org_id = %(elsewhere)s and user_id = %(user)s returning org_id)
    update organizations o set member_count = member_count - 1 from parted where o.id = parted.org_id"""
MEANWHILE: dict[str, tuple[str, Callable[[Shop, Account], Awaitable[Answer]], int, bool]] = {
    "it is used elsewhere by now, so it stays": (JOINED, lambda shop, account: shop.delete(account.id), 204, True),
    "it belongs to a platform owner by now, so it stays": (
        "update users set is_platform_owner = true where id = %(user)s",
        lambda shop, account: shop.delete(account.id),
        204,
        True,
    ),
    "it is used nowhere else any more, so it goes": (LEFT, lambda shop, account: shop.delete(account.id), 204, False),
    "it has a password by now, so the address stays": (
        "update users set password_hash = 'x' where id = %(user)s",
        lambda shop, account: shop.update(account.id, email="new@example.com"),
        403,
        True,
    ),
    "it is used elsewhere by now, so the address stays": (
        JOINED,
        lambda shop, account: shop.update(account.id, email="new@example.com"),
        403,
        True,
    ),
}


@pytest.mark.parametrize("what", MEANWHILE)
async def test_an_account_is_judged_as_it_is_once_it_is_locked(shop: Shop, other: Shop, tenants: Tenants, what: str) -> None:
    statement, act, status, stays = MEANWHILE[what]
    account = await shop.add_own_user(EMAIL)
    if statement is LEFT:
        await other.tenant.join("theirs", account)
    names = {"user": account.id, "elsewhere": other.tenant.org}
    changes = [("select 1 from users where id = %(user)s for no key update", names), (statement, names)]
    answer = await meanwhile(tenants.pool, changes, lambda: act(shop, account))
    assert answer.status == status
    found = await run_sql(tenants.pool, "select email from users where id = %s", account.id)
    assert found == ([(EMAIL,)] if stays else [])
    await check_counts(tenants.pool)


@pytest.mark.parametrize("password", [PASSWORD, "wrong password"])
async def test_a_login_that_comes_second_finds_no_account(tenants: Tenants, password: str) -> None:
    account = await add_account(tenants.ports)
    changes = [("delete from users where id = %s", (account.id,))]
    answer = await meanwhile(tenants.pool, changes, lambda: tenants.api.login(account.email, password))
    assert (answer.status, answer.code) == (401, "UNAUTHORIZED")
