"""The statements about API resources: fields, conditions, order, and isolation."""

from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.applications.model.users import AccessPolicy
from core.authentication.model.agreements import Agreement
from core.authentication.model.openid import OpenIdGrant, ResourceGrant, Scope
from core.kernel import uris
from core.kernel.callers import ServiceContext
from core.kernel.values import Email, Page, PageResult, digest
from core.privacy.model.personal_data import ExportedList
from core.programs.model.api_resources import (
    ApiResource,
    IdentifierTaken,
    ResourceAccess,
    ResourceAssignment,
    ResourceClient,
    ResourceIdentifier,
    ResourceScope,
)
from core.programs.model.client_policy import ClientAdmission, ExternalClientPolicy
from core.tenancy.model.groups import AssignedGroup
from tests.support.builders import add_member, run_concurrently, run_during, run_sql
from tests.support.rows import ADA, DAY, EVE, HOUR, NOW, account, add, begin, within
from tests.support.services import add_service, enroll_user, service_context, verify_domain
from tests.tenancy.groups import add_group

READ, WRITE = ResourceScope("orders:read", "Read your orders"), ResourceScope("orders:write", "Change your orders")
PAGE = Page(1, 50)


def resource(org: UUID, identifier: str = "https://api.example.com/", **changes: Any) -> ApiResource:
    default = ApiResource(
        id=uuid4(),
        org_id=org,
        identifier=identifier,
        name="Orders API",
        scopes=(READ, WRITE),
        token_seconds=600,
        policy=AccessPolicy.ANYONE,
        external_clients=ExternalClientPolicy(
            admit=ClientAdmission.LISTED, hosts=("b.example", "a.example"), scopes=(WRITE.name,), accepts_token_endpoint_audience=True
        ),
        created_at=NOW,
        updated_at=NOW,
        is_active=False,
    )
    return replace(default, **changes)


async def store(storage: Postgres, *resources: ApiResource) -> None:
    for one in resources:
        identifier = ResourceIdentifier(one.identifier, uris.normalize(one.identifier) or "", uris.host_of(one.identifier))
        await within(storage, lambda tx: tx.api_resources.add(one, identifier))  # noqa: B023


def client(service: ServiceContext, *scopes: str, name: str = "Shop") -> ResourceClient:
    return ResourceClient(client_id=service.client_id, service_id=service.id, slug=service.slug, name=name, scopes=scopes, created_at=NOW)


@pytest.fixture
async def user_id(storage: Postgres) -> UUID:
    return (await add(storage, account())).id


async def test_all_fields_are_stored_and_returned(storage: Postgres, pool: Pool, acme: UUID, other_tenant: UUID) -> None:
    first = resource(acme, scopes=(READ, replace(WRITE, implies=(READ.name,))))
    second = resource(acme, f"urn:gatehouse:{acme}:x", scopes=(), policy=AccessPolicy.ASSIGNED, created_at=NOW + HOUR, is_active=True)
    await store(storage, second, first, resource(other_tenant))
    async with storage.reading() as read:
        assert await read.api_resources.of_org(acme) == [first, second]
        assert await read.api_resources.count(acme) == 2
        assert await read.api_resources.by_id(acme, first.id) == first
        assert await read.api_resources.by_id(other_tenant, first.id) is None
    changed = replace(first, name="Orders", scopes=(WRITE,), token_seconds=60, policy=AccessPolicy.MEMBERS, updated_at=NOW + DAY)
    changed = replace(changed, external_clients=ExternalClientPolicy(admit=ClientAdmission.ANY, registration=True))
    await within(storage, lambda tx: tx.api_resources.save(changed))
    await within(storage, lambda tx: tx.api_resources.save(replace(changed, org_id=other_tenant, name="Stolen")))
    await verify_domain(pool, acme)
    async with storage.reading() as read:
        assert await read.api_resources.by_id(acme, first.id) == replace(changed, is_active=True)
    await within(storage, lambda tx: tx.api_resources.remove(other_tenant, first.id))
    await within(storage, lambda tx: tx.api_resources.remove(acme, second.id))
    async with storage.reading() as read:
        assert await read.api_resources.of_org(acme) == [replace(changed, is_active=True)]


async def test_an_identifier_is_unique_in_its_organization_and_without_a_host_everywhere(
    storage: Postgres, acme: UUID, other_tenant: UUID
) -> None:
    local = "http://localhost:8000/"
    await store(storage, resource(acme), resource(other_tenant))
    with pytest.raises(IdentifierTaken):
        await store(storage, resource(acme, "https://API.example.com"))
    identifier = ResourceIdentifier(local, local, None)
    await within(storage, lambda tx: tx.api_resources.add(resource(acme, local), identifier))
    with pytest.raises(IdentifierTaken):
        await within(storage, lambda tx: tx.api_resources.add(resource(other_tenant, local), identifier))


async def test_an_identifier_is_found_for_its_clients_while_the_host_is_verified(
    storage: Postgres, pool: Pool, acme: UUID, other_tenant: UUID, shop: ServiceContext
) -> None:
    desk = await service_context(pool, await add_service(pool, acme, "desk"))
    orders, twin = resource(acme, is_active=True), resource(other_tenant)
    await store(storage, orders, twin)
    await within(storage, lambda tx: tx.api_resources.save_client(acme, orders.id, client(shop)))
    # A row that no use case writes: another organization's client.
    await within(storage, lambda tx: tx.api_resources.save_client(acme, twin.id, client(shop)))

    async def requested(service: ServiceContext, canonical: str = "https://api.example.com/") -> ApiResource | None:
        async with storage.reading() as read:
            return await read.api_resources.requested(service.id, canonical)

    assert await requested(shop) is None, "not verified"
    for domain, is_found in (("com.example", False), ("example.com", True), ("api.example.com", True), ("x.api.example.com", False)):
        await run_sql(pool, "delete from domains")
        await verify_domain(pool, acme, domain)
        assert await requested(shop) == (orders if is_found else None), domain
    await verify_domain(pool, acme)
    assert await requested(desk) is None
    for other in ("https://api.example.com", "https://api.example.com/x", "https://API.example.com/"):
        assert await requested(shop, other) is None
    await verify_domain(pool, other_tenant, "api.example.com")
    assert await requested(shop) is None, "the closest verified domain decides"
    await run_sql(pool, "update domains set verified_at = null where org_id = %s", other_tenant)
    assert await requested(shop) == orders, "an unverified claim changes nothing"


async def test_external_clients_find_a_resource_of_any_active_organization(
    storage: Postgres, pool: Pool, acme: UUID, other_tenant: UUID
) -> None:
    orders, local = resource(acme, is_active=True), "http://localhost:8000/"
    await store(storage, orders, resource(other_tenant))
    await within(storage, lambda tx: tx.api_resources.add(replace(orders, id=uuid4()), ResourceIdentifier(local, local, None)))

    async def find(canonical: str = "https://api.example.com/") -> ApiResource | None:
        async with storage.reading() as read:
            target = await read.api_resources.find_for_external(canonical)
            return None if target is None else target.resource

    assert await find() is None, "not verified"
    await verify_domain(pool, acme)
    assert await find() == orders
    assert (await find(local)) is not None
    for other in ("https://api.example.com", "https://api.example.com/x", "https://API.example.com/", "https://example.com/"):
        assert await find(other) is None
    await run_sql(pool, "update organizations set status = 'suspended' where id = %s", acme)
    assert await find() is None
    assert await find(local) is None


async def test_a_lock_waits_for_changes_of_the_resource(storage: Postgres, pool: Pool, acme: UUID, other_tenant: UUID) -> None:
    orders = resource(acme)
    await store(storage, orders)
    assert await within(storage, lambda tx: tx.api_resources.lock(other_tenant, orders.id)) is None
    changes = [("update api_resources set external_admit = 'none' where id = %s", (orders.id,))]
    locked = await run_during(pool, changes, lambda: within(storage, lambda tx: tx.api_resources.lock(acme, orders.id)))
    assert locked == replace(orders, external_clients=replace(orders.external_clients, admit=ClientAdmission.NONE))


async def test_clients_are_listed_with_the_scopes_that_the_resource_still_has(
    storage: Postgres, pool: Pool, acme: UUID, other_tenant: UUID, shop: ServiceContext
) -> None:
    blog = await service_context(pool, await add_service(pool, acme, "blog"))
    orders = resource(acme)
    await store(storage, orders)
    listed = client(blog, name="Blog"), client(shop, READ.name, WRITE.name)
    for one in reversed(listed):
        await within(storage, lambda tx: tx.api_resources.save_client(acme, orders.id, one))  # noqa: B023
    async with storage.reading() as read:
        assert await read.api_resources.clients(acme, orders.id, PAGE) == PageResult([*listed], 2)
        assert await read.api_resources.clients(acme, orders.id, Page(2, 1)) == PageResult([listed[1]], 2)
        assert await read.api_resources.clients(acme, orders.id, Page(3, 1)) == PageResult([], 2)
        assert await read.api_resources.clients(other_tenant, orders.id, PAGE) == PageResult([], 0)
        assert await read.api_resources.client(acme, orders.id, shop.client_id) == listed[1]
        assert await read.api_resources.client(other_tenant, orders.id, shop.client_id) is None
    await within(storage, lambda tx: tx.api_resources.save(replace(orders, scopes=(WRITE,))))
    async with storage.reading() as read:
        assert (await read.api_resources.clients(acme, orders.id, PAGE)).items == [listed[0], client(shop, WRITE.name)]
    await within(storage, lambda tx: tx.api_resources.remove_client(other_tenant, orders.id, shop.id))
    await within(storage, lambda tx: tx.api_resources.remove_client(acme, orders.id, blog.id))
    async with storage.reading() as read:
        assert (await read.api_resources.clients(acme, orders.id, PAGE)).items == [client(shop, WRITE.name)]


async def test_assignments_are_of_one_resource(storage: Postgres, acme: UUID, other_tenant: UUID, user_id: UUID) -> None:
    eve, orders, other = (await add(storage, account(EVE))).id, resource(acme), resource(acme, "https://example.com/")
    await store(storage, orders, other)
    for one, user, at, is_new in ((orders, user_id, NOW, True), (orders, user_id, NOW + DAY, False), (orders, eve, NOW + HOUR, True)):
        assert await within(storage, lambda tx: tx.api_resources.assign(acme, one.id, user, at)) == is_new  # noqa: B023
    ada_assigned, eve_assigned = ResourceAssignment(user_id, Email(ADA), NOW), ResourceAssignment(eve, Email(EVE), NOW + HOUR)
    async with storage.reading() as read:
        assert await read.api_resources.assignments(acme, orders.id, PAGE) == PageResult([ada_assigned, eve_assigned], 2)
        assert await read.api_resources.assignments(acme, orders.id, Page(2, 1)) == PageResult([eve_assigned], 2)
        assert await read.api_resources.assignments(acme, orders.id, PAGE, search=EVE[:3]) == PageResult([eve_assigned], 1)
        assert await read.api_resources.assignments(acme, orders.id, PAGE, search="%") == PageResult([], 0)
        for org, each in ((acme, other), (other_tenant, orders)):
            assert await read.api_resources.assignments(org, each.id, PAGE) == PageResult([], 0)
    assert not await within(storage, lambda tx: tx.api_resources.unassign(other_tenant, orders.id, eve))
    assert await within(storage, lambda tx: tx.api_resources.unassign(acme, orders.id, eve))
    assert not await within(storage, lambda tx: tx.api_resources.unassign(acme, orders.id, eve))


async def test_the_policy_decides_who_may_use_a_resource(
    storage: Postgres, pool: Pool, acme: UUID, other_tenant: UUID, user_id: UUID
) -> None:
    orders = resource(acme)
    await store(storage, orders)

    async def admits(policy: AccessPolicy, org: UUID = acme) -> bool:
        await within(storage, lambda tx: tx.api_resources.save(replace(orders, policy=policy)))
        async with storage.reading() as read:
            return await read.api_resources.may_use(org, orders.id, user_id)

    assert [await admits(policy) for policy in AccessPolicy] == [True, False, False, False]
    await add_member(pool, other_tenant, user_id)
    assert [await admits(policy) for policy in AccessPolicy] == [True, False, False, False], "a member of another organization"
    await add_member(pool, acme, user_id)
    assert [await admits(policy) for policy in AccessPolicy] == [True, True, True, False]
    await within(storage, lambda tx: tx.api_resources.assign(acme, orders.id, user_id, NOW))
    assert [await admits(policy) for policy in AccessPolicy] == [True, True, True, True]
    assert not await admits(AccessPolicy.ANYONE, other_tenant)
    await within(storage, lambda tx: tx.api_resources.unassign(acme, orders.id, user_id))
    group = await add_group(pool, acme, user_id)
    assert await within(storage, lambda tx: tx.api_resources.assign_group(acme, orders.id, group, NOW))
    assert not await within(storage, lambda tx: tx.api_resources.assign_group(acme, orders.id, group, NOW))
    assert [await admits(policy) for policy in AccessPolicy] == [True, True, True, False], "the membership is not confirmed"
    await run_sql(pool, "update memberships set confirmed_at = now()")
    assert [await admits(policy) for policy in AccessPolicy] == [True, True, True, True]
    async with storage.reading() as read:
        assert await read.api_resources.groups(acme, orders.id) == [AssignedGroup(group, "Group", 1, NOW)]
        assert await read.api_resources.groups(other_tenant, orders.id) == []
    assert not await within(storage, lambda tx: tx.api_resources.unassign_group(other_tenant, orders.id, group))
    assert await within(storage, lambda tx: tx.api_resources.unassign_group(acme, orders.id, group))
    assert not await admits(AccessPolicy.ASSIGNED)
    await within(storage, lambda tx: tx.directory_blocks.add(acme, user_id, NOW))
    assert [await admits(policy) for policy in AccessPolicy] == [False, False, False, False]


# Grants


@pytest.fixture
async def orders(storage: Postgres, pool: Pool, acme: UUID, shop: ServiceContext) -> ApiResource:
    """An API resource that the service may ask for."""
    await verify_domain(pool, acme)
    orders = resource(acme, is_active=True)
    await store(storage, orders)
    await within(storage, lambda tx: tx.api_resources.save_client(acme, orders.id, client(shop)))
    return orders


def grant_of(orders: ApiResource, *scope: str, seconds: int | None = 600) -> OpenIdGrant:
    return OpenIdGrant((), resource=orders.identifier, api=ResourceGrant(orders.id, scope, seconds))


async def test_a_session_has_its_grant_with_the_facts_of_now(
    storage: Postgres, pool: Pool, shop: ServiceContext, orders: ApiResource, user_id: UUID
) -> None:
    await within(storage, lambda tx: enroll_user(tx, shop.id, user_id, NOW))
    openid = OpenIdGrant((Scope.OPENID,), resource=orders.identifier, api=ResourceGrant(orders.id, (WRITE.name, READ.name), 600))
    await begin(storage, user_id, "one", service=shop, openid=grant_of(orders, WRITE.name, READ.name))
    await begin(storage, user_id, "two", service=shop, openid=openid)

    async def stored(token: str) -> OpenIdGrant | None:
        async with storage.reading() as read:
            return await read.refresh_tokens.grant(digest(token), NOW)

    async def rotated(token: str, successor: str) -> OpenIdGrant | None:
        async with storage.autocommit() as statements:
            session = await statements.refresh_tokens.rotate(digest(token), digest(successor), NOW, NOW + DAY)
        return None if session is None else session.openid

    assert await stored("one") == await rotated("one", "a") == grant_of(orders, READ.name, WRITE.name), "in the order of the resource"
    both = await rotated("two", "b")
    assert both == replace(openid, api=ResourceGrant(orders.id, (READ.name, WRITE.name), 600))
    await within(storage, lambda tx: tx.api_resources.save(replace(orders, scopes=(WRITE,), token_seconds=60)))
    assert await rotated("a", "c") == grant_of(orders, WRITE.name, seconds=60)
    await run_sql(pool, "delete from api_resource_clients")
    assert await rotated("c", "d") is None
    assert await stored("c") == grant_of(orders, WRITE.name, READ.name, seconds=None), "as it was granted"


async def test_consents_to_an_api_belong_to_the_consent_to_the_application(
    storage: Postgres, pool: Pool, shop: ServiceContext, orders: ApiResource, user_id: UUID
) -> None:
    other = resource(shop.org_id, "https://example.com/", name="Another API", scopes=())
    await store(storage, other)

    async def agree(one: ApiResource, *scope: str) -> bool:
        return await within(
            storage, lambda tx: tx.consents.add_api(shop.org_id, shop.id, user_id, ResourceGrant(one.id, scope, None), NOW + HOUR)
        )

    async def agreement(one: ApiResource | None) -> Agreement:
        async with storage.reading() as read:
            return await read.consents.agreement(shop.org_id, shop.id, user_id, None if one is None else one.id)

    assert await agreement(orders) == Agreement(frozenset())
    assert await within(storage, lambda tx: tx.consents.add(shop.org_id, shop.id, user_id, (), NOW))
    assert await agreement(orders) == Agreement(frozenset(), None)
    for scope, is_new in (((), True), ((), False), ((READ.name,), True), ((READ.name,), False), ((WRITE.name, READ.name), True)):
        assert await agree(orders, *scope) == is_new, scope
    assert await agree(other)
    assert await agreement(orders) == Agreement(frozenset(), frozenset({READ.name, WRITE.name}))
    assert await agreement(other) == Agreement(frozenset(), frozenset())
    assert await agreement(None) == Agreement(frozenset(), None)
    async with storage.reading() as read:
        [consent] = await read.consents.of_user(user_id, 10)
        [exported] = await read.personal_data.items(ExportedList.CONSENTS, user_id, None, None, 10)
    access = (
        ResourceAccess(other.id, "Another API", other.identifier, ()),
        ResourceAccess(orders.id, "Orders API", orders.identifier, (READ, WRITE)),
    )
    assert (consent.apis, consent.granted_at) == (access, NOW + HOUR)
    assert exported.fields["api_resources"] == [
        {"name": api.name, "identifier": api.identifier, "scopes": [scope.name for scope in api.scopes]} for api in access
    ]
    removed = await within(storage, lambda tx: tx.consents.remove(user_id, shop.id))
    assert removed is not None
    assert removed.apis == access
    assert await run_sql(pool, "select 1 from api_consents") == []


async def test_concurrent_consents_to_an_api_lose_no_scope(
    storage: Postgres, pool: Pool, shop: ServiceContext, orders: ApiResource, user_id: UUID
) -> None:
    await within(storage, lambda tx: tx.consents.add(shop.org_id, shop.id, user_id, (), NOW))
    names = [READ.name, WRITE.name] * 3

    async def agree(number: int) -> bool:
        grant = ResourceGrant(orders.id, (names[number],), None)
        return await within(storage, lambda tx: tx.consents.add_api(shop.org_id, shop.id, user_id, grant, NOW))

    results = await run_concurrently(len(names), agree)
    assert results.count(True) == 2
    assert await run_sql(pool, "select cardinality(scope) from api_consents") == [(2,)]


async def test_a_resource_that_is_deleted_during_the_consent_gets_none(
    storage: Postgres, pool: Pool, shop: ServiceContext, orders: ApiResource, user_id: UUID
) -> None:
    await within(storage, lambda tx: tx.consents.add(shop.org_id, shop.id, user_id, (), NOW))
    changes = [("delete from api_resources where id = %s", (orders.id,))]
    grant = ResourceGrant(orders.id, (READ.name,), None)
    added = await run_during(
        pool, changes, lambda: within(storage, lambda tx: tx.consents.add_api(shop.org_id, shop.id, user_id, grant, NOW))
    )
    assert not added
