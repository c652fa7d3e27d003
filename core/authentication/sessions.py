"""Sessions: authenticate requests, refresh tokens, and end sessions. `session_start` and `login` start them."""

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from core.accounts.model.profiles import OwnProfile
from core.authentication import admissions
from core.authentication.admissions import UserSession
from core.authentication.model import sessions
from core.authentication.model.dpop import ProofUse
from core.authentication.service_access import Opened
from core.authentication.tokens import dpop, issuing, signing_keys
from core.kernel import access, callers, errors, values
from core.kernel.causes import Caller
from core.kernel.claims import Accepts, Claims
from core.kernel.judgement import PolicyPath
from core.kernel.proofs import end_of, in_session, is_fresh, joined, restriction_of
from core.kernel.roles import Capability
from core.kernel.sign_in_policy.silent_sign_ins import without_renewal
from core.kernel.sign_in_policy.steps import Step
from core.tenancy.model import organizations
from core.tenancy.model.organizations import Membership
from ports import Ports
from ports.storage import Transaction


async def load_person(
    ports: Ports, caller: Caller, claims: Claims, proof: ProofUse | None, *, allow_former_users: bool = False
) -> callers.Person:
    """Return the user of an access token with these claims.

    A single statement reads all facts for the authorization (security J-4, J-5).

    The statement also uses up the DPoP proof of a bound token. `allow_former_users` accepts users who
    have left the organization or the service of the token.
    """
    now = ports.clock.now()
    async with dpop.reading(ports, proof) as read:
        if claims.client_id is None:
            context = await read.session_contexts.load(claims.session_id, claims.user_id, claims.org_id, now)
        else:
            context = await read.session_contexts.load_of_application(claims.client_id, claims.session_id, claims.user_id, now)
    return access.to_person(caller, claims, context, allow_former_users=allow_former_users)


async def load_person_with_profile(
    ports: Ports, caller: Caller, claims: Claims, proof: ProofUse | None
) -> tuple[callers.Person, OwnProfile]:
    """Return the user with these access token claims, and their profile, by a single statement."""
    now = ports.clock.now()
    async with dpop.reading(ports, proof) as read:
        context, profile = await read.session_contexts.load_with_profile(
            claims.client_id, claims.session_id, claims.user_id, claims.org_id, now
        ) or errors.refuse(errors.SessionEnded)
    user = access.to_person(caller, claims, context)
    return user, profile.seen_by(user)


async def load_member(
    ports: Ports, caller: Caller, claims: Claims, proof: ProofUse | None, slug: str, requirement: access.Requirement
) -> callers.Member:
    """Return the user with these access token claims, acting in the organization `slug` with the required capability.

    A single statement reads all facts here too. The organization of the token is only context. The member's first
    request in an organization confirms the membership. Until then the organization has no control over the account.
    """
    assert requirement.capability is not None, "the requirement of an organization's route has a capability"
    if claims.client_id is not None:  # an application's token never gives a capability, in any organization (security J-9)
        await load_person(ports, caller, claims, proof)
        raise access.NotForApplications
    now = ports.clock.now()
    async with dpop.reading(ports, proof) as read:
        context = await read.session_contexts.load_in(slug, claims.session_id, claims.user_id, claims.org_id, now)
    user = access.to_person(caller, claims, context, allow_former_users=True)
    acts_in = context.acts_in if context is not None else None
    # Before the membership: the provider that signed the user in must not learn about the user's further organizations.
    access.require_reach(user, None if acts_in is None else acts_in.id)
    try:
        organization = access.require_capability(acts_in, requirement.capability, inactive=requirement.inactive)
    except access.RoleInsufficient as refusal:
        refusal.caller = _confirmed_member(user, claims, acts_in)
        raise
    if user.impersonated_in not in (None, organization.id):
        raise access.ImpersonatedElsewhere
    if claims.org == organization.slug and claims.org_id != organization.id:
        raise access.NotAMember  # the token names an organization that had this slug before (security J-6)
    if acts_in is not None and requirement.asks_policy:
        await admissions.require_in(ports, PolicyPath.API, user, organization, acts_in.policy)
    if acts_in is not None and not acts_in.confirmed and user.impersonator_id is None:
        async with ports.storage.autocommit() as statements:
            await statements.members.confirm(organization.id, user.user_id, now)
    has_policy = requirement.asks_policy and acts_in is not None and acts_in.policy is not None
    return callers.to_member(user, organization, has_sign_in_policy=has_policy)


def _confirmed_member(user: callers.Person, claims: Claims, state: callers.MembershipState | None) -> callers.Member | None:
    """Return the user as a member of the organization, or None if this token says nothing about it, or the membership is not confirmed.

    The role may not allow any action.
    """
    if state is None or state.role is None or not state.confirmed or user.impersonated_in not in (None, state.id):
        return None
    if claims.org == state.slug and claims.org_id != state.id:  # the token names an earlier organization
        return None
    return callers.to_acting_member(user, state)


def new_session(ports: Ports, start: sessions.SessionStart, now: datetime) -> sessions.Session:
    """Return a session that starts now."""
    latest = now + ports.policy.session_absolute_ttl
    ends_at = min(filter(None, (latest, start.ends_by, end_of(start.proofs))))
    lifetime = issuing.limited_lifetime(ports.policy.refresh_token_ttl, start.service.refresh_token_seconds if start.service else None)
    return sessions.Session(
        id=start.id,
        user_id=start.user_id,
        created_at=now,
        expires_at=min(now + lifetime, ends_at),
        ends_at=ends_at,
        address=start.caller.address,
        agent=start.caller.agent,
        service=start.service,
        device_id=start.device_id,
        proofs=start.proofs,
        grant=start.grant,
        browser_session_id=start.browser_session_id,
        openid=start.openid,
        key_thumbprint=start.key_thumbprint,
        request_id=start.caller.request_id,
        risk_is_high=start.risk_is_high,
    )


async def refresh(
    ports: Ports,
    caller: Caller,
    refresh_token: str,
    presenter: sessions.Presenter = sessions.UNNAMED_PRESENTER,
    scope: Collection[str] | None = None,
) -> sessions.TokenPair:
    """Exchange a refresh token for a new pair. The token can be used once (security S-1, S-2, S-3).

    A second use of a token ends the session, because the token may be stolen. There is an exception: during a short
    grace period, the current token's predecessor is refused without ending the session, because two tabs may refresh at
    once. If an application has bound tokens only, its tokens are not rotated, because they are useless without its key
    or its credentials (FAPI 2.0 section 5.3.2.1).

    A confidential application that got its first token for an authorization code must send its client secret. A token
    that is bound to a key needs a proof with that key, and the new access token is bound to the proof's key. A
    presenter that may not use the token does not use it up. `scope` narrows the scopes in these tokens: scopes that
    were not granted are left out.

    Raises: RefreshTokenInvalid, RefreshTokenNotYours, RefreshTokenBound, RefreshTokenReused,
    OrganizationNotActive, MembershipEnded, RefreshNeedsEnrolment, RefreshNeedsSignIn.
    """
    now = ports.clock.now()
    old_hash, successor = values.digest(refresh_token), values.new_secret()
    async with ports.storage.autocommit() as statements:
        rotated = await statements.refresh_tokens.rotate(
            old_hash, values.digest(successor), now, now + ports.policy.refresh_token_ttl, presenter
        )
    if rotated is None:
        await _raise_unless_policy_is_met(ports, caller, old_hash, now, presenter)
        async with ports.storage.autocommit() as statements:
            expires_at = now + ports.policy.refresh_token_ttl
            rotated = await statements.refresh_tokens.rotate(old_hash, values.digest(successor), now, expires_at, presenter)
        if rotated is None:
            raise sessions.RefreshTokenInvalid
    subject = replace(
        rotated.subject,
        openid=sessions.OpenIdSubject.narrowed(rotated.openid, scope, rotated.facts),
        key_thumbprint=None if presenter.key is None else presenter.key.thumbprint,
    )
    return issuing.issue_tokens(ports, subject, refresh_token if rotated.keeps_refresh_token else successor, now)


async def _raise_unless_policy_is_met(
    ports: Ports, caller: Caller, token_hash: bytes, now: datetime, presenter: sessions.Presenter
) -> None:
    """Raise why the token was not rotated.

    Return if its session only lacked a pass for the sign-in policy, and has a pass now.

    If the token was used before, its session ends. So does a session of an application that is too old for the policy.
    """
    async with ports.storage.transaction(by=caller) as tx:
        token = await tx.refresh_tokens.explain(token_hash, now, presenter)
        refusal = _refusal_of(token, now - ports.policy.refresh_grace)
        if token is not None and isinstance(refusal, sessions.RefreshTokenReused):
            await tx.sessions.end(token.session_id, now)
        if token is not None and token.org_id is not None and refusal is None:
            refusal = await _judge(ports, tx, token, token.org_id, now)
    if refusal is not None:
        raise refusal


async def _judge(ports: Ports, tx: Transaction, token: sessions.RefreshTokenState, org_id: UUID, now: datetime) -> errors.Refusal | None:
    """Ask the sign-in policy about the session of a token. If it is allowed, it gets a pass."""
    opened = Opened(org_id, token.service_id)
    admission = await admissions.judge_in(ports, tx, PolicyPath.REFRESH, opened, UserSession(token.user_id, token.session_id))
    if admission.is_allowed:
        await admission.save_pass(tx, token.session_id, now)
    elif admission.step is Step.SIGN_IN and token.service_id is not None and admission.decision.max_age is not None:
        await tx.sessions.end(token.session_id, now)  # an application has no way to make its session younger
    return admission.refresh_refusal(ports)


def _refusal_of(token: sessions.RefreshTokenState | None, grace_start: datetime) -> errors.Refusal | None:
    """Return why the token was not rotated, or None if only the sign-in policy can be the reason."""
    if token is None or not token.session_is_live:
        return sessions.RefreshTokenInvalid()
    if not token.fits:
        return sessions.RefreshTokenNotYours()
    if token.rotated_at is not None:  # counts without the key too: the first user may have bound the session to their own key
        is_race = token.is_previous and token.rotated_at >= grace_start
        return sessions.RefreshTokenInvalid() if is_race else sessions.RefreshTokenReused()
    if not token.has_key:
        return sessions.RefreshTokenBound()
    if token.service_id is not None and not token.may_use_service:
        return sessions.RefreshTokenInvalid()
    if token.service_id is None and token.org_id is not None and token.role is None:
        return sessions.MembershipEnded()
    if token.organization_status not in (None, callers.OrganizationStatus.ACTIVE):
        return errors.OrganizationNotActive()
    return sessions.RefreshTokenInvalid() if token.policy_is_met else None


async def revoke(ports: Ports, caller: Caller, token: str, presenter: sessions.Presenter) -> bool | None:
    """End the session of a refresh or access token if the presenter may use the token (RFC 7009 section 2).

    Return whether it may, or None if the token has no live session.

    Raises: TokenNotRevocable for the token of a program, which has no session.
    """
    try:
        claims = await signing_keys.read_token(ports, token, accepts=Accepts.RESOURCES)
    except (errors.TokenExpired, errors.TokenInvalid, errors.WrongToken):  # an invalid token is no error (RFC 7009 section 2.2)
        session_id = None
    else:
        session_id = claims.session_id if isinstance(claims, Claims) else errors.refuse(sessions.TokenNotRevocable)
    async with ports.storage.transaction(by=caller) as tx:
        return await tx.refresh_tokens.revoke(session_id, values.digest(token), presenter, ports.clock.now())


async def select_organization(ports: Ports, caller: callers.Member) -> tuple[Membership, sessions.TokenPair]:
    """Make the organization that the caller acts in the context of their session, and return tokens that say so.

    The current refresh token is used up. The session keeps its absolute end and its impersonator, and no login is
    recorded (security S-3, I-3). The organization's row is not locked, because its members would have to wait. The lock
    on the membership is enough: a transaction that removes the membership takes the same lock before it ends the
    sessions in this organization. Every request checks whether the organization is suspended.

    Raises: SessionEnded; Limited after too many lost races.
    """
    now, refresh_token = ports.clock.now(), values.new_secret()
    expires_at = now + ports.policy.refresh_token_ttl
    async with ports.storage.transaction(by=caller) as tx:
        membership = await tx.members.lock(caller.acts_in.id, caller.user_id)
        organization = await tx.organizations.by_id(caller.acts_in.id) or errors.refuse(access.OrganizationNotFound)
        access.require_capability(organizations.to_membership_state(organization, membership), Capability.ORGANIZATION_VIEW)
        assert membership is not None, "require_capability refuses users who are not members"
        for _ in range(sessions.MAX_LOST_RACES):
            ends_at = await tx.refresh_tokens.select_organization(
                caller.session_id, organization.id, values.digest(refresh_token), now, expires_at
            )
            if ends_at is not None:
                break
            # A concurrent refresh replaced the token first, so try again with the newer token; or
            # the session has ended.
            if await tx.session_contexts.load(caller.session_id, caller.user_id, None, now) is None:
                raise errors.SessionEnded
        else:
            raise errors.Limited(1)
    subject = sessions.TokenSubject(
        session_id=caller.session_id,
        user_id=caller.user_id,
        email=caller.email,
        email_verified=caller.email_verified,
        ends_at=ends_at,
        org_id=organization.id,
        org_slug=organization.slug,
        impersonator_id=caller.impersonator_id,
        key_thumbprint=caller.key_thumbprint,
    )
    return membership, issuing.issue_tokens(ports, subject, refresh_token, now)


async def list_own(ports: Ports, caller: callers.Person) -> values.PageResult[sessions.LiveSession]:
    """Return the caller's newest live sessions, at most MAX_LISTED_SESSIONS, and their total number."""
    async with ports.storage.reading() as read:
        return await read.sessions.list_live(caller.user_id, sessions.MAX_LISTED_SESSIONS, ports.clock.now())


async def end_own(ports: Ports, caller: callers.Person, session_id: UUID) -> bool:
    """End the caller's session with this id, also an impersonation. Return False if the caller has no such session, or it has ended."""
    async with ports.storage.transaction(by=caller) as tx:
        await tx.accounts.lock(caller.user_id)
        return await tx.sessions.end_one(caller.user_id, session_id, ports.clock.now())


async def end_others(ports: Ports, caller: callers.Person) -> None:
    """End all the caller's sessions except the present session."""
    async with ports.storage.transaction(by=caller) as tx:
        await tx.accounts.lock(caller.user_id)
        await tx.sessions.end_others(caller.user_id, caller.session_id, ports.clock.now())


async def logout(ports: Ports, caller: callers.Person) -> None:
    """End the caller's session. Its access and refresh tokens stop working with the next request."""
    async with ports.storage.transaction(by=caller) as tx:
        await tx.sessions.end(caller.session_id, ports.clock.now())


async def end_replaced(ports: Ports, caller: Caller, cookie: str, successor: sessions.Session) -> datetime:
    """End the browser session of this cookie, because a new sign-in in this browser replaces it.

    Return when the new session ends (UTC).

    Its SAML sessions end with it: later logouts do not notify their services. If the new session has the same user, the
    applications' OpenID Connect sessions move to it. If it has a different user, they end, except sessions with offline
    access.

    If the same user signs in at an organization's connection, the new session keeps the account's own proofs. If the
    user signs in with their own proofs, it keeps the connection's proof. If the old session has own first factors, a
    sign-in at a connection also keeps the old session's times, which never move (security S-3). Any other sign-in keeps
    the own proofs that were made by different methods in the last few minutes (security A-12).

    If the account has a password, a provider that may not have asked the user makes no session newer (security A-12).
    """
    async with ports.storage.transaction(by=caller) as tx:
        now = ports.clock.now()
        old = await tx.sessions.replace_in_browser(values.digest(cookie), successor.id, now)
        if old is None:
            return successor.expires_at
        account = None if is_fresh(in_session(successor.proofs)) else await tx.accounts.by_id(successor.user_id)
        is_silent = account is not None and account.signs_in_by_password
        new = without_renewal(old.proofs, successor.proofs) if is_silent else successor.proofs
        proofs = joined(old.proofs, old.ends_at, new, successor.ends_at, now - ports.policy.fresh_sign_in_ttl)
        if proofs is None and not is_silent:
            return successor.expires_at
        is_opened = proofs is not None and restriction_of(new) is not None and restriction_of(proofs) is None
        kept = old if is_opened else successor
        await tx.session_sign_ins.join(successor.id, successor.user_id, proofs or new, kept.expires_at, kept.ends_at)
        return kept.expires_at
