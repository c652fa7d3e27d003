"""Webhooks. Webhook secrets are stored encrypted."""

from datetime import datetime
from typing import ClassVar, Final
from uuid import UUID

from adapters.postgres.engine.records import Record
from adapters.postgres.engine.statements import SealingRepository
from core.eventing.model import webhooks
from ports.crypto import SecretContext
from ports.signals import Signal

WEBHOOK: Final = Record(webhooks.Webhook, "w", events=tuple)
INSERT: Final = WEBHOOK.insert("webhooks", "secret")
SELECT: Final = f"select {WEBHOOK.columns} from webhooks w"


def secret_context(webhook_id: UUID) -> SecretContext:
    """Return the encryption context for the current and the former secrets."""
    return SecretContext("webhooks", str(webhook_id), "secret")


class Webhooks(SealingRepository):
    """Implements the port Webhooks."""

    constraints: ClassVar = {"webhooks_name_key": webhooks.WebhookNameTaken}

    def _sealed(self, webhook: webhooks.Webhook, secret: str) -> bytes:
        return self._vault.seal(secret.encode(), secret_context(webhook.id))

    async def of_org(self, org_id: UUID) -> list[webhooks.Webhook]:
        return await self._all(WEBHOOK.read, f"{SELECT} where w.org_id = %(org_id)s order by w.created_at, w.id", org_id=org_id)

    async def by_id(self, org_id: UUID, webhook_id: UUID) -> webhooks.Webhook | None:
        sql = f"{SELECT} where w.org_id = %(org_id)s and w.id = %(webhook_id)s"
        return await self._one(WEBHOOK.read, sql, org_id=org_id, webhook_id=webhook_id)

    async def add(self, webhook: webhooks.Webhook, secret: str) -> None:
        await self._run(INSERT, **WEBHOOK.values(webhook), secret=self._sealed(webhook, secret))

    async def save(self, webhook: webhooks.Webhook) -> None:
        # Notify the dispatchers: deliveries that waited for an inactive webhook may be due.
        sql = """
            with saved as (
                update webhooks set
                    name = %(name)s, url = %(url)s, events = %(events)s, is_active = %(is_active)s, updated_at = %(updated_at)s
                where org_id = %(org_id)s and id = %(id)s
                returning is_active)
            select pg_notify('webhooks', '') from saved where is_active"""
        await self._run(sql, **WEBHOOK.values(webhook))
        if webhook.is_active:
            self._signals.send(Signal.DELIVERIES_DUE)

    async def rotate(self, webhook: webhooks.Webhook, secret: str, former_until: datetime) -> None:
        # All parts of the statement see the rows from before it: `former` reads the secret that is
        # being replaced, and `forgotten` does not yet count it as a former secret.
        await self._run(
            """
            with former as (
                insert into former_webhook_secrets (org_id, webhook_id, secret, until)
                select org_id, id, secret, %(former_until)s from webhooks where org_id = %(org_id)s and id = %(id)s),
            forgotten as (
                delete from former_webhook_secrets where (webhook_id, position) in (
                    select webhook_id, position from former_webhook_secrets where webhook_id = %(id)s
                    order by position desc offset %(before)s))
            update webhooks set secret = %(secret)s, updated_at = %(updated_at)s where org_id = %(org_id)s and id = %(id)s""",
            id=webhook.id,
            org_id=webhook.org_id,
            secret=self._sealed(webhook, secret),
            former_until=former_until,
            before=webhooks.FORMER_SECRETS_KEPT - 1,
            updated_at=webhook.updated_at,
        )

    async def delete(self, org_id: UUID, webhook_id: UUID, now: datetime) -> None:
        sql = """
            with deleted as (delete from webhooks where org_id = %(org_id)s and id = %(webhook_id)s returning id)
            insert into deleted_webhooks (id, deleted_at) select id, %(now)s from deleted"""
        await self._run(sql, org_id=org_id, webhook_id=webhook_id, now=now)
