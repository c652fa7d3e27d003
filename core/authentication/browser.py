"""Browser sessions on our own pages, and the tokens that protect their forms (security G-2)."""

import hashlib
import hmac
from datetime import datetime
from uuid import UUID

from core.authentication import admissions
from core.kernel import access, callers, errors
from core.kernel.causes import Caller
from core.kernel.judgement import PolicyPath
from core.kernel.roles import Capability
from core.kernel.values import digest
from core.tenancy.model import organizations
from ports import Ports
from ports.storage import Reading


class FormTokenInvalid(errors.Forbidden):
    """This form has expired. Go back, reload the page, and send the form again."""


async def authenticate(ports: Ports, caller: Caller, cookie: str) -> callers.Visitor:
    """Return the user of the browser session with this cookie. Raises: SessionEnded."""
    async with ports.storage.reading() as read:
        session, context = await read.session_contexts.load_of_browser(digest(cookie), ports.clock.now()) or errors.refuse(
            errors.SessionEnded
        )
    return _to_visitor(caller, session, context)


async def authenticate_in_console(ports: Ports, caller: Caller, cookie: str) -> callers.Person:
    """Return the user of this cookie in the console: the signed-in user, or the user that they impersonate."""
    async with ports.storage.reading() as read:
        return await _load_acting_user(read, caller, cookie, ports.clock.now())


async def authenticate_member(
    ports: Ports,
    caller: Caller,
    cookie: str,
    slug: str,
    capability: Capability,
    *,
    inactive: bool = False,
    reminds: bool = False,
    asks_policy: bool = True,
) -> callers.Member:
    """Return the user from `authenticate_in_console`, acting in the organization `slug` with this capability.

    The rules in `sessions.authenticate_member` apply, with two exceptions. A request does not confirm the membership,
    because any site can link to a page. And the page of an organization does not exist for users who are not members.
    `inactive` accepts an organization that is not active. Otherwise, admins are told why it is not. `reminds` leads
    users to the page about a rule that starts later, and is for requests that can be repeated. Without `asks_policy`,
    no policy counts.

    Raises: SessionEnded, OrganizationNotFound, OwnMembershipNotConfirmed, RoleInsufficient,
    OrganizationNotActive, ImpersonatedElsewhere, OwnProofNeeded; the errors of `admissions.require`.
    """
    now = ports.clock.now()
    async with ports.storage.reading() as read:
        user = await _load_acting_user(read, caller, cookie, now)
        context = await read.session_contexts.load_in(slug, user.session_id, user.user_id, None, now) or errors.refuse(errors.SessionEnded)
    state = context.acts_in
    # Before the membership: the provider that signed the user in must not learn about the user's further organizations.
    access.require_reach(user, None if state is None else state.id)
    if state is not None and state.role is not None and not state.confirmed:
        raise access.OwnMembershipNotConfirmed
    try:
        organization = access.require_capability(state, capability, inactive=inactive)
    except access.NotOfThisOrganization:
        raise access.OrganizationNotFound from None
    except access.RoleInsufficient as refusal:
        refusal.caller = callers.to_acting_member(user, state)
        raise
    except errors.OrganizationNotActive:
        assert state is not None, "without a membership, the organization is not found"
        async with ports.storage.reading() as read:
            raise organizations.inactive_refusal(
                await read.organizations.by_id(state.id) or errors.refuse(access.OrganizationNotFound), state.rights
            ) from None
    if user.impersonated_in not in (None, organization.id):
        raise access.ImpersonatedElsewhere
    assert state is not None, "without a membership, the organization is not found"
    policy = state.policy if asks_policy else None
    admission = await admissions.require_in(ports, PolicyPath.CONSOLE, user, organization, policy)
    if reminds:
        await admission.remind(ports, user)
    return callers.to_member(user, organization, has_sign_in_policy=policy is not None)


async def explain_closed(
    ports: Ports, caller: Caller, cookie: str, refusal: organizations.ApplicationClosed
) -> errors.OrganizationNotActive:
    """Return the refusal with the reason, if the user of this browser manages the organization, or else as it is."""
    now = ports.clock.now()
    async with ports.storage.reading() as read:
        try:
            user = await _load_acting_user(read, caller, cookie, now)
        except errors.SessionEnded:
            return refusal
        context = await read.session_contexts.load_in(refusal.org_slug, user.session_id, user.user_id, None, now)
        state = None if context is None else context.acts_in
        if state is None or not state.confirmed or Capability.ORGANIZATION_MANAGE not in state.rights:
            return refusal
        organization = await read.organizations.by_id(state.id)
    if organization is None or not {user.impersonated_in, user.restricted_to} <= {None, state.id}:
        return refusal
    return organizations.inactive_refusal(organization, state.rights)


async def _load_acting_user(read: Reading, caller: Caller, cookie: str, now: datetime) -> callers.Person:
    found = await read.session_contexts.load_of_browser(digest(cookie), now) or errors.refuse(errors.SessionEnded)
    visitor = _to_visitor(caller, *found)
    impersonation = await read.impersonations.load(visitor.session_id, now) if visitor.is_platform_owner else None  # never restricted
    if impersonation is None:
        return visitor
    session_id, context = impersonation
    return callers.Person(
        user_id=context.user_id,
        email=context.email,
        email_verified=context.email_verified_at is not None,
        session_id=session_id,
        impersonator_id=context.impersonator_id,
        impersonated_in=context.impersonated_in,
        address=caller.address,
        agent=caller.agent,
        request_id=caller.request_id,
    )


def _to_visitor(caller: Caller, session: callers.BrowserSession, context: callers.SessionContext) -> callers.Visitor:
    return callers.Visitor(
        user_id=context.user_id,
        email=context.email,
        email_verified=context.email_verified_at is not None,
        session_id=session.id,
        is_platform_owner=context.is_platform_owner and context.restricted_to is None,
        restricted_to=context.restricted_to,
        mfa_missing=context.mfa_missing,
        sign_in=context.sign_in,
        time_zone=context.time_zone,
        address=caller.address,
        agent=caller.agent,
        request_id=caller.request_id,
        browser=session,
    )


def form_token(cookie: str, impersonation: UUID | None = None) -> str:
    """Return the token that a form must contain to be accepted with this cookie. It does not reveal the cookie.

    `impersonation` is the session of a user that the browser impersonates: a form that was opened
    before or after is not accepted, because it would act as another user.
    """
    purpose = "form" if impersonation is None else f"form {impersonation}"
    return hmac.new(cookie.encode(), purpose.encode(), hashlib.sha256).hexdigest()


def check_form_token(cookie: str, token: str, impersonation: UUID | None = None) -> None:
    """Check the token of a form that was sent with this cookie. Raises: FormTokenInvalid."""
    if not hmac.compare_digest(form_token(cookie, impersonation).encode(), token.encode("utf-8", "surrogatepass")):
        raise FormTokenInvalid
