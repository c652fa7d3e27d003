"""Storage for used client assertions."""

from datetime import datetime
from uuid import UUID

from adapters.postgres.engine.statements import Repository
from adapters.postgres.kernel.rate_limits import charge_parameters, charge_sql
from core.kernel.rate_limits import Bucket


class UsedAssertions(Repository):
    """Implements `ports.storage.federation.oauth.UsedAssertions`."""

    async def use(
        self, issuer_id: UUID, jti_hash: bytes, expires_at: datetime, client_id: UUID, buckets: tuple[Bucket, ...], now: datetime
    ) -> float | None:
        charged = f", charged as ({charge_sql(len(buckets), 'from used')}) select wait from charged" if buckets else "select 0 from used"
        return await self._one(
            lambda row: float(row[0]),
            f"""
            with used as (
                insert into client_assertions (client_id, jti_hash, expires_at) values (%(issuer_id)s, %(jti_hash)s, %(expires_at)s)
                on conflict do nothing returning client_id)
            {charged}""",
            issuer_id=issuer_id,
            jti_hash=jti_hash,
            expires_at=expires_at,
            **charge_parameters(f"client {client_id}", buckets, now),
        )
