"""Sessions: whose they are, staying signed in, signing out (identity.md sections 3, 4.9 and 5; decisions, part B). They begin in
core/login.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.authentication import signing_keys
from core.kernel import principals
from core.kernel.errors import Limited, OrganizationNotActive, Refusal, SessionEnded, TokenExpired, TokenInvalid, refuse
from core.kernel.principals import Capability, Claims, NotForApplications, OrganizationNotFound, OrganizationStatus, Person
from core.kernel.values import Email, Listed, digest, new_id, new_secret
from core.tenancy import organizations_rules

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from core.billing.subscriptions_rules import Entitlement
    from core.kernel.principals import Caller, Member, ServiceContext
    from core.tenancy.organizations_rules import Membership
    from ports import Ports
from core.authentication.sessions_rules import (
    LOST_RACES,
    NOTHING,
    SHOWN,
    SOMEBODY,
    Grant,
    LiveSession,
    MembershipEnded,
    Presented,
    Presenter,
    RefreshTokenInvalid,
    RefreshTokenNotYours,
    RefreshTokenReused,
    Session,
    TokenPair,
)


async def authenticate(ports: Ports, token: str, *, address: str | None, agent: str | None, anywhere: bool = False) -> Person:
    """Who presents this access token; one statement reads everything the request will be judged by (security.md J-4, J-5).

    Raises TokenInvalid, TokenExpired, SessionEnded, NotAMember, NotAnEndUser.
    """
    claims = await signing_keys.read_token(ports, token)
    async with ports.storage.reading() as read:
        if claims.client_id is None:
            standing = await read.sessions.standing(claims.session_id, claims.user_id, claims.org_id, ports.clock.now())
        else:
            standing = await read.sessions.standing_with(claims.client_id, claims.session_id, claims.user_id, ports.clock.now())
    return principals.person(claims, standing, address=address, agent=agent, anywhere=anywhere)


async def authenticate_in(
    ports: Ports, token: str, slug: str, capability: Capability, *, inactive: bool, address: str | None, agent: str | None
) -> Member:
    """Who presents this access token, acting in the organization of that slug with this capability; again one statement reads it all.

    Any other organization that the token names is mere context (decisions, point 54). Being here confirms the membership, the first
    time (the terms of security.md). Raises what authenticate and access.require raise, and NotForApplications.
    """
    claims = await signing_keys.read_token(ports, token)
    if claims.client_id is not None:  # an application's token never qualifies, wherever it points to (security.md J-9)
        await authenticate(ports, token, address=address, agent=agent)
        raise NotForApplications
    now = ports.clock.now()
    async with ports.storage.reading() as read:
        standing = await read.sessions.standing_in(slug, claims.session_id, claims.user_id, claims.org_id, now)
    found = principals.person(claims, standing, address=address, agent=agent, anywhere=True)
    acts_in = standing.acts_in if standing is not None else None
    organization = principals.require(acts_in, capability, inactive=inactive)
    if claims.org == organization.slug and claims.org_id != organization.id:
        raise principals.NotAMember  # of the organization that had this slug before (security.md J-6)
    if acts_in is not None and not acts_in.confirmed and found.impersonator_id is None:
        async with ports.storage.counting() as at_once:
            await at_once.members.confirm(organization.id, found.user_id, now)
    return principals.member(found, organization)


def new_session(
    ports: Ports,
    user_id: UUID,
    caller: Caller,
    service: ServiceContext | None,
    now: datetime,
    *,
    id_: UUID | None = None,
    device_id: UUID | None = None,
    provider: str | None = None,
    grant: Grant | None = None,
) -> Session:
    """A session that begins now, of a service if one is given."""
    ends_at = now + ports.policy.session_absolute_ttl
    return Session(
        id=id_ or new_id(),
        user_id=user_id,
        created_at=now,
        expires_at=min(now + ports.policy.refresh_token_ttl, ends_at),
        ends_at=ends_at,
        address=caller.address,
        agent=caller.agent,
        service=service,
        device_id=device_id,
        provider=provider,
        grant=grant,
    )


def pair(
    ports: Ports,
    session_id: UUID,
    user_id: UUID,
    email: Email,
    *,
    verified: bool,
    ends_at: datetime,
    now: datetime,
    refresh_token: str,
    org: str = "",
    org_id: UUID | None = None,
    service: ServiceContext | None = None,
    entitlement: Entitlement = NOTHING,
    impersonator_id: UUID | None = None,
) -> TokenPair:
    """The pair to hand out; an access token never outlives the session's absolute end.

    With `service` it is one of that service, and says what the person has of it (decisions, point 37). Nothing is read here: the refresh
    token is the only one that there is by now, and must not get lost.
    """
    expires_at = min(now + ports.policy.access_token_ttl, ends_at)
    claims = Claims(
        user_id=user_id,
        session_id=session_id,
        email=email,
        email_verified=verified,
        token_id=new_id(),
        issued_at=now,
        expires_at=expires_at,
        org=service.org_slug if service else org,
        org_id=service.org_id if service else org_id,
        service=service.slug if service else "",
        client_id=service.client_id if service else None,
        plan=entitlement.plan,
        subscription_status=entitlement.status,
        features=entitlement.features,
        impersonator_id=impersonator_id,
    )
    ports.metrics.token_issued()
    return TokenPair(ports.tokens.sign(claims), refresh_token, int(expires_at.timestamp()) - int(now.timestamp()))


async def refresh(ports: Ports, caller: Caller, refresh_token: str, by: Presenter = SOMEBODY) -> TokenPair:
    """A new pair for a refresh token, which is used up by it (decisions, points 39 and 40; security.md S-1 to S-3).

    A token that was used before ends the whole session, because one of its two holders is a thief; only the token right before the
    current one, within a short grace, is merely refused: two tabs raced. What a code gave to an application with a client secret is renewed
    with that alone (point 92), and in no other hands is a token used up. Raises RefreshTokenInvalid, RefreshTokenNotYours,
    RefreshTokenReused, OrganizationNotActive, MembershipEnded.
    """
    now = ports.clock.now()
    presented_hash, successor = digest(refresh_token), new_secret()
    async with ports.storage.counting() as at_once:
        rotated = await at_once.sessions.rotate(presented_hash, digest(successor), now, now + ports.policy.refresh_token_ttl, by)
    if rotated is None:
        raise await _refusal(ports, caller, presented_hash, now, by)
    return pair(
        ports,
        rotated.session_id,
        rotated.user_id,
        rotated.email,
        verified=rotated.email_verified_at is not None,
        ends_at=rotated.ends_at,
        now=now,
        refresh_token=successor,
        org=rotated.org_slug or "",
        org_id=rotated.org_id,
        service=rotated.service,
        entitlement=rotated.entitlement,
        impersonator_id=rotated.impersonator_id,
    )


async def _refusal(ports: Ports, caller: Caller, presented_hash: bytes, now: datetime, by: Presenter) -> Refusal:
    """Why the token was not rotated; if it was used before, its session is ended by the time the answer is known."""
    async with ports.storage.transaction(by=caller) as tx:
        presented = await tx.sessions.presented(presented_hash, now, by)
        refusal = _why_not(presented, now - ports.policy.refresh_grace)
        if presented is not None and isinstance(refusal, RefreshTokenReused):
            await tx.sessions.end(presented.session_id, now)
    return refusal


def _why_not(token: Presented | None, grace_began: datetime) -> Refusal:
    if token is None or not token.session_is_live:
        return RefreshTokenInvalid()
    if not token.fits:
        return RefreshTokenNotYours()
    if token.rotated_at is not None:
        raced = token.is_previous and token.rotated_at >= grace_began
        return RefreshTokenInvalid() if raced else RefreshTokenReused()
    if token.service_id is not None and not token.uses_service:
        return RefreshTokenInvalid()
    if token.service_id is None and token.org_id is not None and token.role is None:
        return MembershipEnded()
    if token.organization_status not in (None, OrganizationStatus.ACTIVE):
        return OrganizationNotActive()
    return RefreshTokenInvalid()


async def revoke(ports: Ports, caller: Caller, token: str, by: Presenter) -> bool | None:
    """End the session of a token, refresh or access token, if it is the presenter's to use; whether it is, None where there was none (RFC
    7009 section 2)."""
    try:
        session_id = (await signing_keys.read_token(ports, token)).session_id
    except (TokenExpired, TokenInvalid):
        session_id = None
    async with ports.storage.transaction(by=caller) as tx:
        return await tx.sessions.revoke(session_id, digest(token), by, ports.clock.now())


async def select(ports: Ports, caller: Member) -> tuple[Membership, TokenPair]:
    """Make the organization that the caller acts in the context of the caller's session (decisions, point 51).

    The new pair says so; the refresh token before it is used up by this. The session keeps its end and, if somebody else is behind it, its
    impersonator (security.md S-3, I-3); nobody has signed in. Raises SessionEnded, and what organizations.enter raises.

    Nothing of the organization changes, so its row is not locked, or its members would wait for each other. The membership is enough:
    whoever removes it holds it before they end the sessions of this organization. A suspension acts on every request of the session.
    """
    now, refresh_token = ports.clock.now(), new_secret()
    lasts_until = now + ports.policy.refresh_token_ttl
    async with ports.storage.transaction(by=caller) as tx:
        membership = await tx.members.lock(caller.acts_in.id, caller.user_id)
        organization = await tx.organizations.by_id(caller.acts_in.id) or refuse(OrganizationNotFound)
        principals.require(organizations_rules.standing(organization, membership), Capability.ORGANIZATION_VIEW)
        assert membership is not None, "who is no member is refused"
        for _ in range(LOST_RACES):
            ends_at = await tx.sessions.select(caller.session_id, organization.id, digest(refresh_token), now, lasts_until)
            if ends_at is not None:
                break
            # Either a refresh was faster, and there is another token to rotate out now, or the session has ended.
            if await tx.sessions.standing(caller.session_id, caller.user_id, None, now) is None:
                raise SessionEnded
        else:
            raise Limited(1)
    return membership, pair(
        ports,
        caller.session_id,
        caller.user_id,
        caller.email,
        verified=caller.email_verified,
        ends_at=ends_at,
        now=now,
        refresh_token=refresh_token,
        org=organization.slug,
        org_id=organization.id,
        impersonator_id=caller.impersonator_id,
    )


async def own(ports: Ports, caller: Person) -> Listed[LiveSession]:
    """The caller's live sessions, the newest first, SHOWN of them at most, and how many there are."""
    async with ports.storage.reading() as read:
        return await read.sessions.live_of(caller.user_id, SHOWN, ports.clock.now())


async def end_own(ports: Ports, caller: Person, session_id: UUID) -> None:
    """End one of the caller's sessions, whoever is behind it; of what is nobody's or somebody else's nothing is said, nor done."""
    async with ports.storage.transaction(by=caller) as tx:
        await tx.sessions.end_one(caller.user_id, session_id, ports.clock.now())


async def end_others(ports: Ports, caller: Person) -> None:
    """End all sessions of the caller but this one."""
    async with ports.storage.transaction(by=caller) as tx:
        await tx.sessions.end_others(caller.user_id, caller.session_id, ports.clock.now())


async def logout(ports: Ports, caller: Person) -> None:
    """End the caller's session: its access and refresh tokens stop working with the next request (decisions, point 45)."""
    async with ports.storage.transaction(by=caller) as tx:
        await tx.sessions.end(caller.session_id, ports.clock.now())
