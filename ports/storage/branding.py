"""What is asked of storage about designs of organizations."""

from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.branding import Branding as Chosen
from core.branding import Design
from core.one_time_tokens import Purpose


class BrandingRead(Protocol):
    """What organizations have chosen for their mails and pages, looked at."""

    async def of(self, org_id: UUID) -> Chosen | None: ...

    async def design(self, org_id: UUID) -> Design | None:
        """Of this organization, if it is active."""
        ...

    async def design_of_link(self, token_hash: bytes, purpose: Purpose) -> Design | None:
        """Of the organization that the mail with this token speaks for, if it is active; whether the token is good is another question."""
        ...


class Branding(BrandingRead, Protocol):
    """The same, changed. The organization is locked before `put`."""

    async def active(self, slug: str) -> UUID | None:
        """The organization that a mail may name: the active one of this slug."""
        ...

    async def put(self, org_id: UUID, chosen: Chosen, now: datetime) -> None: ...
