"""The platform's log, for platform owners (docs/adr/0001)."""

from uuid import UUID

from pydantic import Field
from quart import Blueprint, Response

from core.eventing import platform_log
from core.eventing.model import audit
from core.eventing.model.audit import PlatformAuditFilter
from core.eventing.model.sentences import DescribedEntry
from core.kernel.event_catalog import PLATFORM_ACTIONS
from core.kernel.roles import Capability
from entrypoints.http.api.eventing.audit import AuditEntryResponse, AuditFilters, to_json
from entrypoints.http.api.eventing.audit_files import CSV, JSON_LINES, ExportFormat, stream_entries
from entrypoints.http.base.context import ports
from entrypoints.http.edge.access import platform_owner
from entrypoints.http.edge.bodies import ResponseModel, Text
from entrypoints.http.edge.openapi import describes
from entrypoints.http.edge.queries import PageQuery, Pagination

routes = Blueprint("platform_log", __name__)


class PlatformAuditEntryResponse(AuditEntryResponse):
    """An entry in the platform's log. It has the same fields as an organization's audit log."""

    org_id: None = Field(description="Always null: the entry belongs to no organization.")  # type: ignore[assignment]


class PlatformAuditEntryListResponse(ResponseModel):
    """A page of the platform's log."""

    logs: list[PlatformAuditEntryResponse] = Field(description="The entries, newest first.")
    pagination: Pagination = Field(
        description="The position of this page. The newest 10,000 entries that match have pages, and `total` counts no more."
    )


class PlatformAuditFilters(AuditFilters):
    """The platform log's filters. An entry must match all filters."""

    action: Text | None = Field(default=None, description="Only entries with this action.", examples=["user.impersonated"])
    impersonator_id: Text | None = Field(default=None, description="Only entries of this platform owner's impersonations.")
    session_id: Text | None = Field(
        default=None, description="Only entries of this impersonation: its start with the reason, and its requests."
    )

    def to_platform_filter(self) -> PlatformAuditFilter | None:
        """Return the filter, or None if no entry can match."""
        return audit.to_platform_filter(self.to_filter(PLATFORM_ACTIONS), self.impersonator_id, self.session_id)


class PlatformAuditQuery(PlatformAuditFilters, PageQuery):
    """The platform log's filters, and the page. An entry must match all filters."""


@routes.get("/api/platform/audit-log")
@platform_owner(Capability.PLATFORM_AUDIT_VIEW)
async def list_entries(query_args: PlatformAuditQuery) -> PlatformAuditEntryListResponse:
    """List the platform's log.

    It has the events that belong to no organization: impersonations with their reasons and requests, changes to
    platform owners, their recoveries, deactivated accounts, removed second factors, rejected, suspended and deleted
    organizations, and events about users without an organization. Entries are sorted by time, newest first. Filters can
    be combined.
    """
    entries = await platform_log.list_entries(ports(), query_args.to_platform_filter(), query_args.page_request())
    return PlatformAuditEntryListResponse(
        logs=[to_response(entry) for entry in entries.items], pagination=query_args.pagination(entries.total)
    )


class PlatformAuditExportQuery(PlatformAuditFilters):
    """The platform log's filters, and the format. An entry must match all filters."""

    format: ExportFormat = Field(default=ExportFormat.CSV, description="The format: `csv`, or `jsonl` for one JSON object per line.")


@routes.get("/api/platform/audit-log/export")
@platform_owner(Capability.PLATFORM_AUDIT_VIEW)
@describes({200: "The entries, newest first."}, content_type=CSV, other_content_types=(JSON_LINES,))
async def export(query_args: PlatformAuditExportQuery) -> Response:
    """Export the platform's log.

    The export has all entries that match, newest first. A JSON line has the same fields as `GET
    /api/platform/audit-log/{entry_id}`. In CSV, `details` is JSON, and a cell that a spreadsheet would run as a formula
    has an apostrophe before it.
    """
    batches = await platform_log.export(ports(), query_args.to_platform_filter())
    return await stream_entries(batches, query_args.format, "platform-log", to_response)


@routes.get("/api/platform/audit-log/<entry_id>")
@platform_owner(Capability.PLATFORM_AUDIT_VIEW)
async def get_entry(entry_id: UUID) -> PlatformAuditEntryResponse:
    """Return an entry in the platform's log.

    The `audit_log_id` in an impersonation's response is the id of such an entry.
    """
    return to_response(await platform_log.get_entry(ports(), entry_id))


def to_response(described: DescribedEntry) -> PlatformAuditEntryResponse:
    """Return the response for an entry."""
    return PlatformAuditEntryResponse(**to_json(described))
