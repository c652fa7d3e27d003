"""Storing organizations' connections: every statement reaches one organization only."""

from dataclasses import replace
from datetime import timedelta
from uuid import UUID, uuid4

import psycopg
import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres, Transaction
from core.federation.connections.model.connections import (
    CertificateSource,
    ConnectionGroup,
    ConnectionIdentity,
    ConnectionSlugTaken,
    ConnectionState,
    OrganizationConnection,
    ProviderCertificate,
)
from core.federation.connections.model.people import ConnectionSubject
from core.federation.connections.model.settings import ClaimMapping, OidcSettings, ProviderAuthentication, SamlSettings, SsoBinding
from core.federation.saml.model.configuration import PREVIOUS_KEPT, CertificateState, NameIdFormat
from core.kernel.causes import SYSTEM
from core.kernel.connections import PLATFORM_CONNECTIONS
from core.kernel.values import Page, Slug, new_id
from tests.support.builders import run_sql
from tests.support.connections import add_connection
from tests.support.rows import ADA, DAY, EVE, NOW, account, add, within
from tests.support.saml import new_certificate

SAML = SamlSettings(
    entity_id="urn:adfs",
    sso_url="https://adfs.example/sso",
    sso_binding=SsoBinding.POST,
    metadata_url="https://adfs.example/metadata",
    name_id_format=NameIdFormat.UNSPECIFIED,
    subject="objectGUID",
    signs_requests=False,
    trusts_email=True,
    trusts_second_factor=True,
)
CERTIFICATE = ProviderCertificate(
    fingerprint="ab" * 32,
    certificate="pem",
    valid_from=NOW - DAY,
    valid_until=NOW + DAY,
    source=CertificateSource.ADMIN,
    is_active=False,
    added_at=NOW,
)


@pytest.fixture
async def connection(storage: Postgres, acme: UUID) -> OrganizationConnection:
    return await add_connection(storage, acme)


async def all_of(storage: Postgres, *orgs: UUID) -> list[OrganizationConnection]:
    async with storage.reading() as read:
        return [each for org in orgs for each in await read.connections.of_org(org)]


async def test_every_field_of_a_connection_is_stored_and_read_back(
    storage: Postgres, acme: UUID, other_tenant: UUID, connection: OrganizationConnection
) -> None:
    draft = await add_connection(
        storage,
        other_tenant,
        name="ADFS",
        preset="adfs",
        state=ConnectionState.DRAFT,
        first_activated_at=None,
        mapping=ClaimMapping(
            email="mail", name=None, given_name="first", family_name="last", groups="groups", picture="photo", locale="lang"
        ),
        settings=SAML,
    )
    assert await all_of(storage, acme, other_tenant, uuid4()) == [connection, draft]
    async with storage.reading() as read:
        assert [await read.connections.by_slug(org, "okta") for org in (acme, other_tenant, uuid4())] == [connection, draft, None]
    settings = OidcSettings(
        issuer="https://other.example",
        client_id="other",
        client_authentication=ProviderAuthentication.PRIVATE_KEY_JWT,
        scopes=(),
        trusts_email=True,
        trusts_second_factor=True,
    )
    changed = replace(
        draft, org_id=acme, id=connection.id, settings=settings, created_at=connection.created_at, state=ConnectionState.INACTIVE
    )
    await within(storage, lambda tx: tx.connections.save(replace(changed, slug=Slug("other"))))
    assert await all_of(storage, acme, other_tenant) == [changed, draft]


async def test_a_slug_is_unique_in_its_organization(
    storage: Postgres, pool: Pool, acme: UUID, other_tenant: UUID, connection: OrganizationConnection
) -> None:
    await add_connection(storage, other_tenant)
    with pytest.raises(ConnectionSlugTaken):
        await add_connection(storage, acme)
    for slug in PLATFORM_CONNECTIONS:
        with pytest.raises(psycopg.errors.CheckViolation):
            await add_connection(storage, acme, slug)
    [count] = await run_sql(pool, "select count(*) from connections where org_id is null")
    assert count == (len(PLATFORM_CONNECTIONS),)


@pytest.mark.parametrize("status", ["active", "suspended"])
async def test_a_connection_is_found_by_its_id_while_its_organization_is_active(
    storage: Postgres, pool: Pool, acme: UUID, connection: OrganizationConnection, status: str
) -> None:
    await run_sql(pool, "update organizations set status = %s where id = %s", status, acme)
    async with storage.reading() as read:
        found = await read.connections.of_active_org(connection.id)
        assert found == (connection if status == "active" else None)
        assert [await read.connections.of_active_org(id_) for id_ in (uuid4(), UUID(int=1))] == [None, None]


async def test_changes_reach_no_connection_of_another_organization(
    storage: Postgres, acme: UUID, other_tenant: UUID, connection: OrganizationConnection
) -> None:
    """The other organization names the connection by its id."""
    key, user = await new_certificate(NOW), await add(storage, account())
    group = ConnectionGroup(
        id=new_id(), org_id=acme, connection_id=connection.id, value="staff", group_id=new_id(), mapped_by=user.id, mapped_at=NOW
    )
    identity = ConnectionIdentity(
        org_id=acme, connection_id=connection.id, user_id=user.id, subject="1", email=ADA, linked_at=NOW, last_used_at=NOW
    )
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.connections.save_client_secret(acme, connection.id, "secret", NOW)
        await tx.connection_keys.add(acme, connection.id, key, CertificateState.ACTIVE)
        await tx.connection_keys.add_certificate(acme, connection.id, CERTIFICATE)
        await tx.connection_identities.add(identity)
    foreign = replace(connection, org_id=other_tenant, name="Stolen")
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.connections.save(foreign)
        await tx.connections.save_client_secret(other_tenant, connection.id, "other", NOW)
        await tx.connection_keys.move(other_tenant, connection.id, CertificateState.ACTIVE, CertificateState.PREVIOUS, NOW)
        assert not await tx.connection_keys.remove(other_tenant, connection.id, CertificateState.ACTIVE)
        assert not await tx.connection_keys.activate_certificate(other_tenant, connection.id, CERTIFICATE.fingerprint)
        assert not await tx.connection_keys.remove_certificate(other_tenant, connection.id, CERTIFICATE.fingerprint)
        assert await tx.connection_identities.use(other_tenant, connection.id, "1", user.id, EVE, NOW + DAY) is None
        assert not await tx.connection_identities.remove(other_tenant, connection.id, user.id)
        assert not await tx.connections.remove_group(other_tenant, connection.id, group.id)
        await tx.connections.remove(other_tenant, connection.id)
        found = [await tx.connection_identities.subject(org, connection.id, "1") for org in (acme, other_tenant)]
        assert found == [ConnectionSubject(is_active=True, user_id=user.id, is_member=False, is_blocked=False), None]
    async with storage.reading() as read:
        assert await read.connections.of_org(acme) == [replace(connection, client_secret_set_at=NOW)]
        assert [await read.connections.client_secret(org, connection.id, "https://okta.example") for org in (acme, other_tenant)] == [
            "secret",
            None,
        ]
        assert await read.connections.client_secret(acme, connection.id, "https://thief.example") is None, "it belongs to its issuer"
        keys = [await read.connection_keys.of_connection(org, connection.id, NOW) for org in (acme, other_tenant)]
        assert keys == [{CertificateState.ACTIVE: key}, {}]
        certificates = [await read.connection_keys.certificates(org, connection.id) for org in (acme, other_tenant)]
        assert certificates == [[CERTIFICATE], []]
        people = [(await read.connection_identities.page(org, connection.id, Page(1, 10))).items for org in (acme, other_tenant)]
        assert [[(each.user_id, each.subject) for each in some] for some in people] == [[(user.id, "1")], []]


@pytest.mark.parametrize("table", ["connection_keys", "connection_certificates", "connection_identities", "connection_groups"])
async def test_no_row_can_name_a_connection_of_another_organization(
    storage: Postgres, pool: Pool, other_tenant: UUID, connection: OrganizationConnection, table: str
) -> None:
    user = await add(storage, account())
    group = new_id()
    await run_sql(
        pool,
        """
        insert into groups (id, org_id, name, name_key, created_at, updated_at, members_changed_at)
        values (%s, %s, 'Staff', 'staff', now(), now(), now())""",
        group,
        other_tenant,
    )
    org, id_ = other_tenant, connection.id
    key = await new_certificate(NOW)

    async def insert(tx: Transaction) -> None:
        if table == "connection_keys":
            await tx.connection_keys.add(org, id_, key, CertificateState.ACTIVE)
        elif table == "connection_certificates":
            await tx.connection_keys.add_certificate(org, id_, CERTIFICATE)
        elif table == "connection_identities":
            await tx.connection_identities.add(
                ConnectionIdentity(org_id=org, connection_id=id_, user_id=user.id, subject="1", email=None, linked_at=NOW, last_used_at=NOW)
            )
        else:
            await tx.connections.add_group(
                ConnectionGroup(id=new_id(), org_id=org, connection_id=id_, value=None, group_id=group, mapped_by=user.id, mapped_at=NOW)
            )

    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        await within(storage, insert)


async def test_a_key_is_replaced_with_an_overlap(storage: Postgres, acme: UUID, connection: OrganizationConnection) -> None:
    active, following = [await new_certificate(NOW) for _ in range(2)]
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.connection_keys.add(acme, connection.id, active, CertificateState.ACTIVE)
        await tx.connection_keys.add(acme, connection.id, following, CertificateState.NEXT)
        await tx.connection_keys.move(acme, connection.id, CertificateState.ACTIVE, CertificateState.PREVIOUS, NOW)
        await tx.connection_keys.move(acme, connection.id, CertificateState.NEXT, CertificateState.ACTIVE, NOW)
    kept_until = NOW + PREVIOUS_KEPT
    async with storage.reading() as read:
        before = await read.connection_keys.of_connection(acme, connection.id, kept_until - timedelta(microseconds=1))
        assert before == {CertificateState.ACTIVE: following, CertificateState.PREVIOUS: replace(active, kept_until=kept_until)}
        assert await read.connection_keys.of_connection(acme, connection.id, kept_until) == {CertificateState.ACTIVE: following}


async def test_a_connection_knows_a_subject_and_an_account_once(
    storage: Postgres, pool: Pool, acme: UUID, connection: OrganizationConnection
) -> None:
    user, eve = await add(storage, account()), await add(storage, account(EVE))
    known = ConnectionIdentity(
        org_id=acme, connection_id=connection.id, user_id=user.id, subject="1", email=None, linked_at=NOW, last_used_at=NOW
    )
    async with storage.transaction(by=SYSTEM) as tx:
        assert await tx.connection_identities.add(known)
        assert not await tx.connection_identities.add(replace(known, user_id=eve.id))
        assert not await tx.connection_identities.add(replace(known, subject="2"))
        signs_in = [("1", user.id, ADA), ("1", user.id, None), ("1", eve.id, EVE), ("2", user.id, EVE)]
        uses = [
            await tx.connection_identities.use(acme, connection.id, subject, user_id, email, NOW + days * DAY)
            for days, (subject, user_id, email) in enumerate(signs_in, 1)
        ]
        assert uses == [False, False, None, None]
    for stop in ("update connections set state = 'inactive'", "update organizations set status = 'suspended'"):
        await run_sql(pool, f"{stop} where {'org_id' if 'connections' in stop else 'id'} = %s", acme)
        async with storage.transaction(by=SYSTEM) as tx:
            assert await tx.connection_identities.use(acme, connection.id, "1", user.id, EVE, NOW + 9 * DAY) is None
    async with storage.reading() as read:
        [used] = (await read.connection_identities.page(acme, connection.id, Page(1, 10))).items
        assert (used.provider_email, used.last_used_at) == (ADA, NOW + 2 * DAY)
    assert await within(storage, lambda tx: tx.connection_identities.remove(acme, connection.id, user.id))
    async with storage.reading() as read:
        assert (await read.connection_identities.page(acme, connection.id, Page(1, 10))).items == []


async def test_a_deleted_connection_takes_its_rows_along(
    storage: Postgres, pool: Pool, acme: UUID, connection: OrganizationConnection
) -> None:
    user, other = await add(storage, account()), await add_connection(storage, acme, "entra")
    for each in (connection, other):
        async with storage.transaction(by=SYSTEM) as tx:
            await tx.connection_keys.add(acme, each.id, await new_certificate(NOW), CertificateState.ACTIVE)
            await tx.connection_keys.add_certificate(acme, each.id, CERTIFICATE)
            identity = ConnectionIdentity(
                org_id=acme, connection_id=each.id, user_id=user.id, subject="1", email=None, linked_at=NOW, last_used_at=NOW
            )
            await tx.connection_identities.add(identity)
    await within(storage, lambda tx: tx.connections.remove(acme, connection.id))
    assert await all_of(storage, acme) == [other]
    tables = ("connection_keys", "connection_certificates", "connection_identities")
    counts = "select " + ", ".join(f"(select count(*) from {table})" for table in tables)  # noqa: S608
    assert await run_sql(pool, counts) == [(1, 1, 1)]
