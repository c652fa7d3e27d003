"""Platform owners impersonate users."""

from uuid import UUID

from pydantic import Field
from quart import Blueprint

from core.authentication import impersonation
from core.kernel.rate_limits import IMPERSONATE
from core.kernel.roles import Capability
from entrypoints.http.api.accounts.platform_users import existing_user
from entrypoints.http.base.context import ports, signed_in
from entrypoints.http.edge.access import OWNS, platform_owner
from entrypoints.http.edge.bodies import Reason, RequestModel, ResponseModel, Text, Timestamp

routes = Blueprint("impersonation", __name__)


class ImpersonationRequest(RequestModel):
    """The reason for an impersonation, and its context."""

    reason: Reason = Field(description="The reason. The audit log of the platform stores it.")
    org_slug: Text | None = Field(default=None, description="Act as a member of this organization only.")
    service_slug: Text | None = Field(default=None, description="Act as a user of this service. Send it with `org_slug`.")


class ImpersonatedUserResponse(ResponseModel):
    """The impersonated user."""

    id: UUID = Field(description="The id of the user.")
    email: str = Field(description="The email address of the user.")


class ImpersonationResponse(ResponseModel):
    """An impersonation session. Its tokens can be refreshed until `expires_at`."""

    access_token: str = Field(description="An access token of the user.")
    refresh_token: str = Field(description="The refresh token of the impersonation session. It works once.")
    impersonated_user: ImpersonatedUserResponse = Field(description="The impersonated user.")
    session_id: UUID = Field(description="The id of the impersonation session.")
    expires_at: Timestamp = Field(description="When the session and all its tokens end.")
    audit_log_id: UUID = Field(description="The id of the entry in the platform's log: `GET /api/platform/audit-log/{entry_id}`.")


@routes.post("/api/platform/impersonate/<user_id>")
@platform_owner(Capability.PLATFORM_OWN, OWNS, limit=IMPERSONATE)
@existing_user
async def start_impersonation(user_id: UUID, data: ImpersonationRequest) -> ImpersonationResponse:
    """Start to act as a user.

    The session lasts at most an hour, and ends when your own session ends. To end it earlier, sign out with its access
    token. The platform's audit log records every request in the session.
    """
    started = await impersonation.start(ports(), signed_in(), user_id, data.reason, org_slug=data.org_slug, service_slug=data.service_slug)
    return ImpersonationResponse.of(
        started, impersonated_user=ImpersonatedUserResponse(id=started.user_id, email=started.email), audit_log_id=started.entry_id
    )
