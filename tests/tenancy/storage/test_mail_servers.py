"""The repository for organizations' mail servers (security L-1, T-1, W-7)."""

from dataclasses import fields
from uuid import UUID

import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.kernel.values import Email, new_id
from core.tenancy.model.settings import MailServer, SmtpSettings
from ports.crypto import SealBroken
from tests.support.builders import mail_server, run_sql
from tests.support.rows import HOUR, NOW, within

PASSWORD = "s3cr3t-pa55word"


async def put(storage: Postgres, server: MailServer) -> None:
    await within(storage, lambda tx: tx.smtp.put(server, NOW))


async def server_of(storage: Postgres, org: UUID) -> MailServer | None:
    async with storage.reading() as read:
        return await read.smtp.server(org)


def without_password(server: MailServer) -> SmtpSettings:
    """Return the settings without the password."""
    return SmtpSettings(**{field.name: getattr(server, field.name) for field in fields(SmtpSettings)})


@pytest.mark.parametrize(
    "changes",
    [
        {"password": PASSWORD, "username": "ada"},
        {"from_name": None, "tls": False, "port": 25, "host": "2001:db8::25", "from_email": Email("id@acme.example")},
    ],
)
async def test_all_fields_are_stored(storage: Postgres, acme: UUID, changes: dict[str, object]) -> None:
    server = mail_server(acme, **changes)
    await put(storage, server)
    assert await server_of(storage, acme) == server
    async with storage.reading() as read:
        assert await read.smtp.settings(acme) == without_password(server)


async def test_an_organization_has_no_mail_server_at_first_and_sees_no_other(storage: Postgres, acme: UUID, other_tenant: UUID) -> None:
    await put(storage, mail_server(other_tenant))
    assert await server_of(storage, acme) is None
    async with storage.reading() as read:
        assert await read.smtp.settings(acme) is None
    assert await within(storage, lambda tx: tx.smtp.remove(acme)) is None
    assert await server_of(storage, other_tenant) == mail_server(other_tenant)


async def test_a_new_mail_server_replaces_all_fields(storage: Postgres, pool: Pool, acme: UUID) -> None:
    await put(storage, mail_server(acme, password=PASSWORD))
    other = mail_server(acme, host="other.example", from_name=None, from_email=Email("other@acme.example"), tls=False, port=2525)
    await within(storage, lambda tx: tx.smtp.put(other, NOW + HOUR))
    assert await server_of(storage, acme) == other
    assert await run_sql(pool, "select password, updated_at from smtp_settings") == [(None, NOW + HOUR)]


async def test_removing_a_mail_server_returns_it(storage: Postgres, acme: UUID, other_tenant: UUID) -> None:
    for org in (acme, other_tenant):
        await put(storage, mail_server(org, password=PASSWORD))
    assert await within(storage, lambda tx: tx.smtp.remove(acme)) == without_password(mail_server(acme, password=PASSWORD))
    assert await server_of(storage, acme) is None
    assert await server_of(storage, other_tenant) == mail_server(other_tenant, password=PASSWORD)


async def test_deleting_an_organization_deletes_its_mail_server(storage: Postgres, pool: Pool, acme: UUID) -> None:
    await put(storage, mail_server(acme))
    await run_sql(pool, "delete from organizations where id = %s", acme)
    assert await server_of(storage, acme) is None


async def test_the_password_is_encrypted_for_its_row_and_column(storage: Postgres, pool: Pool, acme: UUID, other_tenant: UUID) -> None:
    for org in (acme, other_tenant):
        await put(storage, mail_server(org, password=PASSWORD))
    passwords = dict(await run_sql(pool, "select org_id, password from smtp_settings"))
    assert PASSWORD.encode() not in passwords[acme]
    assert passwords[acme] != passwords[other_tenant]
    # It cannot be decrypted in another organization's row. All other settings can still be
    # read.
    await run_sql(pool, "update smtp_settings set password = %s where org_id = %s", passwords[acme], other_tenant)
    with pytest.raises(SealBroken):
        await server_of(storage, other_tenant)
    async with storage.reading() as read:
        assert await read.smtp.settings(other_tenant) == without_password(mail_server(other_tenant, password=PASSWORD))


def test_the_representation_omits_the_password() -> None:
    assert PASSWORD not in repr(mail_server(new_id(), password=PASSWORD))
