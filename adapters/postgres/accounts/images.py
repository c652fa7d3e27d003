"""Uploaded images."""

from collections.abc import Collection
from datetime import datetime
from uuid import UUID

from adapters.postgres.engine.statements import Repository
from core.kernel import images
from core.kernel.images import SMALL


class Images(Repository):
    """Implements `ports.storage.accounts.accounts.Images`."""

    async def content(self, address: images.ImageAddress) -> tuple[bytes, bool] | None:
        sql = f"select {'small' if address.size == SMALL else 'large'}, user_id is not null from images where key = %(key)s"
        return await self._one(lambda row: (bytes(row[0]), row[1]), sql, key=address.key)

    async def of_user(self, user_id: UUID) -> bytes | None:
        return await self._one(lambda row: bytes(row[0]), "select large from images where user_id = %(user_id)s", user_id=user_id)

    async def keys(self, owner_ids: Collection[UUID]) -> dict[UUID, str]:
        sql = "select owner_id, key from images where owner_id = any(%(owner_ids)s)"
        return dict(await self._all(lambda row: (row[0], row[1]), sql, owner_ids=list(owner_ids)))

    async def put(self, owner: images.ImageOwner, image: images.NewImage, now: datetime) -> None:
        sql = """
            insert into images (user_id, org_id, service_id, connection_id, key, small, large, created_at)
            values (%(user_id)s, %(org_id)s, %(service_id)s, %(connection_id)s, %(key)s, %(small)s, %(large)s, %(now)s)
            on conflict (owner_id) do update
                set key = excluded.key, small = excluded.small, large = excluded.large, created_at = excluded.created_at"""
        await self._run(
            sql,
            user_id=owner.user_id,
            org_id=owner.org_id,
            service_id=owner.service_id,
            connection_id=owner.connection_id,
            key=image.key,
            small=image.small,
            large=image.large,
            now=now,
        )

    async def remove(self, owner: images.ImageOwner) -> bool:
        sql = """
            delete from images
            where owner_id = coalesce(%(user_id)s::uuid, %(service_id)s::uuid, %(connection_id)s::uuid, %(org_id)s::uuid)
              and org_id is not distinct from %(org_id)s::uuid"""
        removed = await self._run(
            sql, user_id=owner.user_id, org_id=owner.org_id, service_id=owner.service_id, connection_id=owner.connection_id
        )
        return removed > 0
