"""What is asked of storage about webhooks."""

from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.webhooks import Webhook


class WebhooksRead(Protocol):
    """The webhooks of organizations, looked at."""

    async def of_org(self, org_id: UUID) -> list[Webhook]:
        """The oldest first."""
        ...

    async def by_id(self, org_id: UUID, webhook_id: UUID) -> Webhook | None: ...


class Webhooks(WebhooksRead, Protocol):
    """The same, changed; their secrets are sealed. The organization is locked before any of these."""

    async def add(self, webhook: Webhook, secret: str) -> None:
        """Raises core.webhooks.NameTaken."""
        ...

    async def save(self, webhook: Webhook) -> None:
        """Write what may change of it. Also wakes the dispatchers of all processes. Raises core.webhooks.NameTaken."""
        ...

    async def rotate(self, webhook: Webhook, secret: str, former_until: datetime) -> None:
        """Sign with this secret, and until then with the one that it had as well, beside those before it whose time has not come; of all
        former ones the newest core.webhooks.FORMER_SECRETS_KEPT are kept."""
        ...

    async def delete(self, org_id: UUID, webhook_id: UUID, now: datetime) -> None:
        """Its deliveries are past their use from now on."""
        ...
