"""SCIM tokens, with which an organization's directory provisions its people (identity.md sections 2.6 and 4.6; decisions, point 141;
security.md C-1 and C-8)."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

from core.kernel.errors import OrganizationNotActive, refuse
from core.kernel.principals import Capability, OrganizationStatus, ScimClient
from core.kernel.values import digest, new_id
from core.provisioning import events
from core.tenancy import organizations

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from uuid import UUID

    from core.kernel.principals import Member
    from core.tenancy.organizations_rules import Organization
    from ports import Ports
    from ports.storage import Transaction
from core.provisioning.tokens_rules import (
    LONGEST,
    MOST,
    START,
    ScimTokenExpiryPast,
    ScimToken,
    ScimTokenInvalid,
    ScimTokenNotFound,
    TooManyScimTokens,
    new_token,
)

# What members do with them


async def create(ports: Ports, caller: Member, name: str, expires_at: datetime | None) -> tuple[ScimToken, str]:
    """A token of the organization, and its text, which nobody gets to see again.

    Raises ScimTokenExpiryPast, TooManyScimTokens, and what organizations.lock_organization_for raises.
    """
    now = ports.clock.now()
    if expires_at is not None and expires_at <= now:
        raise ScimTokenExpiryPast
    text, prefix = new_token()
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.lock_organization_for(tx, caller, Capability.INTEGRATIONS_MANAGE)
        if len(await tx.scim_tokens.of_org(organization.id)) >= MOST:
            raise TooManyScimTokens
        token = ScimToken(
            id=new_id(),
            org_id=organization.id,
            name=name,
            prefix=prefix,
            expires_at=expires_at,
            created_by=caller.user_id,
            created_at=now,
        )
        await tx.scim_tokens.add(token, digest(text))
        tx.record(events.scim_token_created(token))
    return token, text


async def listed(ports: Ports, caller: Member) -> list[ScimToken]:
    """And tokens of the organization, expired ones too, the oldest first."""
    async with ports.storage.reading() as read:
        return await read.scim_tokens.of_org(caller.acts_in.id)


async def revoke(ports: Ports, caller: Member, token_id: UUID) -> None:
    """Remove a token, whose next request is refused. Raises ScimTokenNotFound, and what organizations.lock_organization_for raises."""
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.lock_organization_for(tx, caller, Capability.INTEGRATIONS_MANAGE)
        token = await tx.scim_tokens.by_id(organization.id, token_id) or refuse(ScimTokenNotFound)
        await tx.scim_tokens.remove(organization.id, token.id)
        tx.record(events.scim_token_revoked(token))


# What tokens do


async def authenticate(ports: Ports, token: str, *, address: str | None, agent: str | None) -> ScimClient:
    """Who presents this token. It is looked up and compared as an API key is (security.md K-1).

    Raises ScimTokenInvalid, OrganizationNotActive.
    """
    if len(token) > LONGEST or not token.startswith(START):
        raise ScimTokenInvalid
    token_hash = digest(token)
    async with ports.storage.reading() as read:
        standing = await read.scim_tokens.standing(token_hash, ports.clock.now())
    if standing is None or not hmac.compare_digest(standing.token_hash, token_hash):
        raise ScimTokenInvalid
    if standing.status is not OrganizationStatus.ACTIVE:
        raise OrganizationNotActive
    return ScimClient(token_id=standing.token_id, org_id=standing.org_id, org_slug=standing.org_slug, address=address, agent=agent)


def lock_organization_deferred(tx: Transaction, caller: ScimClient, now: datetime) -> Callable[[], Organization]:
    """With this begins every change that a directory makes: with the next statement the organization is locked, and it is known whether the
    token still opens it (security.md Z-5). What this gives is to be called after that one, which may refuse by itself before: it returns
    the organization, or raises ScimTokenInvalid, OrganizationNotActive.

    Whoever revokes the token holds the organization, too. And who provision wait for it, so it is held for as few exchanges as can be.
    """
    locked = tx.organizations.lock_deferred(caller.org_id)
    is_live = tx.scim_tokens.is_live_deferred(caller.org_id, caller.token_id, now)

    def entered() -> Organization:
        organization = locked.value
        if organization is None or not is_live.value:
            raise ScimTokenInvalid
        if organization.status is not OrganizationStatus.ACTIVE:
            raise OrganizationNotActive
        return organization

    return entered
