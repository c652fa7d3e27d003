"""An organization's end users, managed by members."""

from uuid import UUID

from pydantic import Field
from quart import Blueprint

from core.accounts.model.protection import HeldFactor, Protection
from core.applications import end_users
from core.kernel.roles import Capability
from entrypoints.http import kit
from entrypoints.http.api.authentication.connections import ProviderSlug
from entrypoints.http.api.tenancy.members import PROTECTION

routes = Blueprint("end_users", __name__)


class EndUsersQuery(kit.PageQuery):
    """A page of end users, and optional filters."""

    search: kit.Text | None = Field(
        default=None, description="Return only users with this text in their email address, or the user with this id. Case is ignored."
    )
    service_id: kit.Text | None = Field(default=None, description="Return only users of the service with this id.")
    blocked: kit.Flag = Field(
        default=False,
        description="Return only users that an admin blocked, last block first. Users who have left the services are among them: "
        "without services, and with the address at the time of the block.",
    )


class EndUserResponse(kit.ResponseModel):
    """An end user in a list."""

    id: UUID = Field(description="The id of the user.")
    email: str = Field(description="The email address of the user.")
    created_at: kit.Timestamp = Field(description="The time at which the account was created, in UTC.")
    last_login_at: kit.Timestamp | None = Field(
        description="The time of the last login to the organization's services, in UTC, or null if there was none."
    )
    mfa_enabled: bool = Field(description="Whether the account has a second factor.")
    protection: Protection | None = Field(description=f"{PROTECTION} Null if the user has left the services.")
    factors: list[HeldFactor] | None = Field(description="The kinds of the account's factors. Null if the user has left the services.")
    services: list[str] = Field(description="The slugs of the services that the user uses, and the hosts of external clients.")
    blocked: bool = Field(description="Whether an admin blocked the user at the organization's services.")


class EndUserListResponse(kit.ResponseModel):
    """A page of end users."""

    users: list[EndUserResponse] = Field(
        description="The users, in the order in which they started to use the organization's services, or this service; latest first."
    )
    pagination: kit.Pagination = Field(description="The position of this page in the list.")


@routes.get("/api/organizations/<org_slug>/users")
@kit.member(Capability.END_USERS_VIEW)
async def list_end_users(org_slug: str, query_args: EndUsersQuery) -> EndUserListResponse:
    """List end users.

    End users have signed in to the organization's services, or an API key created them. Deactivated users are left out.
    """
    # A text that is not an id matches no service, as in paths.
    service_id = None if query_args.service_id is None else kit.path_id(query_args.service_id)
    result = await end_users.list_end_users(
        kit.ports(), kit.acting(), query_args.page_request(), search=query_args.search, service_id=service_id, blocked=query_args.blocked
    )
    return EndUserListResponse(users=EndUserResponse.list_of(result.items), pagination=query_args.pagination(result.total))


class EndUserIdentityResponse(kit.ResponseModel):
    """An account at an identity provider with which the user signs in to a service of the organization."""

    provider: ProviderSlug = Field(description="The identity provider.")
    provider_user_id: str = Field(description="The id of the account at the identity provider.")
    email: str | None = Field(description="The email address at the identity provider, or null if it is unknown.")
    linked_at: kit.Timestamp = Field(description="The time at which the account was linked, in UTC.")


class EndUserServiceResponse(kit.ResponseModel):
    """An organization's service that the user uses."""

    id: UUID = Field(description="The id of the service.")
    slug: str = Field(description="The slug of the service.")
    name: str = Field(description="The name of the service.")
    first_login_at: kit.Timestamp | None = Field(description="The time of the first login, in UTC, or null if there was none.")
    last_login_at: kit.Timestamp | None = Field(description="The time of the last login, in UTC, or null if there was none.")


class EndUserSessionsResponse(kit.ResponseModel):
    """The user's active sessions in the organization."""

    active_count: int = Field(description="The number of active sessions in the organization.")
    last_created_at: kit.Timestamp | None = Field(description="The start of the newest active session, in UTC, or null if there is none.")


class EndUserDetailsResponse(kit.ResponseModel):
    """An end user: the account, and the activity in the organization's services."""

    id: UUID = Field(description="The id of the user.")
    email: str = Field(description="The email address of the user.")
    created_at: kit.Timestamp = Field(description="The time at which the account was created, in UTC.")
    last_login_at: kit.Timestamp | None = Field(
        description="The time of the last login to the organization's services, in UTC, or null if there was none."
    )
    mfa_enabled: bool = Field(description="Whether the account has a second factor.")
    protection: Protection = Field(description=PROTECTION)
    factors: list[HeldFactor] = Field(description="The kinds of the account's factors.")
    email_verified: bool = Field(description="Whether the user has proved that the email address is theirs.")
    updated_at: kit.Timestamp = Field(description="The time of the account's last change, in UTC.")
    linked_identities: list[EndUserIdentityResponse] = Field(description="The accounts linked for the organization's services.")
    services: list[EndUserServiceResponse] = Field(description="The organization's services that the user uses.")
    sessions: EndUserSessionsResponse = Field(description="The user's active sessions in the organization.")
    blocked_at: kit.Timestamp | None = Field(
        description="When an admin blocked the user at the organization's services, in UTC, or null if they are not blocked."
    )


@routes.get("/api/organizations/<org_slug>/users/<user_id>")
@kit.member(Capability.END_USERS_VIEW)
async def get(org_slug: str, user_id: UUID) -> EndUserDetailsResponse:
    """Get an end user.

    Other organizations' identities, services, logins and sessions are not included.
    """
    details = await end_users.find(kit.ports(), kit.acting(), user_id)
    return EndUserDetailsResponse.of(
        details.user,
        last_login_at=details.last_login_at,
        blocked_at=details.blocked_at,
        linked_identities=EndUserIdentityResponse.list_of(details.identities),
        services=EndUserServiceResponse.list_of(details.services),
        sessions=EndUserSessionsResponse(active_count=details.sessions.count, last_created_at=details.sessions.last_created_at),
    )


class RevokedSessionsResponse(kit.ResponseModel):
    """How many sessions were ended."""

    message: str = Field(description="A confirmation to show to the user.")
    sessions_revoked: int = Field(description="The number of sessions that were ended.")


@routes.delete("/api/organizations/<org_slug>/users/<user_id>/sessions")
@kit.member(Capability.END_USERS_MANAGE, kit.ENDS)
async def revoke_sessions(org_slug: str, user_id: UUID) -> RevokedSessionsResponse:
    """End a user's sessions.

    Ends all the user's sessions in the organization and its services, and everything that would start a new session,
    such as authorization codes. Sessions in other organizations continue.
    """
    revoked = await end_users.revoke_sessions(kit.ports(), kit.acting(), user_id)
    return RevokedSessionsResponse(message="The user's sessions in the organization were ended.", sessions_revoked=revoked)


@routes.post("/api/organizations/<org_slug>/users/<user_id>/password-reset")
@kit.member(Capability.END_USERS_MANAGE, kit.GIVES)
@kit.refuses(400)
async def send_password_reset(org_slug: str, user_id: UUID) -> kit.Message:
    """Send a user a link to set a new password.

    The link goes to the user's own address, which must be verified, and works once. Until then the password and the
    sessions stay. A user gets at most five such emails in an hour; further emails are dropped. You cannot send the
    email to the organization's owner.
    """
    await end_users.send_password_reset(kit.ports(), kit.acting(), user_id)
    return kit.Message(message="The email with the link is on its way.")


@routes.put("/api/organizations/<org_slug>/users/<user_id>/block")
@kit.member(Capability.END_USERS_MANAGE, kit.GIVES)
@kit.refuses(400)
@kit.describes({204: "The user is blocked."})
async def block(org_slug: str, user_id: UUID) -> None:
    """Block a user at the organization's services.

    Their sessions and consents there end, and they cannot sign in to them, also with SAML. The account, a membership and
    other organizations stay. The user is an end user, a member or a former member. Owners and admins cannot be blocked.
    """
    await end_users.block(kit.ports(), kit.acting(), user_id)


@routes.delete("/api/organizations/<org_slug>/users/<user_id>/block")
@kit.member(Capability.END_USERS_MANAGE, kit.GIVES)
@kit.describes({204: "The user is not blocked."})
async def unblock(org_slug: str, user_id: UUID) -> None:
    """Admit a blocked user to the organization's services again.

    A block by the organization's directory stays. This also works for users who have left the services.
    """
    await end_users.unblock(kit.ports(), kit.acting(), user_id)


@routes.delete("/api/organizations/<org_slug>/users/<user_id>/mfa")
@kit.member(Capability.END_USERS_MANAGE, kit.REMOVES_FACTORS)
@kit.refuses(400)
@kit.describes({204: "The user has no second factor."})
async def remove_second_factor(org_slug: str, user_id: UUID) -> None:
    """Remove a user's second factor.

    This is possible only for an account that your organization created and that no other organization uses, and not for
    an owner or admin. Otherwise the answer is 403. All the user's sessions end, and the user gets an email.
    """
    await end_users.remove_second_factor(kit.ports(), kit.acting(), user_id)
