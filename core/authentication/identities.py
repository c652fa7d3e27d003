"""Accounts at external identity providers that people have linked to their own, and what tokens came with them (identity.md section 4.2;
decisions, points 73 to 75 and 77).

An identity is linked in one context: in the account itself, or in a service. A token of the person's own sees the first, one that an
application has sees and changes those of its service (security.md J-9). Whoever comes with any of them has the whole account in their
browser, so what a person unlinks in the account is unlinked at all services as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.accounts.own_account import lock_own_account
from core.authentication import events, oauth_credentials
from core.authentication.oauth_credentials_rules import ProviderUnknown, parse_provider
from core.kernel.errors import Outage, ProviderFailed, SessionEnded, refuse
from core.kernel.values import digest, new_secret

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from core.applications.end_users_rules import LinkedIdentity
    from core.kernel.principals import Person
    from core.kernel.providers import Provider
    from ports import Ports
    from ports.storage import Transaction
from core.authentication.identities_rules import (
    RENEWAL_TTL,
    TICKET_TTL,
    AlreadyLinked,
    RenewalInProgress,
    LastSignInMethod,
    LinkTicket,
    NoProviderToken,
    NotLinked,
    ProviderToken,
    PendingIdentity,
)


async def list_linked(ports: Ports, caller: Person) -> list[LinkedIdentity]:
    """Those of the caller's context, the longest linked first."""
    async with ports.storage.reading() as read:
        return await read.identities.list_of_user(caller.user_id, _context(caller))


async def list_sign_in_providers(ports: Ports, caller: Person) -> list[Provider]:
    """The providers through which the caller can sign in: linked in the account, or at services alone."""
    async with ports.storage.reading() as read:
        return await read.identities.list_providers(caller.user_id)


async def start_link(ports: Ports, caller: Person, provider_name: str) -> str:
    """The ticket with which the caller's browser can go to the provider and come back with an account to link.

    Never for an application (security.md O-6), which the edge sees to. Raises ProviderUnknown, also for one that the operator has not set
    up; AlreadyLinked, AccountGone, SessionEnded.
    """
    provider = parse_provider(provider_name)
    if provider not in oauth_credentials.platform_providers(ports):
        raise ProviderUnknown
    now, ticket = ports.clock.now(), new_secret()
    async with ports.storage.transaction(by=caller) as tx:
        await lock_own_account(tx, caller, now)
        if provider in {identity.provider for identity in await tx.identities.list_of_user(caller.user_id, _context(caller))}:
            raise AlreadyLinked
        kept = LinkTicket(digest(ticket), caller.user_id, caller.session_id, _context(caller), provider, now, now + TICKET_TTL)
        if not await tx.identities.add_ticket(kept):
            raise SessionEnded
    return ticket


async def unlink(ports: Ports, caller: Person, provider_name: str) -> None:
    """Unlink what the caller has linked at the provider, and forget its tokens: in the account and at every service, also what is linked at
    services alone; for an application, at its service. Nobody who waits for a second factor comes in by what the account has unlinked.

    With neither a password nor another identity of the same context the caller could not sign in there again, so that one stays.
    Raises ProviderUnknown, NotLinked, LastSignInMethod, AccountGone, SessionEnded.
    """
    provider, now = parse_provider(provider_name), ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        # Locked, so that of two that are unlinked at once the second knows of the first.
        account = await lock_own_account(tx, caller, now)
        here = {identity.provider for identity in await tx.identities.list_of_user(account.id, _context(caller))}
        if provider not in (here if caller.service else await tx.identities.list_providers(account.id)):
            raise NotLinked
        # A password opens nothing while the address is not verified (security.md A-4).
        has_password = account.password_hash is not None and account.email_verified_at is not None
        if not has_password and here <= {provider}:
            raise LastSignInMethod
        if caller.service is not None:
            if not await tx.identities.remove(account.id, caller.service.id, provider):
                raise NotLinked  # any more: its service was deleted at this moment
            tx.record(events.identity_unlinked(account.id, provider, caller.service))
            return
        # One that stayed at some service would go on opening the account: whoever signs in there has the session of a browser.
        removed = await tx.identities.remove_everywhere(account.id, provider) or refuse(NotLinked)
        await tx.pre_auths.remove_all(account.id)
        tx.record(events.identity_unlinked(account.id, provider, None))
        for service_id in removed:
            service = None if service_id is None else await tx.services.context_by_id(service_id)
            if service is not None:
                tx.record(events.identity_unlinked(account.id, provider, service))


async def load_provider_token(ports: Ports, caller: Person, provider_name: str) -> ProviderToken:
    """What the provider gave for the caller, in the caller's context; renewed if it has expired.

    Raises ProviderUnknown; NoProviderToken; ProviderFailed; and RenewalInProgress where another request is about to renew it.
    """
    provider, now = parse_provider(provider_name), ports.clock.now()
    token = await _token(ports, caller, provider)
    if token.expires_at is None or token.expires_at > now:
        return token
    if not token.can_be_renewed:
        raise ProviderFailed(f"a token of {provider.value} has expired and cannot be renewed")
    # One at a time, whatever process it is in: many providers take a refresh token once, and would take two for a theft.
    async with ports.storage.transaction(by=caller) as tx:
        claim = await tx.identities.claim_renewal(caller.user_id, _context(caller), provider, now, now + RENEWAL_TTL)
    if claim is None:
        raise RenewalInProgress(1)
    org_id = None if caller.service is None else caller.service.org_id
    try:
        try:
            client = await oauth_credentials.load_client(ports, provider, org_id, _context(caller))
        except ProviderUnknown:
            raise ProviderFailed(f"a token of {provider.value} has expired, and nobody is known there any more to renew it") from None
        renewed = await ports.providers.refresh(provider, client, claim.refresh_token)
    except Outage:
        async with ports.storage.transaction(by=caller) as tx:
            await tx.identities.release_renewal(claim)
        raise
    async with ports.storage.transaction(by=caller) as tx:
        await tx.identities.complete_renewal(claim, renewed)  # unless a sign-in has brought newer ones meanwhile
    return await _token(ports, caller, provider)


async def _token(ports: Ports, caller: Person, provider: Provider) -> ProviderToken:
    async with ports.storage.reading() as read:
        return await read.identities.load_provider_token(caller.user_id, _context(caller), provider) or refuse(NoProviderToken)


async def link_pending(tx: Transaction, waiting: PendingIdentity, user_id: UUID, now: datetime) -> bool:
    """Link to a locked account what has waited for the second factor, the subject being locked since before that; where it was linked here
    meanwhile, keep its tokens. False where it opens this account no more: it is somebody else's by now, or was unlinked where it was known.
    """
    known = await tx.identities.match(waiting.provider, waiting.issuer, waiting.subject, waiting.service_id)
    if waiting.known_elsewhere if known is None else known.user_id != user_id:
        return False
    if known is not None and known.is_here:
        await tx.identities.update_tokens(known.id, waiting.email, waiting.tokens)
    else:
        await tx.identities.add(waiting.of(user_id, now))
    return True


def _context(caller: Person) -> UUID | None:
    return None if caller.service is None else caller.service.id
