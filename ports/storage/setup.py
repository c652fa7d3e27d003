"""Storage for set-up links and their proposals."""

from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.kernel.callers import SetupPart
from core.setup.model import links


class SetupLinksRead(Protocol):
    """Read access to set-up links."""

    async def of_org(self, org_id: UUID) -> list[links.SetupLink]:
        """Return the organization's links, newest first."""

    async def by_id(self, org_id: UUID, link_id: UUID) -> links.SetupLink | None: ...

    async def by_token(self, token_hash: bytes) -> links.SetupLink | None:
        """Return the link with this token, in any state, if its organization is active."""

    async def of_browser(self, browser_hash: bytes) -> links.SetupLink | None:
        """Return the link that this browser opened, in any state, if its organization is active."""

    async def proposals(self, org_id: UUID, link_id: UUID) -> dict[SetupPart, links.SetupProposal]:
        """Return the link's proposals. Raises: SealBroken."""


class SetupLinks(SetupLinksRead, Protocol):
    """Changes to set-up links. Lock order: the organization before any call, except for `save_code` and `open`."""

    async def add(self, link: links.SetupLink, token_hash: bytes) -> None: ...

    async def save_code(self, link_id: UUID, salt: bytes, code_hash: bytes, until: datetime, limit: int) -> bool:
        """Store an unopened link's new code in place of the earlier code, and return whether fewer than `limit` were sent."""

    async def open(self, link: links.SetupLink, browser_hash: bytes) -> bool:
        """Bind the link to a browser until its `expires_at`, and return whether it was neither opened nor ended before."""

    async def end(self, org_id: UUID, link_id: UUID, by: links.SetupLinkEnd, now: datetime) -> links.SetupLink | None:
        """End a link that has not ended, and return it."""

    async def end_unfounded(self, org_id: UUID, now: datetime) -> list[tuple[UUID, str]]:
        """End the live links of creators who may not create links now, and delete their unapplied proposals. Return ids and names."""

    async def put_proposal(self, proposal: links.SetupProposal) -> None:
        """Store a proposal in place of the earlier proposal for its part."""

    async def remove_proposals(self, org_id: UUID, link_id: UUID) -> None:
        """Delete the proposals that no admin applied."""

    async def mark_applied(self, org_id: UUID, link_id: UUID, part: SetupPart, by: UUID, now: datetime) -> None:
        """Note that an admin applied a proposal. From now on, the proposal's token is found here no longer."""


class SetupLinksAutocommit(Protocol):
    """Statements that commit by themselves."""

    async def count_attempt(self, link_id: UUID, limit: int, now: datetime) -> links.CountedCode | None:
        """Count an attempt at an unopened link's code, and return it, or None after `limit` attempts or without a live code."""

    async def try_token(self, token_hash: bytes, request: str, now: datetime) -> links.ProposedToken | None:
        """Return the proposal with this SCIM token, if its organization is active, and note its first request."""
