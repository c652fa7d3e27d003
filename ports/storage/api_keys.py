"""What is asked of storage about API keys."""

from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.api_keys import ApiKey, KeyStanding
from core.values import Listed


class ApiKeysRead(Protocol):
    """API keys, looked at; they are kept as SHA-256."""

    async def standing(self, key_hash: bytes, now: datetime) -> KeyStanding | None:
        """Everything a request with this key is judged by, or None unless there is such a key and it has not expired."""
        ...

    async def is_live(self, service_id: UUID, key_id: UUID, now: datetime) -> bool:
        """Whether the service has this key and it has not expired."""
        ...

    async def page(self, org_id: UUID, service_id: UUID, limit: int, offset: int) -> Listed[ApiKey]:
        """Those of the service, expired ones too, the oldest first."""
        ...

    async def by_id(self, org_id: UUID, service_id: UUID, key_id: UUID) -> ApiKey | None: ...


class ApiKeys(ApiKeysRead, Protocol):
    """API keys, changed. The organization is locked before any of these."""

    async def add(self, key: ApiKey, key_hash: bytes) -> None: ...
    async def remove(self, org_id: UUID, service_id: UUID, key_id: UUID) -> None: ...


class KeyUse(Protocol):
    async def used(self, key_id: UUID, now: datetime, before: datetime) -> None:
        """The key was used now, unless it is known to have been used since `before`."""
        ...
