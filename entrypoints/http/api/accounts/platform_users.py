"""Users, their second factors and platform ownership, for platform owners (decisions 241, 243)."""

from typing import Any, Final
from uuid import UUID

from pydantic import ConfigDict, Field
from quart import Blueprint

from core.accounts import platform
from core.accounts.model.platform import MfaAlertType
from core.accounts.model.protection import HeldFactor, Protection
from core.authentication import user_access
from core.kernel.errors import Invalid
from core.kernel.roles import Capability
from core.tenancy import platform_owners
from entrypoints.http import kit
from entrypoints.http.api.tenancy.roles import Role
from entrypoints.http.edge.queries import SearchLimit

routes = Blueprint("platform_users", __name__)


class ReasonMissing(Invalid):
    """The reason is missing. Send it as "reason" in the body or in the query."""


@kit.before_body
async def existing_user(user_id: UUID) -> None:
    """Answer 404 for a `<user_id>` that does not exist."""
    await platform.find_user(kit.ports(), user_id)


class UserSearchQuery(kit.Query):
    """The search terms. Without any, all users match."""

    email: kit.Text | None = Field(default=None, description="A part of the email address, in any case.", examples=["ada@"])
    user_id: kit.Text | None = Field(default=None, description="The id of a user. An unknown id matches no user.")
    after: kit.Text | None = Field(
        default=None, description="`next` from the part before. Return only users after this user. An unknown id matches no user."
    )
    limit: SearchLimit = 20


class UserOrganizationResponse(kit.ResponseModel):
    """An organization that a user belongs to."""

    id: UUID = Field(description="The id of the organization.")
    slug: str = Field(description="The slug of the organization.", examples=["acme"])
    name: str = Field(description="The name of the organization.", examples=["Acme"])
    role: Role = Field(description="The role of the user.")


class FoundUserResponse(kit.ResponseModel):
    """A user in search results."""

    id: UUID = Field(description="The id of the user.")
    email: str = Field(description="The email address of the user.", examples=["ada@example.com"])
    is_platform_owner: bool = Field(description="Whether the user is a platform owner.")
    mfa_enabled: bool = Field(description="Whether the user has two-factor authentication.")
    protection: Protection = Field(
        description="`password_alone`: the password alone signs in, also beside a passkey that is no second factor. "
        "`protected`: it does not."
    )
    factors: list[HeldFactor] = Field(description="The kinds of the account's factors.")
    created_at: kit.Timestamp = Field(description="The time when the account was created.")
    deactivated_at: kit.Timestamp | None = Field(description="The time when the account was deactivated, or null.")
    deactivated_by_platform: bool = Field(description="Whether a platform owner deactivated it.")
    erase_at: kit.Timestamp | None = Field(description="If the account was deleted, the time when it is erased, or null.")
    organizations: list[UserOrganizationResponse] = Field(description="The organizations of the user, sorted by slug.")


class UserSearchResponse(kit.ResponseModel):
    """The users that match a search."""

    users: list[FoundUserResponse] = Field(description="The users, the newest first.")
    next: UUID | None = Field(description="The value of `after` for the next part of the list, or null at its end.")


@routes.get("/api/platform/users/search")
@kit.platform_owner(Capability.PLATFORM_USERS_VIEW)
@kit.refuses(404)
async def search(query_args: UserSearchQuery) -> UserSearchResponse:
    """Search all users on the platform.

    The newest users come first. The result includes deactivated users. For older users, send `next` as
    `after`.
    """
    # Text that is not a UUID is an id that does not exist, as in paths, so it matches no user.
    user_id = None if query_args.user_id is None else kit.path_id(query_args.user_id)
    after = None if query_args.after is None else kit.path_id(query_args.after)
    users, has_more = await platform.search_users(kit.ports(), query_args.limit, email=query_args.email, user_id=user_id, after=after)
    return UserSearchResponse(users=FoundUserResponse.list_of(users), next=users[-1].id if has_more else None)


class UserMfaStatusResponse(kit.ResponseModel):
    """The status of a user's second factor."""

    user_id: UUID = Field(description="The id of the user.")
    email: str = Field(description="The email address of the user.", examples=["ada@example.com"])
    mfa_enabled: bool = Field(description="Whether two-factor authentication is on.")
    mfa_enabled_at: kit.Timestamp | None = Field(description="The time when it was turned on, or null.")
    methods: list[str] = Field(description="The second factors that a sign-in accepts.", examples=[["totp", "passkey", "backup_code"]])
    backup_codes_remaining: int = Field(description="The number of unused backup codes.", examples=[9])
    last_mfa_challenge: kit.Timestamp | None = Field(description="The time when the user last entered a code, right or wrong, or null.")


@routes.get("/api/platform/users/<user_id>/mfa/status")
@kit.platform_owner(Capability.PLATFORM_USERS_VIEW)
@kit.refuses(400)
async def get_mfa_status(user_id: UUID) -> UserMfaStatusResponse:
    """Return the status of a user's two-factor authentication.

    Use it before `DELETE /api/platform/users/{user_id}/mfa`, when a user has lost their phone.
    """
    status = await platform.get_mfa_status(kit.ports(), user_id)
    return UserMfaStatusResponse(
        user_id=status.user_id,
        email=status.email,
        mfa_enabled=status.enabled_at is not None,
        mfa_enabled_at=status.enabled_at,
        methods=list(status.methods),
        backup_codes_remaining=status.backup_codes,
        last_mfa_challenge=status.last_challenge_at,
    )


class RemoveMfaRequest(kit.RequestModel):
    """The reason for removing a second factor. Clients that cannot send a body with DELETE send it in the query."""

    # The description declares the reason as required, because it cannot express that the query may
    # have it instead.
    model_config = ConfigDict(strict=True, frozen=True, json_schema_extra={"required": ["reason"]})

    reason: kit.Reason | None = Field(default=None, description="The reason, for the platform's log.", examples=["Lost phone, ticket 4711"])


class RemoveMfaQuery(kit.Query):
    """The reason, for clients that cannot send a body with DELETE."""

    reason: kit.Reason | None = Field(default=None, description="The reason, if the body has none.", examples=["Lost phone, ticket 4711"])


class RemoveMfaResponse(kit.ResponseModel):
    """The result after a second factor was removed."""

    success: bool = Field(description="Always true.")
    message: str = Field(description="The result in one sentence.")


@routes.delete("/api/platform/users/<user_id>/mfa")
@kit.platform_owner(Capability.PLATFORM_USERS_MANAGE, kit.REMOVES_FACTORS)
@existing_user
async def remove_mfa(user_id: UUID, data: RemoveMfaRequest, query_args: RemoveMfaQuery) -> RemoveMfaResponse:
    """Remove another user's two-factor authentication.

    All the user's sessions end, and the user gets an email. The user's organizations get the event
    `security.mfa.disabled` in their audit logs.
    """
    reason = data.reason or query_args.reason
    if reason is None:
        raise ReasonMissing
    if await platform.remove_mfa(kit.ports(), kit.acting_on_platform(), user_id, reason):
        message = "Two-factor authentication was turned off for this account, and its sessions were ended."
    else:
        message = "Two-factor authentication was already off for this account."
    return RemoveMfaResponse(success=True, message=message)


class AccountStateRequest(kit.RequestModel):
    """The reason for deactivating or reactivating an account."""

    reason: kit.Reason = Field(description="The reason, for the platform's log.", examples=["The account was stolen, ticket 4711"])


class AccountStateResponse(kit.ResponseModel):
    """An account's state after the request."""

    message: str = Field(description="The result in one sentence.")
    user_id: UUID = Field(description="The id of the user.")
    is_active: bool = Field(description="Whether the account allows sign-ins.")


@routes.post("/api/platform/users/<user_id>/deactivate")
@kit.platform_owner(Capability.PLATFORM_USERS_MANAGE, kit.GIVES)
@existing_user
async def deactivate(user_id: UUID, data: AccountStateRequest) -> AccountStateResponse:
    """Deactivate a user's account.

    All sessions, refresh tokens, pending sign-ins and trusted devices end. The user cannot sign in on any path, and
    gets an email. No organization and no directory can reactivate, delete or rename the account. Memberships stay, also
    an owner's membership. The user's service accounts stop. Their pending invitations to roles above member are
    canceled. Members who got such a role from them become members again, unless a user has set their role since.
    Nothing changes if a platform owner has already deactivated the account. Platform owners cannot be deactivated.
    """
    changed = await user_access.deactivate(kit.ports(), kit.acting_on_platform(), user_id, data.reason)
    message = "The account was deactivated, and its sessions were ended." if changed else "The account was already deactivated."
    return AccountStateResponse(message=message, user_id=user_id, is_active=False)


@routes.post("/api/platform/users/<user_id>/reactivate")
@kit.platform_owner(Capability.PLATFORM_USERS_MANAGE, kit.GIVES)
@existing_user
async def reactivate(user_id: UUID, data: AccountStateRequest) -> AccountStateResponse:
    """Undo a platform owner's deactivation of an account.

    The account stays closed, and `is_active` is false, if an organization's directory has also deactivated it, or if
    its user has deleted it. Otherwise the user can sign in again, and gets an email.
    """
    account = await platform.reactivate_user(kit.ports(), kit.acting_on_platform(), user_id, data.reason)
    message = "The account is active."
    if account.closed_at is not None:
        message = "The account is still closed: it was deleted, and only the link in the email about that opens it again."
    elif not account.is_usable:
        message = "The account is still deactivated by an organization's directory."
    return AccountStateResponse(message=message, user_id=user_id, is_active=account.is_usable)


class MfaMetricsResponse(kit.ResponseModel):
    """How much two-factor authentication is used on the platform. Deactivated accounts are not counted as users."""

    total_users: int = Field(description="The number of users.", examples=[1200])
    mfa_enabled_users: int = Field(description="The number of users with two-factor authentication.", examples=[900])
    mfa_adoption_rate: float = Field(description="The share of users with two-factor authentication, in percent.", examples=[75.0])
    backup_codes_used_7d: int = Field(description="The number of backup codes used in the last 7 days.", examples=[4])
    mfa_failures_7d: int = Field(description="The number of wrong codes at sign-ins in the last 7 days.", examples=[31])


@routes.get("/api/platform/mfa/metrics")
@kit.platform_owner(Capability.PLATFORM_USERS_VIEW)
@kit.refuses(400, 404)
async def get_mfa_metrics() -> MfaMetricsResponse:
    """Return metrics about two-factor authentication.

    They are computed at every request.
    """
    metrics = await platform.get_mfa_metrics(kit.ports())
    return MfaMetricsResponse(
        total_users=metrics.total_users,
        mfa_enabled_users=metrics.mfa_enabled_users,
        mfa_adoption_rate=metrics.adoption_rate,
        backup_codes_used_7d=metrics.backup_codes_used,
        mfa_failures_7d=metrics.failures,
    )


class MfaAlertResponse(kit.ResponseModel):
    """Suspicious activity around a user's second factor."""

    user_id: UUID = Field(description="The id of the user.")
    email: str = Field(description="The email address of the user.", examples=["ada@example.com"])
    alert_type: MfaAlertType = Field(description="The kind of activity.")
    details: dict[str, Any] = Field(
        description="`count` and `first_at`; for `disabled_after_login`, `login_at` and `ip_address`.",
        examples=[{"count": 7, "first_at": "2026-03-14T15:09:26Z"}],
    )
    detected_at: kit.Timestamp = Field(description="The time of the activity's last event.")


class MfaAlertListResponse(kit.ResponseModel):
    """The alerts from the last 24 hours."""

    alerts: list[MfaAlertResponse] = Field(description="The alerts, the newest first, at most 100.")


@routes.get("/api/platform/mfa/suspicious")
@kit.platform_owner(Capability.PLATFORM_USERS_VIEW)
@kit.refuses(400, 404)
async def list_mfa_alerts() -> MfaAlertListResponse:
    """List suspicious activity around second factors in the last 24 hours.

    The kinds are: many wrong codes, many backup codes used, and two-factor authentication turned
    off right after a sign-in.
    """
    alerts = await platform.list_alerts(kit.ports())
    return MfaAlertListResponse(alerts=[MfaAlertResponse.of(alert, alert_type=alert.type) for alert in alerts])


class PlatformOwnerResponse(kit.ResponseModel):
    """A change to the platform owners, and its result."""

    message: str = Field(description="The result in one sentence.")
    user_id: UUID = Field(description="The id of the user.")


REASON: Final = "The reason, for the platform's log and for the email to all platform owners."


class PlatformOwnerListResponse(kit.ResponseModel):
    """The platform owners."""

    owners: list[FoundUserResponse] = Field(description="All platform owners, the newest accounts first.")


@routes.get("/api/platform/owners")
@kit.platform_owner(Capability.PLATFORM_USERS_VIEW)
@kit.refuses(400, 404)
async def list_owners() -> PlatformOwnerListResponse:
    """List all platform owners.

    The list is complete; it has no pages.
    """
    return PlatformOwnerListResponse(owners=FoundUserResponse.list_of(await platform.list_owners(kit.ports())))


class AddPlatformOwnerRequest(kit.RequestModel):
    """A user to make a platform owner."""

    user_id: kit.Id = Field(description="The id of a user. The account must be active and have a verified address and a second factor.")
    reason: kit.Reason | None = Field(default=None, description=REASON)


class RemovePlatformOwnerQuery(kit.Query):
    """Why a platform owner loses their rights."""

    reason: kit.Reason | None = Field(default=None, description=REASON)


@routes.post("/api/platform/owners")
@kit.platform_owner(Capability.PLATFORM_OWN, kit.OWNS)
@kit.refuses(404)
async def add_owner(data: AddPlatformOwnerRequest) -> PlatformOwnerResponse:
    """Make a user a platform owner.

    Sessions that impersonate the user end. The user's links to organizations' connections end with the sign-ins there. All platform owners
    get an email. If the user already is a platform owner, nothing changes.
    """
    await platform_owners.promote(kit.ports(), kit.signed_in(), data.user_id, data.reason)
    return PlatformOwnerResponse(message="This user is now a platform owner.", user_id=data.user_id)


@routes.delete("/api/platform/owners/<user_id>")
@kit.platform_owner(Capability.PLATFORM_OWN, kit.OWNS)
async def remove_owner(user_id: UUID, query_args: RemovePlatformOwnerQuery) -> PlatformOwnerResponse:
    """Revoke another platform owner's rights.

    Their impersonation sessions end, and they and all platform owners get an email. You cannot revoke your own rights,
    or the last platform owner's rights.
    """
    await platform_owners.demote(kit.ports(), kit.signed_in(), user_id, query_args.reason)
    return PlatformOwnerResponse(message="This user is no longer a platform owner.", user_id=user_id)
