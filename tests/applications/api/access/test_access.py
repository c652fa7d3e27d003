"""Access to services: settings, assigned users, and a user's applications (decisions 57, 177)."""

from datetime import timedelta
from typing import Any

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.applications.model.users import AssigneeNotFound, NotAssigned
from entrypoints.doctor import checks
from ports import Ports
from tests.applications.api.service_users import check_counts
from tests.fakes.outside import FakeClock
from tests.support.builders import (
    BASE_URL,
    EMAIL,
    PASSWORD,
    Answer,
    Api,
    add_account,
    add_member,
    add_provisioned,
    run_concurrently,
    run_sql,
    sign_in,
)
from tests.support.refusals import refused
from tests.support.saml.browser import SamlApplications, SamlBrowser
from tests.support.services import add_api_key, add_plan, add_service, add_service_user, add_subscription
from tests.support.tenants import Tenant

LOGIN = {"email": EMAIL, "password": PASSWORD, "org_slug": "acme", "service_slug": "store"}


class Store:
    """Acme's service `store`, and an admin's requests about it."""

    def __init__(self, acme: Tenant) -> None:
        self.tenant = acme
        self.path = f"{acme.path}/services/store"

    async def set_access(self, policy: str, **settings: Any) -> Answer:
        return await self.tenant.api.call("PUT", f"{self.path}/access", {"policy": policy, **settings}, token=self.tenant.token("admin"))

    async def assign(self, user: object) -> Answer:
        return await self.tenant.api.call("PUT", f"{self.path}/assignments/{user}", token=self.tenant.token("admin"))

    async def unassign(self, user: object) -> Answer:
        return await self.tenant.api.delete(f"{self.path}/assignments/{user}", token=self.tenant.token("admin"))

    async def assigned(self, query: str = "") -> dict[str, Any]:
        answer = await self.tenant.api.get(f"{self.path}/assignments{query}", token=self.tenant.token("member"))
        assert answer.status == 200, answer.text
        listed: dict[str, Any] = answer.json
        return listed

    async def emails(self) -> dict[str, str]:
        return {each["email"]: each["assigned_by"] for each in (await self.assigned())["assignments"]}

    async def enrolled(self) -> list[tuple[Any, ...]]:
        """Return the users' emails and origins."""
        await check_counts(self.tenant.pool)
        return await run_sql(self.tenant.pool, "select email, enrolled_by, by_membership from service_users order by email")


@pytest.fixture
async def store(acme: Tenant) -> Store:
    await add_service(acme.pool, acme.org, "store")
    return Store(acme)


async def service_id(pool: Pool) -> Any:
    [(id_,)] = await run_sql(pool, "select id from services where slug = 'store'")
    return id_


async def test_settings_are_replaced_as_a_whole(store: Store, acme: Tenant) -> None:
    before = (await acme.api.get(f"{store.path}/access", token=acme.token("member"))).json
    assert before == {"policy": "anyone", "saml_self_enrolled": False, "launch_url": None}
    full = {"saml_self_enrolled": True, "launch_url": "https://store.example/"}
    for _ in range(2):  # the second request changes nothing
        assert (await store.set_access("assigned", **full)).json == {"policy": "assigned", **full}
    assert (await store.set_access("members")).json == {"policy": "members", "saml_self_enrolled": False, "launch_url": None}
    assert [entry["details"]["changes"] for entry in await acme.log()] == [
        {
            "policy": {"old": "anyone", "new": "assigned"},
            "saml_self_enrolled": {"old": False, "new": True},
            "launch_url": {"old": None, "new": "https://store.example/"},
        },
        {
            "policy": {"old": "assigned", "new": "members"},
            "saml_self_enrolled": {"old": True, "new": False},
            "launch_url": {"old": "https://store.example/", "new": None},
        },
    ]
    assert (await acme.actions()) == {"service.access.updated": 2}


@pytest.mark.parametrize(
    ("url", "flaw"),
    [
        ("http://store.example/", "it must start with https://"),
        ("javascript:alert(1)", "it must start with https://"),
        ("https://user@store.example/", "it has a user name"),
        ("https://store.example/#x", "it has a fragment"),
    ],
)
async def test_a_launch_url_is_a_web_page(store: Store, url: str, flaw: str) -> None:
    answer = await store.set_access("anyone", launch_url=url)
    assert (answer.status, flaw in answer.json["error"]) == (400, True)
    assert (await store.set_access("public")).status == 400


async def test_an_assigned_user_is_admitted_until_the_assignment_ends(
    store: Store, acme: Tenant, api: Api, user: Account, ports: Ports, pool: Pool
) -> None:
    await add_member(pool, acme.org, user.id, confirmed=True)
    await store.set_access("assigned")
    refused = await api.post("/api/auth/login", LOGIN)
    assert (refused.status, "access to this application" in refused.text) == (403, True), "members are not assigned"
    wrong = await api.post("/api/auth/login", {**LOGIN, "password": "wrong"})
    assert wrong.status == 401, "the password comes first"
    for _ in range(2):
        assert (await store.assign(user.id)).status == 204
    assert await store.emails() == {EMAIL: "admin"}
    session = (await api.post("/api/auth/login", LOGIN)).json
    assert (await store.unassign(user.id)).status == 204
    assert await store.emails() == {}
    assert (await api.get("/api/user", token=session["access_token"])).status == 401, "the session has ended"
    assert (await api.post("/api/auth/refresh", {"refresh_token": session["refresh_token"]})).status == 401
    assert (await api.post("/api/auth/login", LOGIN)).status == 403
    again = await store.unassign(user.id)
    assert (again.status, again.json["error"]) == (404, NotAssigned.__doc__)
    assert await store.enrolled() == [(EMAIL, "self", False)], "a user who has signed in remains an end user"
    records = [entry for entry in await acme.recorded() if entry[0].startswith("service.user.")]
    details = {"service_slug": "store", "service_name": "Store", "assigned_by": "admin"}
    assert records == [
        (f"service.user.{change}", "user", str(user.id), acme.people["admin"].id, details) for change in ("assigned", "unassigned")
    ]


async def test_only_users_of_the_organization_can_be_assigned(store: Store, acme: Tenant, other_tenant: Tenant, user: Account) -> None:
    for stranger in (user.id, other_tenant.id("member"), "no-id"):
        answer = await store.assign(stranger)
        assert (answer.status, answer.json["error"]) == (404, AssigneeNotFound.__doc__)
        assert (await store.unassign(stranger)).status == 404
    await add_member(acme.pool, acme.org, user.id)
    assert (await store.assign(user.id)).status == 404, "an invitation that only its sender answered shows nothing more about the user"
    other = await add_service(acme.pool, acme.org, "other")
    await add_service_user(acme.ports, other, user.id)
    assert (await store.assign(user.id)).status == 204, "an end user of another service of the organization"
    foreign = f"{other_tenant.path}/services/store/assignments/{other_tenant.id('member')}"
    assert (await acme.api.call("PUT", foreign, token=other_tenant.token("owner"))).status == 404, "a service of another organization"


async def test_an_unused_assignment_leaves_nothing_behind(store: Store, acme: Tenant, ports: Ports, pool: Pool) -> None:
    member = acme.people["member"]
    await store.assign(member.id)
    assert await store.enrolled() == [(member.email, "admin", True)]
    await store.unassign(member.id)
    assert await store.enrolled() == []
    await store.assign(member.id)
    plan = await add_plan(pool, await service_id(pool))
    await add_subscription(ports, pool, await service_id(pool), member.id, plan, ends=ports.clock.now() + timedelta(days=1))
    await store.unassign(member.id)
    assert await store.enrolled() == [(member.email, "self", True)], "the user has a subscription"


async def test_the_origin_of_an_enrollment_is_recorded(store: Store, acme: Tenant, api: Api, user: Account, pool: Pool) -> None:
    """A stronger origin replaces a weaker one, and a sign-in replaces none."""
    service = await service_id(pool)
    key = {"X-Api-Key": await add_api_key(pool, service)}
    plan = str(await add_plan(pool, service))
    created = (await api.call("POST", "/api/service/users", {"email": "new@example.com"}, headers=key)).json
    existing = await api.call("POST", "/api/service/users", {"email": EMAIL}, headers=key)
    assert existing.status == 200
    assert await store.enrolled() == [("new@example.com", "api_key", False)], "an existing account is not assigned"
    await api.post("/api/auth/login", LOGIN)
    assert (EMAIL, "self", False) in await store.enrolled()
    answer = await api.call("POST", "/api/service/subscriptions", {"user_id": str(user.id), "plan_id": plan}, headers=key)
    assert answer.status == 200, answer.text
    assert (EMAIL, "subscription", False) in await store.enrolled()
    await store.assign(user.id)
    await store.assign(created["id"])
    await api.post("/api/auth/login", LOGIN)
    assert await store.enrolled() == [(EMAIL, "admin", False), ("new@example.com", "api_key", False)]
    pages = [await store.assigned(f"?limit=1&page={number}") for number in (1, 2, 3)]
    assert {each["email"] for page in pages for each in page["assignments"]} == {EMAIL, "new@example.com"}
    assert [(len(page["assignments"]), page["pagination"]["total"]) for page in pages] == [(1, 2), (1, 2), (0, 2)]
    await store.unassign(created["id"])
    assert ("new@example.com", "self", False) in await store.enrolled(), "the API key still manages the user"


async def test_admins_assign_by_address_and_search(store: Store, acme: Tenant, other_tenant: Tenant) -> None:
    async def assign(email: str) -> Answer:
        return await acme.api.post(f"{store.path}/assignments", {"email": email}, token=acme.token("admin"))

    member, owner = acme.people["member"], acme.people["owner"]
    answer = await assign(f" {str(member.email).upper()} ")
    assert (answer.status, answer.json) == (200, {"user_id": str(member.id)})
    assert (await assign(str(owner.email))).status == 200
    unknown = await assign("unknown@example.com")
    foreign = await assign(str(other_tenant.people["member"].email))
    assert refused(unknown) == refused(foreign) == (404, "NOT_FOUND")
    assert unknown.json["error"] == foreign.json["error"]
    found = await store.assigned(f"?search={str(member.email)[:5].upper()}")
    assert ([each["email"] for each in found["assignments"]], found["pagination"]["total"]) == ([member.email], 1)
    assert (await store.assigned("?search=%25"))["assignments"] == []


async def test_assignments_end_with_the_membership(store: Store, acme: Tenant, pool: Pool) -> None:
    """The same holds for a user who has signed in by other means, and so remains an end user."""
    await store.set_access("assigned")
    unused, used = await add_account(acme.ports, "unused@example.com"), await add_account(acme.ports, "used@example.com")
    login = {**LOGIN, "email": "used@example.com"}
    for account in (unused, used):
        await add_member(pool, acme.org, account.id, confirmed=True)
        await store.assign(account.id)
    assert (await acme.api.post("/api/auth/login", login)).status == 200
    for account in (unused, used):
        answer = await acme.api.post(f"{acme.path}/members/{account.id}", token=acme.token("admin"))
        assert answer.status == 200, answer.text
    assert await store.enrolled() == [("used@example.com", "self", False)]
    assert (await acme.api.post("/api/auth/login", login)).status == 403


async def test_no_user_signs_in_after_the_answer_to_the_end_of_the_assignment(store: Store, api: Api, acme: Tenant, pool: Pool) -> None:
    await store.set_access("assigned")
    people = [await add_account(acme.ports, f"user{number}@example.com") for number in range(5)]
    for account in people:
        await add_member(pool, acme.org, account.id, confirmed=True)
        await store.assign(account.id)
    late: list[int] = []

    async def act(number: int) -> None:
        account, kind = people[number % 5], number // 5
        login = {**LOGIN, "email": str(account.email)}
        if kind == 0:
            assert (await store.unassign(account.id)).status == 204
            late.append((await api.post("/api/auth/login", login)).status)
        else:
            assert (await api.post("/api/auth/login", login)).status in (200, 403)

    await run_concurrently(20, act)
    assert late == [403] * 5
    assert {origin for _, origin, _ in await store.enrolled()} <= {"self"}


async def test_no_user_gets_an_assertion_after_the_answer_to_the_end_of_the_assignment(
    app: QuartTrio, applications: SamlApplications, acme: Tenant, pool: Pool, clock: FakeClock
) -> None:
    desk = await applications.add("desk")
    await run_sql(pool, "update services set access_policy = 'assigned' where id = %s", desk.id)
    path, token = f"{acme.path}/services/desk/assignments", acme.token("admin")
    people = [await add_account(acme.ports, f"user{number}@example.com") for number in range(5)]
    browsers: list[SamlBrowser] = []
    for account in people:
        await add_member(pool, acme.org, account.id, confirmed=True)
        assert (await acme.api.call("PUT", f"{path}/{account.id}", token=token)).status == 204
        browsers.append(SamlBrowser(app, clock))
        await browsers[-1].sign_in(str(account.email))
        assert (await browsers[-1].sign_on(desk)).name_id == account.email
    late: list[int] = []

    async def act(number: int) -> None:
        account, kind = people[number % 5], number // 5
        browser = SamlBrowser(app, clock)
        browser.cookies.update(browsers[number % 5].cookies)
        if kind == 0:
            assert (await acme.api.delete(f"{path}/{account.id}", token=token)).status == 204
            late.append((await browser.open(await browser.start_sign_on(desk))).status)
        else:
            assert (await browser.open(await browser.start_sign_on(desk))).status in (200, 403)

    await run_concurrently(20, act)
    assert late == [403] * 5
    await check_counts(pool)


# A user's applications


async def applications_of(api: Api, token: str) -> dict[str, str | None]:
    answer = await api.get("/api/user/applications", token=token)
    assert answer.status == 200, answer.text
    return {f"{each['organization']['slug']}/{each['slug']}": each["launch_url"] for each in answer.json["applications"]}


async def test_users_see_the_applications_that_they_may_use(
    store: Store, acme: Tenant, other_tenant: Tenant, api: Api, user: Account, ports: Ports, pool: Pool
) -> None:
    await add_service(pool, other_tenant.org, "desk")
    token = (await sign_in(ports, user)).access_token
    assert await applications_of(api, token) == {}, "not every application that admits anyone"
    await add_service_user(ports, await service_id(pool), user.id)
    assert await applications_of(api, token) == {"acme/store": None}
    await store.set_access("members", launch_url="https://store.example/")
    assert await applications_of(api, token) == {}, "an application that would refuse them"
    await add_member(pool, acme.org, user.id, confirmed=True)
    await add_member(pool, other_tenant.org, user.id)
    assert await applications_of(api, token) == {"acme/store": "https://store.example/"}, "an unconfirmed membership adds none"
    await run_sql(pool, "update memberships set confirmed_at = now() where user_id = %s", user.id)
    assert await applications_of(api, token) == {"acme/store": "https://store.example/", "twin/desk": None}
    await add_provisioned(pool, acme.org, user.id, provisioned=False, blocked=True)
    assert await applications_of(api, token) == {"twin/desk": None}
    await other_tenant.set_status("suspended")
    assert await applications_of(api, token) == {}


async def test_saml_opens_an_application_from_the_page(
    applications: SamlApplications, browser: SamlBrowser, acme: Tenant, user: Account, api: Api, ports: Ports, pool: Pool, clock: FakeClock
) -> None:
    shop, blog = await applications.add("shop"), await applications.add("blog")
    await run_sql(pool, "update services set launch_url = 'https://blog.example/' where id = %s", blog.id)
    await run_sql(pool, "update service_users set enrolled_by = 'self' where service_id = %s", blog.id)
    token = (await sign_in(ports, user)).access_token
    listed = await applications_of(api, token)
    assert listed == {"acme/shop": f"{BASE_URL}{shop.management}/login", "acme/blog": "https://blog.example/"}
    await browser.sign_in()
    page = await browser.open("/app/account/applications")
    assert all(f'href="{url}"' in page.text for url in listed.values()), page.text
    assert (await browser.open(f"{shop.management}/login")).status == 200
    clock.advance(timedelta(days=4000))
    without_certificate = await applications_of(api, (await sign_in(ports, user)).access_token)
    assert without_certificate == {"acme/shop": None, "acme/blog": "https://blog.example/"}
    await browser.sign_in()
    assert "Open it at its own address." in (await browser.open("/app/account/applications")).text


async def test_the_doctor_lists_applications_that_refuse_their_users(
    applications: SamlApplications,
    acme: Tenant,
    user: Account,
    ports: Ports,
    pool: Pool,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Users who enrolled themselves under the earlier rule, and are no members."""
    shop, members, _ = [await applications.add(slug) for slug in ("shop", "members", "refusing")]
    await run_sql(pool, "update services set saml_self_enrolled = true where id = %s", shop.id)
    await run_sql(pool, "update services set access_policy = 'members' where id = %s", members.id)
    await run_sql(pool, "update service_users set enrolled_by = 'self'")
    [finding] = await checks.check_saml_access(ports.storage, clock)
    assert finding.text.startswith("acme/refusing: ")
    await applications.add("second")
    await run_sql(pool, "update service_users set enrolled_by = 'self'")
    monkeypatch.setattr(checks, "MAX_LISTED_SERVICES", 1)
    assert [each.text.partition(":")[0] for each in await checks.check_saml_access(ports.storage, clock)] == [
        "acme/refusing",
        "there are more such services; the first 1 are listed",
    ]
    await run_sql(pool, "update users set deactivated_at = now()")
    assert await checks.check_saml_access(ports.storage, clock) == []
    await run_sql(pool, "update users set deactivated_at = null")
    await add_member(pool, acme.org, user.id, confirmed=True)
    assert await checks.check_saml_access(ports.storage, clock) == []
