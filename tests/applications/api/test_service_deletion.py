"""Service deletion.

The rules are decision 159, and security K-1, J-9, Z-5.
"""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.kernel.values import new_id
from core.maintenance import housekeeping
from core.tenancy.model import organizations
from ports import Ports
from tests.applications.api.services import Workshop
from tests.fakes.outside import FakeClock
from tests.support.builders import EMAIL, PASSWORD, Answer, SignedIn, add_account, run_concurrently, run_during, run_sql
from tests.support.refusals import FORBIDDEN, MISSING, NOT_ACTIVE, refused
from tests.support.services import add_api_key, add_consent, add_login, add_plan, add_service, add_subscription, sign_in_to
from tests.support.tenants import Tenant
from tests.tenancy.organizations import NOT_ACTIVE as STATUSES

# Tables with rows that belong to a service
TABLES = ("plans", "subscriptions", "api_keys", "service_users", "login_totals", "login_events", "consents")


@dataclass(slots=True)
class Shop:
    """A service with a signed-in user, and a row in every dependent table."""

    tenant: Tenant
    id: UUID
    user: Account
    session: SignedIn
    key: str

    async def login(self, email: str = EMAIL) -> Answer:
        body = {"email": email, "password": PASSWORD, "org_slug": self.tenant.slug, "service_slug": "shop"}
        return await self.tenant.api.post("/api/auth/login", body)

    async def profile(self) -> Answer:
        return await self.tenant.api.get("/api/user", token=self.session.access_token)

    async def info(self) -> Answer:
        return await self.tenant.api.get("/api/service/info", headers={"X-Api-Key": self.key})


async def open_shop(tenant: Tenant, ports: Ports, pool: Pool, clock: FakeClock, user: Account, slug: str = "shop") -> Shop:
    service = await add_service(pool, tenant.org, slug)
    plan = await add_plan(pool, service)
    session = await sign_in_to(ports, pool, service, user)
    await add_login(ports, pool, service, user.id)
    await add_subscription(ports, pool, service, user.id, plan, ends=clock.now())
    await add_consent(pool, service, user.id)
    return Shop(tenant, service, user, session, await add_api_key(pool, service))


async def rows_of(pool: Pool, service: UUID) -> dict[str, int]:
    return {table: (await run_sql(pool, f"select count(*) from {table} where service_id = %s", service))[0][0] for table in TABLES}  # noqa: S608


async def end_users(pool: Pool, org: UUID) -> set[UUID]:
    """Return the organization's end users, and check their total."""
    user_ids = {user_id for (user_id,) in await run_sql(pool, "select user_id from end_users where org_id = %s", org)}
    assert await run_sql(pool, "select total from end_user_totals where org_id = %s", org) == [(len(user_ids),)]
    return user_ids


@pytest.fixture
async def shop(acme: Tenant, ports: Ports, pool: Pool, clock: FakeClock, user: Account) -> Shop:
    return await open_shop(acme, ports, pool, clock, user)


async def test_deleting_a_service_deletes_everything_that_belongs_to_it(
    shop: Shop, acme: Tenant, other_tenant: Tenant, ports: Ports, pool: Pool, clock: FakeClock
) -> None:
    foreign = await open_shop(other_tenant, ports, pool, clock, shop.user)
    before = await rows_of(pool, foreign.id)
    assert all(before.values())
    answer = await Workshop(acme).delete()
    assert (answer.status, answer.text) == (204, "")
    assert await rows_of(pool, shop.id) == dict.fromkeys(TABLES, 0)
    assert await rows_of(pool, foreign.id) == before
    assert await end_users(pool, acme.org) == set()
    assert await end_users(pool, other_tenant.org) == {shop.user.id}
    assert refused(await Workshop(acme).get()) == MISSING
    assert refused(await Workshop(acme).delete()) == MISSING
    assert (await Workshop(acme).list_services())["services"] == []
    assert (await Workshop(other_tenant).list_services())["services"][0]["id"] == str(foreign.id)


async def test_sessions_and_keys_of_a_deleted_service_are_refused(shop: Shop, acme: Tenant, ports: Ports) -> None:
    assert (await shop.profile()).status == (await shop.info()).status == 200
    assert (await Workshop(acme).delete()).status == 204
    assert refused(await shop.profile()) == (401, "UNAUTHORIZED")
    assert refused(await shop.info()) == (401, "UNAUTHORIZED")
    assert refused(await shop.login()) == MISSING
    refreshed = await acme.api.post("/api/auth/refresh", {"refresh_token": shop.session.refresh_token})
    assert refused(refreshed) == (401, "UNAUTHORIZED")
    # The account and its other sessions stay.
    assert (await acme.api.login()).status == 200


async def test_a_new_service_with_the_same_slug_inherits_nothing(shop: Shop, acme: Tenant, pool: Pool) -> None:
    await Workshop(acme).delete()
    new_service = (await Workshop(acme).add_service())["service"]
    assert new_service["id"] != str(shop.id)
    assert refused(await shop.profile()) == (401, "UNAUTHORIZED")
    assert refused(await shop.info()) == (401, "UNAUTHORIZED")
    assert await rows_of(pool, UUID(new_service["id"])) == {**dict.fromkeys(TABLES, 0), "plans": 1}


async def test_users_of_other_services_stay_end_users(shop: Shop, acme: Tenant, ports: Ports, pool: Pool, clock: FakeClock) -> None:
    eve = await add_account(ports, "eve@example.com")
    await sign_in_to(ports, pool, shop.id, eve)
    other = await open_shop(acme, ports, pool, clock, shop.user, "other")
    before = await rows_of(pool, other.id)
    await Workshop(acme).delete()
    assert await end_users(pool, acme.org) == {shop.user.id}
    assert await rows_of(pool, other.id) == before
    assert (await other.profile()).status == (await other.info()).status == 200
    await Workshop(acme).delete(slug="other")
    assert await end_users(pool, acme.org) == set()


async def test_a_deletion_is_recorded(shop: Shop, acme: Tenant) -> None:
    await Workshop(acme).delete()
    details = {"service_slug": "shop", "service_name": "Shop"}
    assert await acme.recorded() == [("service.deleted", "service", str(shop.id), acme.people["owner"].id, details)]
    assert (await acme.webhook_events())[-1] == ("service.deleted", str(shop.id), details)


async def test_only_the_owner_can_delete_a_service(shop: Shop, acme: Tenant) -> None:
    before = await Workshop(acme).stored_rows()
    for caller in ("admin", "member"):
        assert refused(await Workshop(acme).delete(caller)) == FORBIDDEN
        assert refused(await Workshop(acme).delete(caller, "unknown")) == FORBIDDEN
    for status in STATUSES:
        await acme.set_status(status)
        assert refused(await Workshop(acme).delete()) == NOT_ACTIVE
    assert await Workshop(acme).stored_rows() == before
    assert (await acme.log()) == []


async def test_the_housekeeper_deletes_the_remaining_logins(
    shop: Shop, acme: Tenant, ports: Ports, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(4):
        await add_login(ports, pool, shop.id, shop.user.id)
    monkeypatch.setattr(organizations, "IMMEDIATE_PURGE_LIMIT", 2)
    assert (await Workshop(acme).delete()).status == 204
    assert await rows_of(pool, shop.id) == {**dict.fromkeys(TABLES, 0), "login_events": 3}
    assert await run_sql(pool, "select id from deleted_services") == [(shop.id,)]
    assert await housekeeping.sweep(ports, new_id()) == {"deleted_services": 3}
    assert await rows_of(pool, shop.id) == dict.fromkeys(TABLES, 0)


async def test_deleting_an_organization_deletes_its_services(
    shop: Shop, acme: Tenant, other_tenant: Tenant, ports: Ports, pool: Pool, clock: FakeClock
) -> None:
    foreign = await open_shop(other_tenant, ports, pool, clock, shop.user)
    before = await rows_of(pool, foreign.id)
    assert (await acme.api.delete(acme.path, token=acme.token("owner"))).status == 204
    assert await rows_of(pool, shop.id) == dict.fromkeys(TABLES, 0)
    assert await rows_of(pool, foreign.id) == before
    assert await run_sql(pool, "select org_id from end_users") == [(other_tenant.org,)]
    assert await run_sql(pool, "select org_id from end_user_totals") == [(other_tenant.org,)]
    assert refused(await shop.profile()) == refused(await shop.info()) == (401, "UNAUTHORIZED")
    assert refused(await shop.login()) == MISSING


# Concurrency


def changes_under_lock(acme: Tenant) -> dict[str, tuple[Any, tuple[int, str]]]:
    return {
        "an owner no more": (("update memberships set role = 'admin' where user_id = %s", (acme.people["owner"].id,)), FORBIDDEN),
        "suspended": (("update organizations set status = 'suspended' where id = %s", (acme.org,)), NOT_ACTIVE),
        "gone already": (("delete from services where org_id = %s", (acme.org,)), MISSING),
    }


@pytest.mark.parametrize("name", ["an owner no more", "suspended", "gone already"])
async def test_a_deletion_sees_the_change_that_it_waited_for(shop: Shop, acme: Tenant, pool: Pool, name: str) -> None:
    change, expected = changes_under_lock(acme)[name]
    changes = [("select 1 from organizations where id = %s for no key update", (acme.org,)), change]
    assert refused(await run_during(pool, changes, lambda: Workshop(acme).delete())) == expected
    assert await acme.log() == []


@pytest.mark.slow
async def test_of_twenty_concurrent_deletions_one_succeeds(shop: Shop, acme: Tenant, pool: Pool) -> None:
    answers = await run_concurrently(20, lambda _: Workshop(acme).delete())
    assert sorted(answer.status for answer in answers) == [204] + [404] * 19
    assert await rows_of(pool, shop.id) == dict.fromkeys(TABLES, 0)
    assert (await acme.actions())["service.deleted"] == 1


@pytest.mark.slow
async def test_logins_during_a_deletion_leave_no_rows(shop: Shop, acme: Tenant, ports: Ports, pool: Pool) -> None:
    """Nineteen users sign in, some for the first time, while the service is deleted.

    A login gets tokens that become invalid with the service, or a refusal.
    """
    people = [await add_account(ports, f"person-{number}@example.com") for number in range(19)]
    for person in people[::2]:
        await sign_in_to(ports, pool, shop.id, person)

    async def act(number: int) -> Answer:
        return await (Workshop(acme).delete() if number == 10 else shop.login(people[number if number < 10 else number - 1].email))

    answers = await run_concurrently(20, act)
    assert {answer.status for answer in answers} <= {200, 204, 404}
    assert [answer.status for answer in answers].count(204) == 1
    assert await rows_of(pool, shop.id) == dict.fromkeys(TABLES, 0)
    assert await end_users(pool, acme.org) == set()
    for answer in answers:
        if answer.status == 200:
            assert refused(await acme.api.get("/api/user", token=answer.json["access_token"])) == (401, "UNAUTHORIZED")


@pytest.mark.slow
async def test_every_request_during_a_deletion_gets_a_response(
    shop: Shop, acme: Tenant, ports: Ports, pool: Pool, clock: FakeClock
) -> None:
    """Changes, plans, API keys and logins to another service run at the same time. Afterwards all counters are right."""
    other = await open_shop(acme, ports, pool, clock, shop.user, "other")
    people = [await add_account(ports, f"person-{number}@example.com") for number in range(4)]
    for person in people:
        await sign_in_to(ports, pool, shop.id, person)
    api, headers = acme.api, {"X-Api-Key": shop.key}

    async def act(number: int) -> Answer:
        match number % 5:
            case 0:
                return await Workshop(acme).update(name=f"Name {number}")
            case 1:
                return await Workshop(acme).create_plan()
            case 2:
                return await api.patch("/api/service/info", {"name": f"Key {number}"}, headers=headers)
            case 3:
                body = {"email": people[number // 5].email, "password": PASSWORD, "org_slug": "acme", "service_slug": "other"}
                return await api.post("/api/auth/login", body)
        return await (Workshop(acme).delete() if number == 9 else api.get("/api/service/info", headers=headers))

    answers = await run_concurrently(20, act)
    assert {answer.status for answer in answers} <= {200, 204, 401, 404}
    assert [answer.status for answer in answers].count(204) == 1
    assert await rows_of(pool, shop.id) == dict.fromkeys(TABLES, 0)
    assert await end_users(pool, acme.org) == {shop.user.id, *(person.id for person in people)}
    assert await run_sql(pool, "select id, user_count from services") == [(other.id, 5)]
