"""The audit log of an organization (decision 227)."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from pydantic import Field
from quart import Blueprint, Response

from core.eventing import audit
from core.eventing.model import audit as audit_model
from core.eventing.model.audit import AuditEntry, AuditFilter
from core.kernel.event_catalog import AUDIT_ACTIONS, EventKind, Target
from core.kernel.roles import Capability
from entrypoints.http.api.eventing.audit_files import CSV, JSON_LINES, ExportFormat, stream_entries
from entrypoints.http.base.context import acting, ports
from entrypoints.http.edge.access import member
from entrypoints.http.edge.bodies import DateTime, ResponseModel, Text, Timestamp
from entrypoints.http.edge.openapi import describes
from entrypoints.http.edge.queries import Flag, PageQuery, Pagination, Query

routes = Blueprint("audit", __name__)


class AuditActorResponse(ResponseModel):
    """The actor of an entry: a user, a service account, an API key, a SCIM token, or an actor without account."""

    id: str = Field(
        description="The id of the user, service account, API key or SCIM token. Or `system` for a background job, `anonymous` for a "
        "caller without a session, `unknown` for a deleted account."
    )
    email: str = Field(description="The email address of the user, or a placeholder for other actors.", examples=["ada@example.com"])
    is_platform_owner: bool = Field(description="Whether the actor is a platform owner.")
    kind: str = Field(description="`user`, `service_account`, `api_key`, `scim_token`, `system` or `anonymous`.")
    name: str | None = Field(description="The name that a service account had when it acted, and null for other actors.")


class AuditEntryResponse(ResponseModel):
    """An entry of the audit log."""

    id: UUID = Field(description="The id of the entry.")
    org_id: UUID = Field(description="The id of the organization.")
    actor: AuditActorResponse = Field(description="The actor. During an impersonation, this is the impersonated user.")
    action: str = Field(description="The action. `GET .../audit-log/event-types` lists all actions.", examples=["user.invited"])
    target_type: str = Field(description="The type of object that the action changed.", examples=["user"])
    target_id: str = Field(description="The id of this object.")
    ip_address: str | None = Field(description="The IP address of the request, or null for a background job.")
    user_agent: str | None = Field(description="The user agent of the request, or null if it sent none.")
    success: bool = Field(description="Whether the action succeeded. False for refused changes and wrong codes.")
    details: dict[str, Any] = Field(
        description="More information, depending on the action. During an impersonation, `impersonator` has the id and the email address "
        "of the person who acted."
    )
    created_at: Timestamp = Field(description="The time of the action.")


class AuditEntryListResponse(ResponseModel):
    """A page of the audit log."""

    logs: list[AuditEntryResponse] = Field(description="The entries, newest first.")
    pagination: Pagination = Field(
        description="The position of this page. With `success`, `since` or `until`, the newest 10,000 entries that match "
        "have pages, and `total` counts no more."
    )


class AuditFilters(Query):
    """The filters of the audit log. An entry must match all of them."""

    action: Text | None = Field(default=None, description="Only entries with this action.", examples=["user.invited"])
    target_type: Target | None = Field(default=None, description="Only entries about this type of object. Required with `target_id`.")
    target_id: Text | None = Field(default=None, description="Only entries about the object with this id.")
    actor_id: Text | None = Field(default=None, description="Only entries with this actor: an id, `system` or `anonymous`.")
    success: Flag | None = Field(default=None, description="Only entries of actions that succeeded (`true`) or failed (`false`).")
    since: DateTime | None = Field(default=None, description="Only entries of this time and later.", examples=["2026-03-01T00:00:00Z"])
    until: DateTime | None = Field(default=None, description="Only entries before this time.", examples=["2026-04-01T00:00:00Z"])

    def to_filter(self, known_actions: Mapping[str, EventKind] = AUDIT_ACTIONS) -> AuditFilter | None:
        """Return the filter, or None if no entry can match. Raises: TargetTypeRequired."""
        fields = {name: getattr(self, name) for name in AuditFilters.model_fields}
        return audit_model.build_filter(**fields, known_actions=known_actions)


class AuditQuery(AuditFilters, PageQuery):
    """The filters of the audit log, and the page. An entry must match all filters."""


@routes.get("/api/organizations/<org_slug>/audit-log")
@member(Capability.AUDIT_VIEW)
async def list_entries(org_slug: str, query_args: AuditQuery) -> AuditEntryListResponse:
    """List the audit log of the organization.

    Entries are sorted by time, newest first. Filters can be combined.
    """
    entries = await audit.list_entries(ports(), acting(), query_args.to_filter(), query_args.page_request())
    return AuditEntryListResponse(logs=[_to_response(entry) for entry in entries.items], pagination=query_args.pagination(entries.total))


class AuditExportQuery(AuditFilters):
    """The filters of the audit log, and the format. An entry must match all filters."""

    format: ExportFormat = Field(default=ExportFormat.CSV, description="The format: `csv`, or `jsonl` for one JSON object per line.")


@routes.get("/api/organizations/<org_slug>/audit-log/export")
@member(Capability.AUDIT_VIEW)
@describes({200: "The entries, newest first."}, content_type=CSV, other_content_types=(JSON_LINES,))
async def export(org_slug: str, query_args: AuditExportQuery) -> Response:
    """Export the audit log of the organization.

    The export has all entries that match, newest first. A line of JSON has the fields of
    `GET .../audit-log/{entry_id}`. In CSV, `details` is JSON, and a cell that a spreadsheet would
    run as a formula has an apostrophe before it.
    """
    batches = audit.export(ports(), acting(), query_args.to_filter())
    return await stream_entries(batches, query_args.format, f"audit-log-{org_slug}", _to_response)


@routes.get("/api/organizations/<org_slug>/audit-log/<entry_id>")
@member(Capability.AUDIT_VIEW)
async def get_entry(org_slug: str, entry_id: UUID) -> AuditEntryResponse:
    """Return an entry of the audit log.

    The entry has the same fields as in the list.
    """
    return _to_response(await audit.get_entry(ports(), acting(), entry_id))


def _to_response(entry: AuditEntry) -> AuditEntryResponse:
    return AuditEntryResponse(**audit_model.to_json(entry))


class AuditEventTypeResponse(ResponseModel):
    """An action that the audit log can contain."""

    value: str = Field(description="The action, as in the field `action` of an entry.", examples=["user.invited"])
    label: str = Field(description="The name to show to people.", examples=["User invited"])
    category: str = Field(description="The category, for grouping in a user interface.", examples=["User management"])


@routes.get("/api/organizations/<org_slug>/audit-log/event-types")
@member(Capability.AUDIT_VIEW)
async def list_event_types(org_slug: str) -> list[AuditEventTypeResponse]:
    """List the actions that the audit log can contain.

    Use `value` as the filter `action` of the audit log. The list is the same for all organizations.
    """
    return [AuditEventTypeResponse(value=kind.name, label=kind.label, category=kind.category) for kind in AUDIT_ACTIONS.values()]
