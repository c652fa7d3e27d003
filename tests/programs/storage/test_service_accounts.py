"""The statements about service accounts and credentials: fields, isolation, lost owner rights, locks and deletion."""

from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.kernel.api_scopes import ApiScope
from core.kernel.callers import OrganizationStatus
from core.kernel.causes import SYSTEM
from core.kernel.claims import ProgramClaims
from core.kernel.roles import ADMIN, MEMBER, OWNER, ROLES, Authority, Capability, Role, RoleName, custom_role, find_role, rights_of
from core.kernel.values import Email, Page, PageResult, digest
from core.programs.model.api_resources import ApiResource, ResourceIdentifier
from core.programs.model.credentials import Credential, CredentialKind, PipelineTrust, ProgramClient, ProgramKind
from core.programs.model.service_accounts import AccountResource, ListedServiceAccount, ServiceAccount, may_manage
from tests.programs.storage.test_api_resources import READ, resource
from tests.support.builders import add_member, run_sql
from tests.support.rows import ADA, DAY, HOUR, NOW, account, add, is_locked, within

PAGE = Page(1, 50)
SECRET, OTHER_SECRET = digest("secret"), digest("another secret")
KEY = {"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}


@pytest.fixture
async def owner(storage: Postgres, pool: Pool, acme: UUID, other_tenant: UUID) -> UUID:
    """A platform owner who also owns the two organizations."""
    user_id = (await add(storage, account(is_platform_owner=True))).id
    for org in (acme, other_tenant):
        await add_member(pool, org, user_id, "owner")
    return user_id


def robot(org: UUID | None, owner: UUID, **changes: Any) -> ServiceAccount:
    default = ServiceAccount(
        id=uuid4(),
        org_id=org,
        name="Robot",
        owner_id=owner,
        role=None if org is None else OWNER,
        scopes=None,
        created_by=owner,
        created_at=NOW,
        updated_at=NOW,
    )
    return replace(default, **changes)


def credential(of: ServiceAccount | ApiResource, **changes: Any) -> Credential:
    default = Credential(
        id=uuid4(),
        client_id=of.id,
        org_id=of.org_id,
        kind=CredentialKind.SECRET,
        name="Main",
        hint="gthc_abcdef",
        expires_at=None,
        created_by=uuid4(),
        created_at=NOW,
    )
    return replace(default, **changes)


async def store(storage: Postgres, *rows: ServiceAccount | Credential, secret: bytes = SECRET) -> None:
    async with storage.transaction(by=SYSTEM) as tx:
        for row in rows:
            if isinstance(row, ServiceAccount):
                await tx.service_accounts.add(row)
            else:
                await tx.credentials.add(row, secret if row.kind is CredentialKind.SECRET else None)


async def authenticate(storage: Postgres, client_id: UUID, *secrets: bytes) -> ProgramClient | None:
    async with storage.autocommit() as statements:
        return await statements.program_clients.by_secret(client_id, secrets or (SECRET,), (), NOW)


async def test_service_accounts_are_found_only_where_they_belong(storage: Postgres, acme: UUID, other_tenant: UUID, owner: UUID) -> None:
    first = robot(acme, owner, scopes=frozenset({ApiScope.MEMBERS_READ}), granted=frozenset({Capability.ROLES_MANAGE}))
    second = robot(acme, owner, name="Exporter", role=MEMBER, scopes=frozenset(), created_at=NOW + HOUR)
    of_platform = robot(None, owner)
    await store(storage, first, second, robot(other_tenant, owner), of_platform)
    listed = [ListedServiceAccount(each, find_role(each.role), Email(ADA), True) for each in (second, first)]
    async with storage.reading() as read:
        assert await read.service_accounts.page(acme, PAGE, NOW) == PageResult(listed, 2)
        assert await read.service_accounts.page(acme, Page(3, 1), NOW) == PageResult([], 2)
        assert await read.service_accounts.page(None, PAGE, NOW) == PageResult(
            [ListedServiceAccount(of_platform, None, Email(ADA), True)], 1
        )
        assert [await read.service_accounts.count(org) for org in (acme, other_tenant, None, uuid4())] == [2, 1, 1, 0]
        assert await read.service_accounts.by_id(acme, first.id, NOW) == listed[1]
        assert await read.service_accounts.summary(acme, first.id) is not None
        assert await read.service_accounts.summary(other_tenant, first.id) is None
    changed = replace(first, name="Importer", role=ADMIN, scopes=None, granted=frozenset(), updated_at=NOW + DAY)
    async with storage.transaction(by=SYSTEM) as tx:
        for org, id_ in ((other_tenant, first.id), (None, first.id), (acme, of_platform.id)):
            assert await tx.service_accounts.by_id(org, id_, NOW) is None
            assert await tx.service_accounts.lock(org, id_) is None
            assert not await tx.service_accounts.may_promote(org or other_tenant, id_)
            await tx.service_accounts.save(replace(changed, id=id_, org_id=org, name="Stolen"))
            await tx.service_accounts.remove(org, id_)
        await tx.service_accounts.save(changed)
        assert await tx.service_accounts.lock(acme, first.id) == changed
        assert await tx.service_accounts.lock(None, of_platform.id) == of_platform
        await tx.service_accounts.remove(acme, second.id)
        assert await tx.service_accounts.count(acme) == 1


async def test_credentials_are_found_only_for_their_program(storage: Postgres, acme: UUID, other_tenant: UUID, owner: UUID) -> None:
    program, twin, of_platform = robot(acme, owner), robot(acme, owner), robot(None, owner)
    secret = credential(program, expires_at=NOW + DAY)
    key = credential(program, kind=CredentialKind.KEY, public_key=KEY, hint="thumbprint", created_at=NOW + HOUR)
    trust = PipelineTrust("https://issuer.example", "audience", "repo:acme/shop:*")
    federated = credential(program, kind=CredentialKind.FEDERATED, trust=trust, hint=None, created_at=NOW + 2 * HOUR)
    await store(storage, program, twin, of_platform, secret, key, federated, credential(of_platform))
    async with storage.transaction(by=SYSTEM) as tx:
        assert await tx.credentials.of_client(acme, program.id) == [federated, key, secret]
        assert await tx.credentials.by_id(acme, program.id, key.id) == key
        for org, client_id in ((other_tenant, program.id), (None, program.id), (acme, twin.id), (acme, of_platform.id)):
            assert await tx.credentials.of_client(org, client_id) == []
            assert await tx.credentials.by_id(org, client_id, secret.id) is None
            await tx.credentials.remove(org, client_id, secret.id)
            assert await tx.service_accounts.lock_live(org, client_id, secret.id) is None
        assert await tx.service_accounts.lock_live(acme, program.id, secret.id) == Authority(OWNER, rights_of(OWNER))
        await tx.credentials.remove(acme, program.id, key.id)
        assert await tx.credentials.of_client(acme, program.id) == [federated, secret]


async def test_a_secret_authenticates_its_program_until_it_expires(storage: Postgres, pool: Pool, acme: UUID, owner: UUID) -> None:
    program, twin = robot(acme, owner, role=ADMIN, scopes=frozenset({ApiScope.MEMBERS_READ})), robot(acme, owner)
    old, new = credential(program, expires_at=NOW + HOUR), credential(program)
    await store(storage, program, twin, old)
    await store(storage, new, secret=OTHER_SECRET)
    client = await authenticate(storage, program.id, digest("wrong"), SECRET)
    assert client == ProgramClient(
        kind=ProgramKind.SERVICE_ACCOUNT,
        client_id=program.id,
        credential_id=old.id,
        org_id=acme,
        org_slug="acme",
        status=OrganizationStatus.ACTIVE,
        rights=rights_of(ADMIN),
        scopes=frozenset({ApiScope.MEMBERS_READ}),
        expires_at=NOW + HOUR,
    )
    assert await authenticate(storage, twin.id) is None
    assert await authenticate(storage, program.id, digest("wrong")) is None
    assert await run_sql(pool, "select id from credentials where last_used_at = %s", NOW) == [(old.id,)]
    async with storage.reading() as read:
        assert await read.program_clients.is_token_active(claims(program, old), None, NOW)
        assert not await read.program_clients.is_token_active(claims(program, old), None, NOW + HOUR)
    await run_sql(pool, "update credentials set expires_at = %s where id = %s", NOW, old.id)
    assert await authenticate(storage, program.id) is None
    replaced = await authenticate(storage, program.id, OTHER_SECRET)
    assert replaced is not None
    assert replaced.credential_id == new.id


# Every way in which an owner's rights end, and the roles of the accounts that go on. The role None belongs to the
# platform's accounts.
ENDS: dict[str, tuple[str, set[RoleName | None]]] = {
    "deactivated": ("update users set deactivated_at = now() where id = %s", set()),
    "anonymized": ("update users set anonymized_at = now(), email = 'anonymized@example.com' where id = %s", set()),
    "deleted": ("update service_accounts set owner_id = gen_random_uuid() where owner_id = %s", set()),
    "demoted to admin": ("update memberships set role = 'admin' where user_id = %s", {ADMIN, MEMBER, None}),
    "demoted to member": ("update memberships set role = 'member' where user_id = %s", {None}),
    "removed": ("delete from memberships where user_id = %s", {None}),
    "no platform owner": ("update users set is_platform_owner = false where id = %s", {*ROLES}),
}


@pytest.mark.parametrize("end", ENDS)
async def test_all_statements_agree_on_the_accounts_that_have_stopped(
    storage: Postgres, pool: Pool, acme: UUID, owner: UUID, end: str
) -> None:
    statement, live = ENDS[end]
    robots: dict[RoleName | None, ServiceAccount] = {role: robot(acme, owner, role=role) for role in ROLES} | {None: robot(None, owner)}
    secrets = {role: credential(each) for role, each in robots.items()}
    keys = [credential(each, kind=CredentialKind.KEY, public_key=KEY) for each in robots.values()]
    await store(storage, *robots.values(), *secrets.values(), *keys)
    await run_sql(pool, statement, owner)
    for role, each in robots.items():
        secret = secrets[role]
        async with storage.transaction(by=SYSTEM) as tx:
            listed = await tx.service_accounts.by_id(each.org_id, each.id, NOW)
            seen = {
                "listed": listed is not None and listed.is_active,
                "authorized": await tx.service_accounts.load_context(each.id, secret.id, "acme", NOW) is not None,
                "locked": await tx.service_accounts.lock_live(each.org_id, each.id, secret.id) is not None,
            }
            assert bool(await tx.service_accounts.may_promote(acme, each.id)) == (role == OWNER and role in live)
        async with storage.reading() as read:
            seen["has keys"] = await read.program_clients.credentials(each.id, NOW) != []
            seen["introspected"] = await read.program_clients.is_token_active(claims(each, secret), None, NOW)
        seen["authenticated"] = await authenticate(storage, each.id) is not None
        assert seen == dict.fromkeys(seen, role in live), role
    stopped = await within(storage, lambda tx: tx.service_accounts.stopped_of(acme, owner, NOW))
    assert set(stopped) == {(robots[role].id, "Robot") for role in ROLES if role not in live and end != "deleted"}


@pytest.mark.parametrize("manager", [*ROLES])
async def test_the_statements_and_the_rule_agree_on_who_may_own_an_account(
    storage: Postgres, pool: Pool, acme: UUID, manager: RoleName
) -> None:
    user = await add(storage, account("owner@example.com"))
    await add_member(pool, acme, user.id, manager)
    robots = {role: robot(acme, user.id, role=role) for role in ROLES}
    await store(storage, *robots.values())

    async def live() -> set[RoleName]:
        async with storage.reading() as read:
            accounts = {role: await read.service_accounts.by_id(acme, each.id, NOW) for role, each in robots.items()}
        return {role for role, listed in accounts.items() if listed is not None and listed.is_active}

    assert await live() == {role for role in ROLES if may_manage(rights_of(manager), ROLES[role])}
    await run_sql(pool, "update users set deactivated_at = now() where id = %s", user.id)
    assert await live() == set()


@pytest.mark.parametrize("manager", [*ROLES, "managing", "auditing"])
async def test_the_statements_and_the_rule_agree_on_roles_of_the_organization(
    storage: Postgres, pool: Pool, acme: UUID, manager: RoleName
) -> None:
    of_members = ROLES[MEMBER].rights - {Capability.ORGANIZATION_VIEW}
    own = {
        "managing": custom_role("managing", "Managing", {*of_members, Capability.SERVICE_ACCOUNTS_MANAGE}),
        "auditing": custom_role("auditing", "Auditing", {Capability.AUDIT_VIEW}),
        "seeing": custom_role("seeing", "Seeing", {Capability.MEMBERS_VIEW}),
    }
    for role in own.values():
        capabilities = sorted(role.rights - {Capability.ORGANIZATION_VIEW})
        insert = "insert into organization_roles values (%s, %s, %s, %s, '', %s, 1, now(), now())"
        await run_sql(pool, insert, uuid4(), acme, role.name, role.label, capabilities)
    user = await add(storage, account("owner@example.com"))
    await add_member(pool, acme, user.id, manager)
    roles: dict[str, Role] = {**{role.name: role for role in ROLES.values()}, **own}
    robots = {name: robot(acme, user.id, role=RoleName(name)) for name in roles}
    await store(storage, *robots.values())
    async with storage.reading() as read:
        listed = {name: await read.service_accounts.by_id(acme, each.id, NOW) for name, each in robots.items()}
    assert {name: each.is_active for name, each in listed.items() if each} == {
        name: may_manage(roles[manager].rights, role) for name, role in roles.items()
    }
    assert [each.role for each in listed.values() if each] == [*roles.values()]


def claims(account: ServiceAccount, credential: Credential) -> ProgramClaims:
    """Return a token's claims for our own API."""
    return ProgramClaims(
        client_id=account.id,
        credential_id=credential.id,
        token_id=uuid4(),
        issued_at=NOW,
        expires_at=NOW + HOUR,
        audience="https://sso.example/api",
        scope=(),
        is_of_platform=True,
        org_id=account.org_id,
    )


async def test_a_key_and_a_trust_are_those_of_a_live_program(storage: Postgres, acme: UUID, owner: UUID) -> None:
    program = robot(acme, owner)
    key = credential(program, kind=CredentialKind.KEY, public_key=KEY, expires_at=NOW + HOUR)
    trust = PipelineTrust("https://issuer.example", "audience", "repo:acme/shop:*")
    federated = credential(program, kind=CredentialKind.FEDERATED, trust=trust, hint=None, created_at=NOW + HOUR)
    await store(storage, program, key, federated, credential(program))
    async with storage.reading() as read:
        before = await read.program_clients.credentials(program.id, NOW)
        after = await read.program_clients.credentials(program.id, NOW + HOUR)
    assert [(each.client.credential_id, each.public_key, each.trust) for each in before] == [
        (key.id, KEY, None),
        (federated.id, None, trust),
    ]
    assert [each.client.credential_id for each in after] == [federated.id]


async def test_a_request_keeps_its_account_and_credential(storage: Postgres, pool: Pool, acme: UUID, owner: UUID) -> None:
    program = robot(acme, owner)
    used, spare = credential(program), credential(program)
    await store(storage, program, used, spare)
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.service_accounts.lock_live(acme, program.id, used.id)
        assert await is_locked(pool, "service_accounts", "id = %s", program.id)
        assert await is_locked(pool, "credentials", "id = %s", used.id)
        assert not await is_locked(pool, "credentials", "id = %s", spare.id)
        assert not await is_locked(pool, "service_accounts", "id = %s", program.id, mode="for share"), "requests do not wait"


async def test_a_program_takes_its_credentials_and_grants_with_it(
    storage: Postgres, pool: Pool, acme: UUID, other_tenant: UUID, owner: UUID
) -> None:
    programs, orders = [robot(acme, owner), robot(acme, owner), robot(other_tenant, owner), robot(None, owner)], resource(acme)
    granted = AccountResource(orders.id, orders.identifier, orders.name, (READ.name,))
    await store(storage, *programs, *(credential(each) for each in programs), credential(orders))
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.api_resources.add(orders, ResourceIdentifier(orders.identifier, orders.identifier, "api.example.com"))
        for each in programs[:2]:
            await tx.api_resources.save_account(acme, each.id, granted, NOW)

    async def left() -> tuple[set[UUID], set[UUID]]:
        kept = await run_sql(pool, "select client_id from credentials")
        grants = await run_sql(pool, "select service_account_id from api_resource_service_accounts")
        return {row[0] for row in kept}, {row[0] for row in grants}

    first, second, foreign, of_platform = (each.id for each in programs)
    await within(storage, lambda tx: tx.service_accounts.remove(acme, first))
    assert await left() == ({second, foreign, of_platform, orders.id}, {second})
    await within(storage, lambda tx: tx.api_resources.remove(acme, orders.id))
    assert await left() == ({second, foreign, of_platform}, set())
    await within(storage, lambda tx: tx.organizations.delete(acme, NOW))
    assert await left() == ({foreign, of_platform}, set())
