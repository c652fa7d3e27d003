"""What a user allowed an application to see (OpenID Connect Core section 3.1.2.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.authentication.openid_rules import OpenIdGrant, Scope, scopes_of

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from core.kernel.principals import ServiceContext
    from ports.storage import Transaction


def consent_scopes(grant: OpenIdGrant) -> frozenset[Scope]:
    """Return the scopes that the user agrees to: the granted ones, and those of claims that were asked for by name."""
    return frozenset(grant.scope) | scopes_of((*grant.claims.id_token, *grant.claims.userinfo))


async def remember(tx: Transaction, service: ServiceContext, user_id: UUID, grant: OpenIdGrant, now: datetime) -> None:
    """Remember that the user agreed to this grant. The account is locked."""
    await tx.consents.add(service.org_id, service.id, user_id, consent_scopes(grant), now)
