"""Consents: the scopes that users share with applications (OpenID Connect Core section 3.1.2.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from core.accounts.own_account import lock_own_account
from core.authentication.openid_rules import OpenIdGrant, Scope, in_order, scopes_of
from core.federation.oauth import events
from core.federation.oauth.consents_rules import ConsentNotFound
from core.kernel.errors import refuse

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from core.applications.services_rules import Service
    from core.federation.oauth.consents_rules import Consent
    from core.kernel.principals import Person
    from ports import Ports
    from ports.storage import Reading, Transaction

MAX_LISTED: Final = 200


def consent_scopes(grant: OpenIdGrant) -> frozenset[Scope]:
    """Return the scopes that the user agrees to: those of the grant, and those of the claims that it names."""
    return frozenset(grant.scope) | scopes_of((*grant.claims.id_token, *grant.claims.userinfo))


async def agreed_scopes(read: Reading | Transaction, service: Service, user_id: UUID, *, counts_trust: bool = True) -> frozenset[Scope]:
    """Return the scopes that the user need not be asked for.

    These are the scopes that they agreed to. Confirmed members of the organization of a trusted
    application are asked for none, if trust counts.
    """
    if counts_trust and service.is_trusted and await read.end_users.is_confirmed_member(service.org_id, user_id):
        return frozenset(Scope)
    return await read.consents.scope(service.org_id, service.id, user_id)


async def remember(tx: Transaction, service: Service, user_id: UUID, grant: OpenIdGrant, now: datetime) -> None:
    """Store the consent of the user to this grant, and record an event if a scope is new. The caller has locked the account."""
    scope = in_order(consent_scopes(grant))
    if await tx.consents.add(service.org_id, service.id, user_id, scope, now):
        tx.record(events.consent_granted(service, user_id, scope))


async def list_own(ports: Ports, caller: Person) -> list[Consent]:
    """Return the caller's consents, by organization and application, at most MAX_LISTED."""
    async with ports.storage.reading() as read:
        return await read.consents.of_user(caller.user_id, MAX_LISTED)


async def find_own(ports: Ports, caller: Person, service_id: UUID) -> Consent:
    """Return the caller's consent to one application. Raises: ConsentNotFound."""
    async with ports.storage.reading() as read:
        return await read.consents.by_service(caller.user_id, service_id) or refuse(ConsentNotFound)


async def withdraw(ports: Ports, caller: Person, service_id: UUID) -> None:
    """Withdraw the caller's consent to an application.

    The user's OpenID Connect sessions there end, with codes and device approvals that would start
    new ones. At the next sign-in, the application asks again.

    Raises: ConsentNotFound; the errors of `lock_own_account`.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        await lock_own_account(tx, caller, now)
        consent = await tx.consents.remove(caller.user_id, service_id) or refuse(ConsentNotFound)
        await tx.sessions.end_openid(consent.org_id, service_id, caller.user_id, now)
        tx.record(events.consent_withdrawn(consent, caller.user_id))
