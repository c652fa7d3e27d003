"""Access: whether a caller may do something. Runs at the edge, and again inside the transaction that writes (security Z-5)."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto
from uuid import UUID

from core.kernel import api_scopes, callers, errors, roles, sign_in_age
from core.kernel.causes import Caller
from core.kernel.claims import Claims
from core.kernel.policy import Policy


class ApplicationTokens(Enum):
    """The access tokens of applications that a route accepts (security J-9)."""

    NONE = auto()
    WITHOUT_OPENID = auto()  # no scope of OpenID Connect gives what the response has
    ALL = auto()  # the response leaves out what the scopes of the token do not give


class Restricted(Enum):
    """What a route gives to a session that began at an organization's connection, and has no proof by the account itself."""

    NO = auto()  # the user must confirm with the account's own sign-in methods
    ITS_ORGANIZATION = auto()  # the request must act in that organization, or in its application
    YES = auto()  # the route shows nothing of other organizations, and changes nothing about the account


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectDemands:
    """What an effect demands from its caller."""

    # The effect remains when the caller is gone. Impersonators are refused (security I-4), and a service account needs
    # an owner's grant for the capability.
    outlives: bool = False
    asks_policy: bool = True  # False: members need not meet the organization's sign-in policy
    # For a user with a session
    age: sign_in_age.SignInAge = sign_in_age.SignInAge.ANY  # the sign-in's highest age (security A-12)
    changes_factors: bool = False  # all the user's sign-in policies must accept the sign-in (security PK-8)
    ends_session: bool = False  # impersonators may end the session, even if the platform's policy refuses their sign-in


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement(EffectDemands):
    """What a route requires from its caller.

    `scope` is needed by tokens that have scopes. None: such tokens cannot use the route. A route that `needs_person`
    needs a user with a session.
    """

    capability: roles.Capability | None = None
    scope: api_scopes.ApiScope | None = None
    inactive: bool = False  # the organization need not be active
    needs_person: bool = False
    # For a user with a session
    applications: ApplicationTokens = ApplicationTokens.NONE
    restricted: Restricted = Restricted.NO
    is_of_platform: bool = False  # for platform owners only
    is_verified: bool = False  # for users with a verified email address only


class NotAMember(errors.Forbidden):
    """You are not a member of the organization that this token was issued for. Sign in again."""


class NotOfThisOrganization(errors.Forbidden):
    """You are not a member of this organization."""


class OwnMembershipNotConfirmed(errors.Forbidden):
    """Confirm first that you are a member of this organization. The page of your organizations has a button for it."""


class RoleInsufficient(errors.Forbidden):
    """Your role in this organization does not allow this. Ask an admin or the owner of the organization."""

    audited = True


class NotAnEndUser(errors.Forbidden):
    """You are no longer a user of the application that this token was issued for. Sign in to it again."""


class NotForApplications(errors.Forbidden):
    """An application's token cannot do this. Sign in to your account and do it there."""


class NotWithOpenId(NotForApplications):
    """No scope of OpenID Connect gives this data to an application. Its users can see it in their account."""


class NeedsPerson(errors.Forbidden):
    """Only a signed-in user can do this. Sign in, and use the access token of that session."""

    audited = True


class NotForServiceAccounts(errors.Forbidden):
    """The effect of this remains when the service account is gone. Do it as a user, or ask an owner to grant the capability by name."""

    audited = True

    def __init__(self, capability: roles.Capability) -> None:
        super().__init__(
            "The effect of this remains when the service account is gone. "
            f"Do it as a user, or ask an owner to grant the service account the capability {capability.value}."
        )


class NotForPersonalTokens(errors.Forbidden):
    """Personal access tokens cannot do this. Sign in, and use the access token of that session."""


class PersonalTokenElsewhere(errors.Forbidden):
    """This personal access token is limited to another organization, or to your own account. Create one for this organization."""


class PermissionMissing(errors.Forbidden):
    """This API key does not have the required permission. Use a key that has it."""

    audited = True

    def __init__(self, permission: roles.Permission, key: callers.ServiceKey) -> None:
        super().__init__(f"This API key does not have the permission {permission.value}.")
        self.caller = key


class BlockedByDirectory(errors.Forbidden):
    """The organization's directory has deactivated you, so you cannot use its applications. Ask your organization's administrators."""


class NotAPlatformOwner(errors.Forbidden):
    """Only platform owners may do this. Ask the operator of Gatehouse."""


class ImpersonatedElsewhere(errors.Forbidden):
    """This impersonation is limited to another organization. Start one that names this organization, or none."""


class NotWhileImpersonating(errors.Forbidden):
    """This cannot be done while impersonating a user. End the impersonation first."""


class MfaMissing(sign_in_age.AuthenticationInsufficient):
    """You have enabled two-factor authentication since you signed in here. Sign in again to do this."""

    needed: Mapping[str, str] = {"acr_values": "mfa"}


class OwnProofNeeded(sign_in_age.AuthenticationInsufficient):
    """You signed in through an organization, and that counts there only. Confirm that it's you with a way of your own account."""

    needed: Mapping[str, str] = {"max_age": "0"}


class AddressNotVerified(errors.Forbidden):
    """Verify your email address first. Open the link in the email that we sent you, or request a new one."""


class AccountGone(errors.NotFound):
    """The account no longer exists."""


class AccountClosed(errors.Unauthenticated):
    """This account is closed, so you cannot sign in to it. Ask your organization's administrators."""

    def __init__(self, user_id: UUID) -> None:
        super().__init__()
        self.user_id = user_id


class AccountDeleted(AccountClosed):
    """This account was deleted. The link in our email about this opens it again, within 72 hours."""


class OtherUserPresent(errors.Conflict):
    """Another user is signed in in this browser. Sign out first, then sign in again."""


class OrganizationNotFound(errors.NotFound):
    """This organization does not exist."""


def to_person(
    caller: Caller, claims: Claims, session: callers.SessionContext | None, *, allow_former_users: bool = False
) -> callers.Person:
    """Return the token's user, from its claims and the current state of its session.

    `allow_former_users` accepts users who have left the token's organization or service, which is only context then.

    Raises: SessionEnded if the session, the account or the service is no longer live; NotAMember if
    the user has left the organization; NotAnEndUser if the user no longer uses the service.
    """
    if session is None:
        raise errors.SessionEnded
    organization = session.organization if claims.org_id is not None else None
    if session.service is not None:
        if not session.uses_service and not allow_former_users:
            raise NotAnEndUser
    elif claims.org_id is not None and organization is None and not allow_former_users:
        raise NotAMember
    return callers.Person(
        user_id=session.user_id,
        email=session.email,
        email_verified=session.email_verified_at is not None,
        session_id=claims.session_id,
        is_platform_owner=session.is_platform_owner and session.restricted_to is None,
        organization=organization,
        service=session.service,
        impersonator_id=session.impersonator_id,
        impersonated_in=session.impersonated_in,
        restricted_to=session.restricted_to,
        mfa_missing=session.mfa_missing,
        key_thumbprint=claims.key_thumbprint,
        sign_in=session.sign_in,
        openid_scope=() if session.service is None else claims.scope,
        address=caller.address,
        agent=caller.agent,
        request_id=caller.request_id,
    )


def require_mfa(person: callers.Person) -> None:
    """If the user has a second factor, check that the session started with it or on a trusted device.

    Call this before every sign-in to an application (security A-10, V-3, X-8).
    """
    if person.mfa_missing:
        raise MfaMissing


def require_reach(user: callers.Person, org_id: UUID | None) -> None:
    """Check that the user's session is good in this organization. Without `org_id`, the session must be good everywhere."""
    if user.restricted_to not in (None, org_id):
        refusal = OwnProofNeeded()
        refusal.caller = user
        raise refusal


def require_sign_in(user: callers.Person, age: sign_in_age.SignInAge, policy: Policy, now: datetime) -> None:
    """Check the last sign-in in the user's session. Raises: the refusal from `find_sign_in_refusal`."""
    if (refusal := find_sign_in_refusal(user, age, policy, now)) is not None:
        raise refusal


def find_sign_in_refusal(user: callers.Person, age: sign_in_age.SignInAge, policy: Policy, now: datetime) -> errors.Refusal | None:
    """Return the user's refusal, unless the last sign-in in their session is as young as `age` demands (security A-12).

    The check is skipped for personal access tokens. For application tokens, the check is skipped unless `age` is FRESH.
    If a member must come through a connection, the sign-in there counts instead (security SP-9).
    """
    if (
        age is sign_in_age.SignInAge.ANY
        or user.personal_token is not None
        or (user.service is not None and age is sign_in_age.SignInAge.RECENT)
    ):
        return None
    if user.impersonator_id is not None:
        return NotWhileImpersonating()
    if isinstance(user, callers.Member) and user.has_sign_in_policy:
        assert user.connection_sign_in is not None, "the route declares the age of the sign-in that it needs"
        if user.connection_sign_in.refusal is not None or user.connection_sign_in.is_required:
            return user.connection_sign_in.refusal
    return sign_in_age.find_age_refusal(user.sign_in, age, policy, now)


def require_capability(
    state: callers.MembershipState | None, capability: roles.Capability, *, inactive: bool = False
) -> callers.OrganizationContext:
    """Return the organization to act in, if the caller has the right `capability`. `inactive` accepts an organization that is not active.

    Raises: OrganizationNotFound, NotOfThisOrganization, RoleInsufficient, OrganizationNotActive,
    checked in this order.
    """
    if state is None:
        raise OrganizationNotFound
    if state.role is None:
        raise NotOfThisOrganization
    require_right(state.rights, capability, state.status, inactive=inactive)
    return callers.OrganizationContext(state.id, state.slug, state.status, state.role, state.rights)


def require_right(
    rights: roles.Rights, capability: roles.Capability, status: callers.OrganizationStatus, *, inactive: bool = False
) -> None:
    """Check that a caller has a right in an organization with this status. `inactive` accepts an organization that is not active.

    Raises: RoleInsufficient, OrganizationNotActive, checked in this order.
    """
    if capability not in rights:
        raise RoleInsufficient
    if status is not callers.OrganizationStatus.ACTIVE and not inactive:
        raise errors.OrganizationNotActive


def require_permission(key: callers.ServiceKey, permission: roles.Permission) -> None:
    """Check that an API key has `permission` and that its organization is active.

    Raises: PermissionMissing, OrganizationNotActive, checked in this order.
    """
    if permission not in key.permissions:
        raise PermissionMissing(permission, key)
    if key.service.status is not callers.OrganizationStatus.ACTIVE:
        raise errors.OrganizationNotActive


def check_service_account(account: callers.ServiceAccountCaller, requirement: Requirement) -> None:
    """Check that a service account may call a route with this requirement. The caller has checked its role.

    Raises: NeedsPerson, NotForServiceAccounts, ScopeInsufficient, checked in this order.
    """
    capability = requirement.capability if requirement.capability in roles.GRANTABLE else None
    needs_grant = requirement.needs_person or requirement.outlives
    if requirement.scope is None or (needs_grant and capability is None):
        raise NeedsPerson
    if needs_grant and capability is not None and capability not in account.granted:
        raise NotForServiceAccounts(capability)
    if requirement.scope not in account.scopes:
        raise api_scopes.ScopeInsufficient(requirement.scope)


def check_personal_token(token: callers.PersonalTokenContext, requirement: Requirement, org_id: UUID | None) -> None:
    """Check that a personal access token may call a route with this requirement.

    `org_id` is the organization that the route acts in, or None for the user's own account.

    Raises: NotForPersonalTokens, PersonalTokenElsewhere, ScopeInsufficient, checked in this order.
    """
    if requirement.scope is None or requirement.needs_person:
        raise NotForPersonalTokens
    if token.org_id != org_id:
        raise PersonalTokenElsewhere
    if requirement.scope not in token.scopes:
        raise api_scopes.ScopeInsufficient(requirement.scope)


def scopes_of(caller: callers.OrganizationCaller) -> frozenset[api_scopes.ApiScope] | None:
    """Return the scopes that narrow the caller's rights, or None if their token has none."""
    if isinstance(caller, callers.ServiceAccountCaller):
        return caller.scopes
    return None if caller.personal_token is None else caller.personal_token.scopes


def may_view(caller: callers.OrganizationCaller, capability: roles.Capability) -> bool:
    """Return whether an answer may also have data that this right shows: the caller has it, and their token has its scope."""
    scopes = scopes_of(caller)
    return capability in caller.acts_in.rights and (scopes is None or api_scopes.scope_of(capability, changes=False) in scopes)


def viewed_rights(caller: callers.OrganizationCaller) -> roles.Rights:
    """Return the caller's rights that show data, as `may_view` says."""
    return frozenset(capability for capability in caller.acts_in.rights if may_view(caller, capability))


def require_view(caller: callers.OrganizationCaller, capability: roles.Capability) -> None:
    """Check that the caller may see the data that this right shows, as `may_view` says."""
    if capability not in caller.acts_in.rights:
        raise RoleInsufficient
    scope = api_scopes.scope_of(capability, changes=False)
    if scope is not None and not may_view(caller, capability):
        raise api_scopes.ScopeInsufficient(scope)


def lasting_rights(caller: callers.OrganizationCaller, rights: roles.Rights) -> roles.Rights:
    """Return the rights by which the caller may give something that remains when they are gone."""
    return roles.lasting(rights, caller.granted) if isinstance(caller, callers.ActingServiceAccount) else rights


def require_power_of_admin(
    caller: callers.OrganizationCaller, rights: roles.Rights, used: roles.Rights, refusal: type[errors.Forbidden]
) -> None:
    """Check that the caller may let another system act on or as members, also admins (security C-3, S-12).

    `used` are the rights that the system uses.

    Raises: the refusal, if the caller lacks an admin's right; the errors of `require_lasting`.
    """
    if not roles.has_rights_of_admin(rights):
        raise refusal
    require_lasting(caller, rights, used)


def require_lasting(caller: callers.OrganizationCaller, rights: roles.Rights, used: roles.Rights) -> None:
    """Check that a caller with these rights may give the used rights to another system, which goes on when the caller is gone.

    For every used right, a service account needs an owner's grant, and a token needs the scopes.
    """
    if missing := used - lasting_rights(caller, rights):
        raise NotForServiceAccounts(min(missing))
    require_scopes_for(caller, used)


def require_scopes_for(caller: callers.OrganizationCaller, rights: roles.Rights) -> None:
    """Check that the caller's token has the scopes for these rights, before it creates a credential with them (security J-7).

    The credential remains when the token has ended, so it must not do more than the token.
    """
    scopes = scopes_of(caller)
    needed = (api_scopes.scope_of(right, changes=not right.endswith(".view")) for right in rights)
    missing = [] if scopes is None else api_scopes.in_order(scope for scope in needed if scope is not None and scope not in scopes)
    if missing:
        raise api_scopes.ScopeInsufficient(*missing)


def allowed_scopes(rights: roles.Rights, scopes: frozenset[api_scopes.ApiScope] | None) -> tuple[api_scopes.ApiScope, ...]:
    """Return the scopes that an organization's token can use, if its caller has these rights. `scopes` narrows them, unless it is None."""
    usable = {
        scope
        for capability in rights
        for changes in ((False,) if capability.endswith(".view") else (False, True))
        if (scope := api_scopes.scope_of(capability, changes=changes)) is not None
    }
    return api_scopes.in_order(usable if scopes is None else usable & scopes)
