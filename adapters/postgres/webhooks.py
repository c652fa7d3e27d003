"""Webhooks; their secrets are sealed."""

from datetime import datetime
from typing import ClassVar, Final
from uuid import UUID

from adapters.postgres.statements import Row, SealingRepository
from core.webhooks import NameTaken, Webhook
from ports.crypto import Place

# In the order in which `to_webhook` reads them.
COLUMNS: Final = "id, org_id, name, url, events, is_active, created_at, updated_at"


def place(webhook_id: UUID) -> Place:
    """Of the secret, and of the one before it, which was this one."""
    return Place("webhooks", str(webhook_id), "secret")


def to_webhook(row: Row) -> Webhook:
    return Webhook(
        id=row[0],
        org_id=row[1],
        name=row[2],
        url=row[3],
        events=tuple(row[4]),
        is_active=row[5],
        created_at=row[6],
        updated_at=row[7],
    )


class Webhooks(SealingRepository):
    """ports.storage.Webhooks."""

    constraints: ClassVar = {"webhooks_name_key": NameTaken}

    async def of_org(self, org_id: UUID) -> list[Webhook]:
        return await self._all(
            to_webhook, f"select {COLUMNS} from webhooks where org_id = %(org_id)s order by created_at, id", org_id=org_id
        )

    async def by_id(self, org_id: UUID, webhook_id: UUID) -> Webhook | None:
        return await self._one(
            to_webhook,
            f"select {COLUMNS} from webhooks where org_id = %(org_id)s and id = %(webhook_id)s",
            org_id=org_id,
            webhook_id=webhook_id,
        )

    async def add(self, webhook: Webhook, secret: str) -> None:
        await self._run(
            """
            insert into webhooks (id, org_id, name, url, events, is_active, secret, created_at, updated_at)
            values (%(id)s, %(org_id)s, %(name)s, %(url)s, %(events)s, %(is_active)s, %(secret)s, %(created_at)s, %(updated_at)s)""",
            id=webhook.id,
            org_id=webhook.org_id,
            name=webhook.name,
            url=webhook.url,
            events=list(webhook.events),
            is_active=webhook.is_active,
            secret=self._vault.seal(secret.encode(), place(webhook.id)),
            created_at=webhook.created_at,
            updated_at=webhook.updated_at,
        )

    async def save(self, webhook: Webhook) -> None:
        # What waited for it to be active may be due.
        await self._run(
            """
            with saved as (
                update webhooks set
                    name = %(name)s, url = %(url)s, events = %(events)s, is_active = %(is_active)s, updated_at = %(updated_at)s
                where org_id = %(org_id)s and id = %(id)s
                returning is_active)
            select pg_notify('webhooks', '') from saved where is_active""",
            id=webhook.id,
            org_id=webhook.org_id,
            name=webhook.name,
            url=webhook.url,
            events=list(webhook.events),
            is_active=webhook.is_active,
            updated_at=webhook.updated_at,
        )

    async def rotate(self, webhook: Webhook, secret: str, previous_until: datetime) -> None:
        await self._run(
            """
            update webhooks set
                previous_secret = secret, previous_until = %(previous_until)s, secret = %(secret)s, updated_at = %(updated_at)s
            where org_id = %(org_id)s and id = %(id)s""",
            id=webhook.id,
            org_id=webhook.org_id,
            secret=self._vault.seal(secret.encode(), place(webhook.id)),
            previous_until=previous_until,
            updated_at=webhook.updated_at,
        )

    async def delete(self, org_id: UUID, webhook_id: UUID, now: datetime) -> None:
        await self._run(
            """
            with gone as (delete from webhooks where org_id = %(org_id)s and id = %(webhook_id)s returning id)
            insert into deleted_webhooks (id, deleted_at) select id, %(now)s from gone""",
            org_id=org_id,
            webhook_id=webhook_id,
            now=now,
        )
