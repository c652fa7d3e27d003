"""Accounts at identity providers that users have linked, and the tokens of these providers.

An identity is linked in one context: the account itself, or a service. With their own token, the user sees the
identities of the account. An application's token sees and changes only the identities in its service (security J-9). On
our pages, an identity of any context signs the user in to the whole account. Therefore a user who unlinks a provider in
the account also unlinks it in all services.
"""

from dataclasses import replace
from datetime import datetime
from uuid import UUID

from core.accounts import events, factor_changes, security_notices, ways_in
from core.accounts.model.email_queue import EmailKind
from core.applications.model.users import LinkedIdentity
from core.authentication import oauth_credentials
from core.authentication.flow.model import FlowTarget, ProviderRequest, new_flow
from core.authentication.model import identities
from core.kernel import connections, errors, values
from core.kernel.callers import Person
from ports import Ports
from ports.storage import Transaction


async def list_linked(ports: Ports, caller: Person) -> list[LinkedIdentity]:
    """Return the identities of the caller's context, oldest link first. Their addresses are missing if the caller may not see them."""
    async with ports.storage.reading() as read:
        linked = await read.identities.list_of_user(caller.user_id, _context_of(caller))
    return linked if caller.sees("email") else [replace(identity, email=None) for identity in linked]


async def list_sign_in_providers(ports: Ports, caller: Person) -> list[connections.ConnectionSlug]:
    """Return the providers that the caller can sign in with, linked in the account or in any service."""
    async with ports.storage.reading() as read:
        return await read.identities.list_providers(caller.user_id)


async def start_link(ports: Ports, caller: Person, provider_name: str) -> str:
    """Return a ticket that lets the caller's browser link an account at this provider.

    The ticket works only in that browser (security O-6).

    The edge refuses applications.

    Raises: ProviderUnknown if the provider does not exist or the operator has not set it up; AlreadyLinked, RecoveryRequired, AccountGone,
    SessionEnded.
    """
    provider = identities.parse_provider(provider_name)
    if provider not in await oauth_credentials.list_platform_providers(ports):
        raise identities.ProviderUnknown
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        await factor_changes.lock_account_to_add(ports, tx, caller, now)
        if provider in {identity.provider for identity in await tx.identities.list_of_user(caller.user_id, _context_of(caller))}:
            raise identities.AlreadyLinked
        return await add_ticket(ports, tx, caller, identities.LinkedPlace(provider), now)


async def add_ticket(
    ports: Ports, tx: Transaction, caller: Person, place: identities.LinkedPlace, now: datetime, *, after: str | None = None
) -> str:
    """Store a ticket for the caller's session and browser at this place's identity provider, and return its secret.

    Without `after`, it links the account there. With it, the user signs in again as at this place, and continues at this path.
    """
    secret, expires_at = values.new_secret(), now + ports.policy.fresh_sign_in_ttl
    flow = new_flow(
        now,
        FlowTarget.LINK if after is None else FlowTarget.REAUTHENTICATION,
        after or "",
        secret_hash=values.digest(secret),
        org_id=place.org_id,
        service_id=place.service_id,
        session_id=caller.session_id,
        first_session_id=await tx.session_sign_ins.browser_of(caller.session_id, caller.user_id),
        expires_at=expires_at,
    )
    provider_request = ProviderRequest(
        flow=flow,
        connection_id=connections.PLATFORM_CONNECTIONS[place.provider][0],
        user_id=caller.user_id,
        begun_at=now,
        expires_at=expires_at,
    )
    if not await tx.flows.start(provider_request):
        raise errors.SessionEnded
    return secret


async def unlink(ports: Ports, caller: Person, provider_name: str) -> None:
    """Unlink the caller's identities at this provider, and delete their tokens.

    For a user, this covers the account and all services, it ends the user's pending sign-ins, and it is
    mailed with an undo link (`undo`).
    For an application, it covers only its service. The last identity of a context cannot be
    unlinked if the user has no usable password, because they could not sign in again.
    """
    provider, now = identities.parse_provider(provider_name), ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        # With the account locked, the second concurrent request sees what the first request did.
        account = await factor_changes.lock_account(ports, tx, caller, now)
        linked = {identity.provider for identity in await tx.identities.list_of_user(account.id, _context_of(caller))}
        known = linked if caller.service else await tx.identities.list_providers(account.id)
        if provider not in known:
            raise identities.NotLinked
        if not await ways_in.remaining(ports, tx, account, service_id=_context_of(caller), without=provider):
            raise identities.LastSignInMethod
        if caller.service is not None:  # they meet only policies of its organization, which may lose them
            if not await tx.identities.remove(account.id, caller.service.id, provider):
                raise identities.NotLinked  # the service was deleted during this request
            tx.record(events.identity_unlinked(account.id, provider, caller.service))
            return
        await factor_changes.require_left(ports, tx, account, account, now, without=[provider])
        # An identity that is still linked in a service would sign the user in to the account on our
        # pages, so unlink it everywhere.
        notice_id = await security_notices.notify(
            tx, account, EmailKind.IDENTITY_UNLINKED, now, session_id=caller.session_id, detail=provider
        )
        service_ids = await tx.identities.remove_everywhere(account.id, provider, notice_id) or errors.refuse(identities.NotLinked)
        await tx.flows.forget_user(account.id)
        tx.record(events.identity_unlinked(account.id, provider, None))
        for service_id in service_ids:
            service = None if service_id is None else await tx.services.context_by_id(service_id)
            if service is not None:
                tx.record(events.identity_unlinked(account.id, provider, service))


async def load_provider_token(ports: Ports, caller: Person, provider_name: str) -> identities.ProviderToken:
    """Return the provider's access token for the caller, in the caller's context. An expired token is renewed.

    Raises: ProviderUnknown, NoProviderToken, ProviderFailed; RenewalInProgress if another request renews the token.
    """
    provider, now = identities.parse_provider(provider_name), ports.clock.now()
    token = await _load_token(ports, caller, provider)
    if token.expires_at is None or token.expires_at > now:
        return token
    if not token.can_be_renewed:
        raise errors.ProviderFailed(f"a token of {provider} has expired and cannot be renewed")
    # Only one process may renew the token: many providers accept a refresh token only once, and
    # treat a second use as theft.
    async with ports.storage.transaction(by=caller) as tx:
        renewal = await tx.identities.claim_renewal(caller.user_id, _context_of(caller), provider, now, now + identities.RENEWAL_TTL)
    if renewal is None:
        raise identities.RenewalInProgress(1)
    org_id = None if caller.service is None else caller.service.org_id
    try:
        try:
            connection, client = await oauth_credentials.load_client(ports, provider, org_id, _context_of(caller))
        except identities.ProviderUnknown:
            raise errors.ProviderFailed(f"a token of {provider} has expired, and its client credentials were removed") from None
        renewed = await ports.openid_providers.refresh(connection, client, renewal.refresh_token)
    except errors.Outage:
        async with ports.storage.transaction(by=caller) as tx:
            await tx.identities.release_renewal(renewal)
        raise
    async with ports.storage.transaction(by=caller) as tx:
        await tx.identities.complete_renewal(renewal, renewed)  # has no effect if a sign-in stored newer tokens
    return await _load_token(ports, caller, provider)


async def _load_token(ports: Ports, caller: Person, provider: connections.ConnectionSlug) -> identities.ProviderToken:
    async with ports.storage.reading() as read:
        return await read.identities.load_provider_token(caller.user_id, _context_of(caller), provider) or errors.refuse(
            identities.NoProviderToken
        )


def _context_of(caller: Person) -> UUID | None:
    return None if caller.service is None else caller.service.id
