"""What is asked of storage about mail servers of organizations."""

from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.smtp import MailServer, SmtpSettings


class SmtpRead(Protocol):
    """The mail servers of organizations, looked at."""

    async def settings(self, org_id: UUID) -> SmtpSettings | None: ...

    async def server(self, org_id: UUID) -> MailServer | None:
        """With its password. Raises SealBroken."""
        ...


class Smtp(SmtpRead, Protocol):
    """The mail servers of organizations, changed; their passwords are sealed. The organization is locked before any of these."""

    async def put(self, server: MailServer, now: datetime) -> None:
        """In place of the one that was there, if one was."""
        ...

    async def remove(self, org_id: UUID) -> SmtpSettings | None:
        """What was there."""
        ...
