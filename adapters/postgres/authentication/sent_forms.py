"""Storage of the one-time keys of forms that were sent."""

from datetime import datetime

from adapters.postgres.engine.statements import Repository


class SentForms(Repository):
    """Implements `ports.storage.authentication.sign_ins.SentForms`."""

    async def contains(self, form_hash: bytes) -> bool:
        return await self._exists("select 1 from sent_forms where form_hash = %(form_hash)s", form_hash=form_hash)

    async def add(self, form_hash: bytes, expires_at: datetime) -> bool:
        # It waits for a transaction with the same key, and then adds nothing, unless that one was rolled back.
        sql = """
                insert into sent_forms (form_hash, expires_at) values (%(form_hash)s, %(expires_at)s)
                on conflict do nothing returning true"""
        return await self._one(lambda row: row[0], sql, form_hash=form_hash, expires_at=expires_at) is not None
