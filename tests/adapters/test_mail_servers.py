"""Every statement about the mail servers of organizations (decisions, point 208; security.md L-1, T-1 and W-7)."""

from dataclasses import fields
from uuid import UUID

import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.engine.storage import Postgres
from core.kernel.values import Email, new_id
from core.tenancy.mail_server_rules import MailServer, SmtpSettings
from ports.crypto import SealBroken
from tests.support.builders import mail_server, run_sql
from tests.support.rows import HOUR, NOW, within

PASSWORD = "s3cr3t-pa55word"


async def put(storage: Postgres, server: MailServer) -> None:
    await within(storage, lambda tx: tx.smtp.put(server, NOW))


async def server_of(storage: Postgres, org: UUID) -> MailServer | None:
    async with storage.reading() as read:
        return await read.smtp.server(org)


def shown(server: MailServer) -> SmtpSettings:
    """What is left without the password."""
    return SmtpSettings(**{field.name: getattr(server, field.name) for field in fields(SmtpSettings)})


@pytest.mark.parametrize(
    "changes",
    [
        {"password": PASSWORD, "username": "ada"},
        {"from_name": None, "tls": False, "port": 25, "host": "2001:db8::25", "from_email": Email("id@acme.example")},
    ],
)
async def test_every_field_comes_back(storage: Postgres, acme: UUID, changes: dict[str, object]) -> None:
    server = mail_server(acme, **changes)
    await put(storage, server)
    assert await server_of(storage, acme) == server
    async with storage.reading() as read:
        assert await read.smtp.settings(acme) == shown(server)


async def test_there_is_none_to_begin_with_and_none_of_others(storage: Postgres, acme: UUID, twin: UUID) -> None:
    await put(storage, mail_server(twin))
    assert await server_of(storage, acme) is None
    async with storage.reading() as read:
        assert await read.smtp.settings(acme) is None
    assert await within(storage, lambda tx: tx.smtp.remove(acme)) is None
    assert await server_of(storage, twin) == mail_server(twin)


async def test_another_one_takes_its_place_as_a_whole(storage: Postgres, pool: Pool, acme: UUID) -> None:
    await put(storage, mail_server(acme, password=PASSWORD))
    other = mail_server(acme, host="other.example", from_name=None, from_email=Email("other@acme.example"), tls=False, port=2525)
    await within(storage, lambda tx: tx.smtp.put(other, NOW + HOUR))
    assert await server_of(storage, acme) == other
    assert await run_sql(pool, "select password, updated_at from smtp_settings") == [(None, NOW + HOUR)]


async def test_what_is_removed_is_told_and_gone(storage: Postgres, acme: UUID, twin: UUID) -> None:
    for org in (acme, twin):
        await put(storage, mail_server(org, password=PASSWORD))
    assert await within(storage, lambda tx: tx.smtp.remove(acme)) == shown(mail_server(acme, password=PASSWORD))
    assert await server_of(storage, acme) is None
    assert await server_of(storage, twin) == mail_server(twin, password=PASSWORD)


async def test_an_organization_takes_its_server_with_it(storage: Postgres, pool: Pool, acme: UUID) -> None:
    await put(storage, mail_server(acme))
    await run_sql(pool, "delete from organizations where id = %s", acme)
    assert await server_of(storage, acme) is None


async def test_the_password_is_sealed_for_its_place(storage: Postgres, pool: Pool, acme: UUID, twin: UUID) -> None:
    for org in (acme, twin):
        await put(storage, mail_server(org, password=PASSWORD))
    stored = dict(await run_sql(pool, "select org_id, password from smtp_settings"))
    assert PASSWORD.encode() not in stored[acme]
    assert stored[acme] != stored[twin]
    # In another organization's row it opens nothing; and what is without it can be seen all the same.
    await run_sql(pool, "update smtp_settings set password = %s where org_id = %s", stored[acme], twin)
    with pytest.raises(SealBroken):
        await server_of(storage, twin)
    async with storage.reading() as read:
        assert await read.smtp.settings(twin) == shown(mail_server(twin, password=PASSWORD))


def test_a_password_is_not_shown() -> None:
    assert PASSWORD not in repr(mail_server(new_id(), password=PASSWORD))
