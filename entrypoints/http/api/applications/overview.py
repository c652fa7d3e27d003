"""The API for an organization's overview."""

from pydantic import Field
from quart import Blueprint

from core.applications import overview
from core.applications.model.analytics import PendingTask
from core.kernel.roles import Capability
from entrypoints.http.api.applications.analytics import DailyLoginsResponse
from entrypoints.http.base.context import acting, ports
from entrypoints.http.edge.access import member
from entrypoints.http.edge.bodies import ResponseModel

routes = Blueprint("overview", __name__)


class PendingTaskResponse(ResponseModel):
    """A task that waits for an admin of the organization."""

    task: PendingTask = Field(
        description="`domain_unverified`: set the DNS record of the domain. `invitations_pending`: invitations have no answer yet. "
        "`admins_without_mfa`: admins have no second factor. `certificates_expiring`: SAML certificates expire within 30 days, or have "
        "expired. `connections_failing`: users cannot sign in through a connection. `connection_certificates_expiring`: a certificate "
        "of a connection expires within 30 days, or has expired. `connections_without_domain`: no verified domain leads to an active "
        "connection, and it has no users yet, or the organization has no verified domain. `service_accounts_ending`: they end within 72 "
        "hours, because their owners have left. `webhooks_failing`: the last attempt of these "
        "webhooks failed. `group_roles_stopped`: groups give their roles no longer, because the member who gave them lost the right to. "
        "`siem_paused`: forwarding to the SIEM is turned off. `siem_failing`: the SIEM does not accept entries. `api_keys_to_review`, "
        "`scim_tokens_to_review` and `registration_tokens_to_review`: their creators have left, or may no longer create them. Replace "
        "them."
    )
    count: int = Field(description="The number of objects that the task is about. At most 100 are counted.", examples=[2])


class OverviewResponse(ResponseModel):
    """An organization's overview."""

    members: int = Field(description="The number of members.", examples=[12])
    services: int = Field(description="The number of services.", examples=[3])
    sign_ins: list[DailyLoginsResponse] = Field(
        description="The sign-ins of the last 30 days, as in `GET .../analytics/login-trends`. The last day is today, in UTC. Days without "
        "sign-ins have the count 0."
    )
    pending_tasks: list[PendingTaskResponse] = Field(description="The tasks that your role can do. The most important tasks come first.")


@routes.get("/api/organizations/<org_slug>/overview")
@member(Capability.ANALYTICS_VIEW)
async def get_overview(org_slug: str) -> OverviewResponse:
    """Return the organization's overview: figures, sign-ins in 30 days, and pending tasks.

    A task is something that an admin should look at, such as a domain without a DNS record or a
    webhook that fails.
    """
    loaded = await overview.load(ports(), acting())
    return OverviewResponse(
        members=loaded.members,
        services=loaded.services,
        sign_ins=[DailyLoginsResponse(date=each.day, count=each.count) for each in loaded.sign_ins],
        pending_tasks=[PendingTaskResponse(task=task, count=count) for task, count in loaded.tasks.items()],
    )
