"""A user's details, sessions, password reset and impersonation, for platform owners."""

from uuid import UUID

from pydantic import Field
from quart import Blueprint

from core.authentication import impersonation, user_access
from core.kernel.rate_limits import IMPERSONATE
from core.kernel.roles import Capability
from entrypoints.http import kit
from entrypoints.http.api.accounts import platform_users
from entrypoints.http.api.accounts.devices import DeviceResponse, to_device_response
from entrypoints.http.api.authentication.identities import LinkedAccountResponse

routes = Blueprint("user_access", __name__)


class UserSessionResponse(kit.ResponseModel):
    """A user's live session."""

    id: UUID = Field(description="The id of the session.")
    created_at: kit.Timestamp = Field(description="The time of the sign-in.")
    expires_at: kit.Timestamp = Field(description="The time when the session ends, unless it is refreshed.")
    ip_address: str | None = Field(description="The IP address of the sign-in, or null.", examples=["203.0.113.9"])
    user_agent: str | None = Field(description="The User-Agent header of the sign-in, or null.")
    organization: str | None = Field(description="The name of the organization that the session selected, or null.")
    service: str | None = Field(description="The name of the service that holds the session, or null.")
    by_impersonator: bool = Field(description="Whether a platform owner who impersonates the user holds it.")
    in_browser: bool = Field(description="Whether it is a browser session on Gatehouse's own pages.")
    connection: str | None = Field(description="The name of the organization's connection through which the user signed in, or null.")


class UserDetailsResponse(platform_users.FoundUserResponse):
    """A user with everything that gives them access."""

    email_verified_at: kit.Timestamp | None = Field(description="The time when the email address was verified, or null.")
    anonymized_at: kit.Timestamp | None = Field(description="The time when the account was anonymized, or null.")
    has_password: bool = Field(description="Whether the account has a password.")
    passkeys: int = Field(description="The number of passkeys, which sign in alone.", examples=[2])
    security_keys: int = Field(description="The number of security keys, which are a second factor only.", examples=[0])
    mfa_enabled_at: kit.Timestamp | None = Field(description="The time when two-factor authentication was turned on, or null.")
    backup_codes_remaining: int = Field(description="The number of unused backup codes.", examples=[9])
    last_mfa_challenge: kit.Timestamp | None = Field(description="The time when the user last entered a code, right or wrong, or null.")
    sessions: list[UserSessionResponse] = Field(description="The live sessions, the newest first, at most 100.")
    sessions_total: int = Field(description="The number of all live sessions.")
    devices: list[DeviceResponse] = Field(description="The devices that are not revoked, the most recently used first, at most 100.")
    identities: list[LinkedAccountResponse] = Field(description="The linked accounts at identity providers, the oldest link first.")


@routes.get("/api/platform/users/<user_id>")
@kit.platform_owner(Capability.PLATFORM_USERS_VIEW)
@kit.refuses(400)
async def get_user(user_id: UUID) -> UserDetailsResponse:
    """Return a user with memberships, sessions, devices, linked accounts and the second factor's status.

    Works for deactivated and anonymized accounts, too. Accounts that are linked in a single service are left out.
    """
    details = await user_access.find(kit.ports(), kit.acting_on_platform(), user_id)
    return UserDetailsResponse(
        **dict(platform_users.FoundUserResponse.of(details.user)),
        email_verified_at=details.account.email_verified_at,
        anonymized_at=details.account.anonymized_at,
        has_password=details.account.password_hash is not None,
        passkeys=details.account.passkey_count,
        security_keys=details.account.security_key_count,
        mfa_enabled_at=details.mfa.enabled_at,
        backup_codes_remaining=details.mfa.backup_codes,
        last_mfa_challenge=details.mfa.last_challenge_at,
        sessions=[
            UserSessionResponse.of(each, ip_address=each.address, user_agent=each.agent, by_impersonator=each.by_support)
            for each in details.sessions.items
        ],
        sessions_total=details.sessions.total,
        devices=[to_device_response(listed) for listed in details.devices],
        identities=LinkedAccountResponse.list_of(details.identities),
    )


class UserAccessRequest(kit.RequestModel):
    """The reason for an action on another user's account."""

    reason: kit.Reason = Field(description="The reason, for the platform's log.", examples=["Lost laptop, ticket 4711"])


@routes.post("/api/platform/users/<user_id>/end-sessions")
@kit.platform_owner(Capability.PLATFORM_USERS_MANAGE, kit.GIVES)
@platform_users.existing_user
async def end_sessions(user_id: UUID, data: UserAccessRequest) -> kit.Message:
    """End all sessions of a user.

    Refresh tokens, pending sign-ins and sign-in emails end, too. The password, the second factor and trusted devices
    stay, so the user can sign in again. The user's organizations get the event `user.sessions_revoked` in their audit
    logs.
    """
    await user_access.end_sessions(kit.ports(), kit.acting_on_platform(), user_id, data.reason)
    return kit.Message(message="All sessions of this user were ended.")


@routes.post("/api/platform/users/<user_id>/password-reset")
@kit.platform_owner(Capability.PLATFORM_USERS_MANAGE, kit.GIVES)
@platform_users.existing_user
async def send_password_reset(user_id: UUID, data: UserAccessRequest) -> kit.Message:
    """Send a user a link to set a new password.

    The link goes to the user's own address and works once. Until then the password and the sessions
    stay. It counts toward the five emails with a link that a user gets in an hour.
    """
    await user_access.send_password_reset(kit.ports(), kit.acting_on_platform(), user_id, data.reason)
    return kit.Message(message="The email with the link is on its way.")


class ImpersonationRequest(kit.RequestModel):
    """The reason for an impersonation, and its context."""

    reason: kit.Reason = Field(description="The reason. The audit log of the platform stores it.")
    org_slug: kit.Text | None = Field(default=None, description="Act as a member of this organization only.")
    service_slug: kit.Text | None = Field(default=None, description="Act as a user of this service. Send it with `org_slug`.")


class ImpersonatedUserResponse(kit.ResponseModel):
    """The impersonated user."""

    id: UUID = Field(description="The id of the user.")
    email: str = Field(description="The email address of the user.")


class ImpersonationResponse(kit.ResponseModel):
    """An impersonation session. Its tokens can be refreshed until `expires_at`."""

    access_token: str = Field(description="An access token of the user.")
    refresh_token: str = Field(description="The refresh token of the impersonation session. It works once.")
    impersonated_user: ImpersonatedUserResponse = Field(description="The impersonated user.")
    session_id: UUID = Field(description="The id of the impersonation session.")
    expires_at: kit.Timestamp = Field(description="When the session and all its tokens end.")
    audit_log_id: UUID = Field(description="The id of the entry in the platform's log: `GET /api/platform/audit-log/{entry_id}`.")


@routes.post("/api/platform/impersonate/<user_id>")
@kit.platform_owner(Capability.PLATFORM_OWN, kit.OWNS, limit=IMPERSONATE)
@platform_users.existing_user
async def start_impersonation(user_id: UUID, data: ImpersonationRequest) -> ImpersonationResponse:
    """Start to act as a user.

    The session lasts at most an hour, and ends when your own session ends. To end it earlier, sign out with its access
    token. The platform's audit log records every request in the session.
    """
    started = await impersonation.start(
        kit.ports(), kit.signed_in(), user_id, data.reason, org_slug=data.org_slug, service_slug=data.service_slug
    )
    return ImpersonationResponse.of(
        started, impersonated_user=ImpersonatedUserResponse(id=started.user_id, email=started.email), audit_log_id=started.entry_id
    )
