"""Acting as somebody else, for platform owners (identity.md section 4.8)."""

from uuid import UUID

from quart import Blueprint
from quart_schema import validate_request, validate_response

from core.authentication import impersonation
from core.kernel.rate_limits import IMPERSONATE
from entrypoints.http.api.accounts.platform_users import of_a_person
from entrypoints.http.edge.access import platform_owner
from entrypoints.http.edge.bodies import Reason, RequestModel, ResponseModel, Text, Timestamp
from entrypoints.http.edge.context import ports, signed_in

routes = Blueprint("impersonation", __name__)


class Wanted(RequestModel):
    """Why, which the platform's log keeps; and as what the person is looked at: as a member of the organization, or, with `service_slug` as
    well, as a user of that service of it."""

    reason: Reason
    org_slug: Text | None = None
    service_slug: Text | None = None


class Impersonated(ResponseModel):
    """Whom one acts as."""

    id: UUID
    email: str


class ImpersonationSession(ResponseModel):
    """A session as somebody else (identity.md section 2.9). Its tokens can be renewed, but nothing of it outlives `expires_at`."""

    access_token: str
    refresh_token: str
    impersonated_user: Impersonated
    session_id: UUID
    expires_at: Timestamp
    audit_log_id: UUID


@routes.post("/api/platform/impersonate/<user_id>")
@platform_owner(limit=IMPERSONATE)
@of_a_person
@validate_request(Wanted)
@validate_response(ImpersonationSession)
async def impersonate(user_id: UUID, data: Wanted) -> ImpersonationSession:
    """Act as somebody else, for an hour at most. Signing out with the new token ends it, and so does the end of your own session."""
    begun = await impersonation.start(ports(), signed_in(), user_id, data.reason, org_slug=data.org_slug, service_slug=data.service_slug)
    return ImpersonationSession(
        access_token=begun.access_token,
        refresh_token=begun.refresh_token,
        impersonated_user=Impersonated(id=begun.user_id, email=begun.email),
        session_id=begun.session_id,
        expires_at=begun.expires_at,
        audit_log_id=begun.entry_id,
    )
