"""Personal access tokens: users create them for their programs, and programs call our API with them.

A token is backed by a session, so everything that ends all sessions of its user ends it too: a password reset, for
example, or a deactivation. A token has the rights that the user has when a request arrives, narrowed by its scopes
(security J-5, J-7).
"""

import hmac
from datetime import timedelta
from typing import NoReturn
from uuid import UUID

from core.accounts import security_notices
from core.accounts.factors import own_proofs
from core.accounts.model import email_queue
from core.accounts.model.profiles import OwnProfile
from core.accounts.own_account import lock_own_account
from core.applications.model.api_keys import LAST_USED_PRECISION
from core.authentication import admissions, events
from core.authentication.model import tokens
from core.authentication.service_access import Opened
from core.kernel import access, api_scopes, callers, roles, values
from core.kernel.causes import Caller
from core.kernel.errors import refuse
from core.kernel.judgement import PolicyPath
from core.kernel.page_paths import PERSONAL_TOKENS_PATH
from core.kernel.sign_in_age import SignInAge
from core.tenancy import organizations
from core.tenancy.model import organizations as organizations_model
from core.tenancy.model.members import require_power_over
from core.tenancy.model.organizations import Organization
from ports import Ports
from ports.storage import Transaction

# Users manage their own tokens


async def create(ports: Ports, caller: callers.Person, request: tokens.NewPersonalToken) -> tuple[tokens.PersonalToken, str]:
    """Create a token and return it with its secret, which cannot be read again.

    The user must have signed in recently, with all their factors, and gets an email. For an organization that requires a connection
    of the user, they must have signed in there as recently. Creating a token for an organization confirms the user's membership in it.

    Raises: SignInNotRecent, PasskeyNeeded, AddressNotVerified, TooManyPersonalTokens, PersonalTokenWithoutScope,
    ApiScopeUnknown, PersonalTokenScopeRefused, PersonalTokensOff; the errors of `lock_own_account`,
    `access.require_capability` and `admissions.require_in_transaction`.
    """
    now = ports.clock.now()
    scopes = api_scopes.parse_scopes(request.scopes) or refuse(tokens.PersonalTokenWithoutScope)
    secret, prefix = tokens.new_personal_token(ports.policy.key_environment)
    async with ports.storage.transaction(by=caller) as tx:
        # Lock order: the organization, the membership, then the account. A transaction that ends the
        # membership locks them too before it ends the sessions in the organization.
        organization, rights = (None, None) if request.org_slug is None else await _lock_membership(tx, caller, request.org_slug)
        account = await lock_own_account(tx, caller, now)
        if account.email_verified_at is None:
            raise access.AddressNotVerified
        await own_proofs.require_strongest_proof(ports, tx, caller, account, now)
        if organization is not None:
            await admissions.require_in_transaction(ports, tx, PolicyPath.API, Opened(organization.id), caller, SignInAge.FRESH)
        available = available_scopes(rights)
        if refused := api_scopes.in_order(scopes.difference(available)):
            raise tokens.PersonalTokenScopeRefused(refused, available)
        if await tx.personal_tokens.count_live(account.id, now) >= tokens.MAX_LIVE_TOKENS:
            raise tokens.TooManyPersonalTokens
        token = tokens.PersonalToken(
            id=values.new_id(),
            user_id=account.id,
            name=request.name,
            prefix=prefix,
            scopes=api_scopes.in_order(scopes),
            org_id=None if organization is None else organization.id,
            org_slug=None if organization is None else organization.slug,
            org_name=None if organization is None else organization.name,
            created_at=now,
            expires_at=now + timedelta(days=request.expires_in_days),
            last_used_at=None,
        )
        await tx.personal_tokens.add(token, values.digest(secret), caller)
        if organization is not None:
            await tx.members.confirm(organization.id, account.id, now)
        kind, session_id = email_queue.EmailKind.PERSONAL_TOKEN_CREATED, caller.session_id
        await security_notices.notify(tx, account, kind, now, session_id=session_id, secret=_to_notice(token))
        tx.record(events.personal_token_created(token))
    return token, secret


def available_scopes(rights: roles.Rights | None) -> tuple[api_scopes.ApiScope, ...]:
    """Return the scopes that a token can have: in an organization, scopes for these rights; for the own account, if `rights` is None."""
    if rights is not None:
        return access.allowed_scopes(rights, None)
    return api_scopes.ApiScope.ACCOUNT_READ, api_scopes.ApiScope.ACCOUNT_WRITE


async def list_own(ports: Ports, caller: callers.Person) -> list[tokens.PersonalToken]:
    """Return the caller's live tokens, at most MAX_LIVE_TOKENS, newest first."""
    async with ports.storage.reading() as read:
        return await read.personal_tokens.of_user(caller.user_id, ports.clock.now())


async def revoke_own(ports: Ports, caller: callers.Person, token_id: UUID) -> None:
    """End the caller's token with this id. Its next request is refused."""
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        account = await lock_own_account(tx, caller, now)
        token = await tx.personal_tokens.end(account.id, token_id, now) or refuse(tokens.PersonalTokenNotFound)
        tx.record(events.personal_token_revoked(token))


async def _lock_membership(tx: Transaction, caller: callers.Person, slug: str) -> tuple[Organization, roles.Rights]:
    # Always the same refusal: the body must not reveal which organizations exist (security B-5).
    org_id = await tx.organizations.id_by_slug(slug) or refuse(access.NotOfThisOrganization)
    organization = await tx.organizations.lock(org_id) or refuse(access.NotOfThisOrganization)
    membership = await tx.members.lock(org_id, caller.user_id) or refuse(access.NotOfThisOrganization)
    context = access.require_capability(
        organizations_model.to_membership_state(organization, membership), roles.Capability.ORGANIZATION_VIEW
    )
    if not organization.personal_tokens:
        raise tokens.PersonalTokensOff
    return organization, context.rights


def _to_notice(token: tokens.PersonalToken) -> email_queue.SecretNotice:
    return email_queue.SecretNotice(
        kind=email_queue.NoticedSecret.PERSONAL_TOKEN,
        name=token.name,
        label=token.prefix,
        holder=None,
        organization=token.org_name,
        expires_at=token.expires_at,
        path=PERSONAL_TOKENS_PATH,
    )


# Admins see and end the tokens that act in their organization


async def list_in_organization(
    ports: Ports, caller: callers.OrganizationCaller, page: values.Page
) -> values.PageResult[tokens.MemberPersonalToken]:
    """Return a page of the live tokens that act in the organization, newest first."""
    async with ports.storage.reading() as read:
        return await read.personal_tokens.page(caller.acts_in.id, page, ports.clock.now())


async def revoke_in_organization(ports: Ports, caller: callers.OrganizationCaller, token_id: UUID) -> None:
    """End a token that acts in the organization. Its next request is refused."""
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        organization, authority = await organizations.lock_authority(tx, caller, roles.Capability.MEMBERS_MANAGE)
        user_id = await tx.personal_tokens.user_in_organization(organization.id, token_id, now) or refuse(tokens.PersonalTokenNotFound)
        if (membership := await tx.members.lock(organization.id, user_id)) is not None:
            require_power_over(authority, membership)
        # Lock order: the account before its sessions.
        await tx.accounts.lock(user_id) or refuse(tokens.PersonalTokenNotFound)
        token = await tx.personal_tokens.end(user_id, token_id, now) or refuse(tokens.PersonalTokenNotFound)
        tx.record(events.personal_token_revoked(token))


# Programs use tokens


async def authenticate(ports: Ports, caller: Caller, token: str, requirement: access.Requirement) -> callers.Person:
    """Return the user of this token, on a route about their own account."""
    record = await _load(ports, token, None)
    access.check_personal_token(record.token, requirement, None)
    return _to_person(caller, record)


async def authenticate_with_profile(
    ports: Ports, caller: Caller, token: str, requirement: access.Requirement
) -> tuple[callers.Person, OwnProfile]:
    """Return the user of this token, and their profile."""
    user = await authenticate(ports, caller, token, requirement)
    async with ports.storage.reading() as read:
        return user, await read.accounts.own_profile(user.user_id, ports.clock.now()) or refuse(tokens.PersonalTokenInvalid)


async def authenticate_member(ports: Ports, caller: Caller, token: str, slug: str, requirement: access.Requirement) -> callers.Member:
    """Return this token's user, acting in the organization `slug`, if the token may call a route with this requirement."""
    record = await _load(ports, token, slug)
    state = record.session.acts_in or refuse(access.OrganizationNotFound)
    if record.token.org_id != state.id:
        raise access.PersonalTokenElsewhere
    if not record.is_allowed:
        raise tokens.PersonalTokensOff
    user = _to_person(caller, record)
    assert requirement.capability is not None, "the requirement of an organization's route has a capability"
    try:
        organization = access.require_capability(state, requirement.capability, inactive=requirement.inactive)
    except access.RoleInsufficient as refusal:
        refusal.caller = callers.to_acting_member(user, state)
        raise
    access.check_personal_token(record.token, requirement, organization.id)
    await admissions.require_in(ports, PolicyPath.PERSONAL_TOKEN, user, organization, state.policy)
    return callers.to_member(user, organization)


async def refuse_on_platform(ports: Ports, token: str) -> NoReturn:
    """Refuse a token on a route of the platform. Raises: PersonalTokenInvalid, or else NotForPersonalTokens."""
    await _load(ports, token, None)
    raise access.NotForPersonalTokens


async def _load(ports: Ports, token: str, slug: str | None) -> tokens.PersonalTokenRecord:
    """Return the live token with this text, and record its use.

    A single statement reads all facts for the authorization (security J-4, J-5).

    The lookup uses the SHA-256 of the whole token. The result is compared again in constant time
    (security K-1).
    """
    if not tokens.is_well_formed(token):
        raise tokens.PersonalTokenInvalid
    now, token_hash = ports.clock.now(), values.digest(token)
    async with ports.storage.reading() as read:
        record = await read.personal_tokens.load_record(token_hash, slug, now)
    if record is None or not hmac.compare_digest(record.token_hash, token_hash):
        raise tokens.PersonalTokenInvalid
    if record.last_used_at is None or record.last_used_at <= now - LAST_USED_PRECISION:
        async with ports.storage.autocommit() as statements:
            await statements.personal_tokens.record_use(record.token.id, now, now - LAST_USED_PRECISION)
    return record


def _to_person(caller: Caller, record: tokens.PersonalTokenRecord) -> callers.Person:
    session = record.session
    return callers.Person(
        user_id=session.user_id,
        email=session.email,
        email_verified=session.email_verified_at is not None,
        session_id=record.token.id,
        is_platform_owner=session.is_platform_owner,
        personal_token=record.token,
        address=caller.address,
        agent=caller.agent,
    )
