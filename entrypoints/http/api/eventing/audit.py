"""An organization's audit log (decision 227), the platform's log (docs/adr/0001), and their export as files."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Any, Final, TypeVar
from uuid import UUID

from pydantic import Field, StringConstraints, WithJsonSchema
from quart import Blueprint, Response

from core.eventing import audit
from core.eventing.model import audit as audit_model
from core.eventing.model.audit import MIN_SEARCH, AuditFilter, AuditSearch, Period
from core.eventing.model.sentences import DescribedEntry
from core.kernel import event_catalog
from core.kernel.roles import Capability
from core.kernel.values import Batches, rfc3339
from entrypoints.http import kit
from entrypoints.http.edge.streaming import stream_lines

CSV: Final = "text/csv"
JSON_LINES: Final = "application/x-ndjson"
COLUMNS: Final = (
    *("id", "created_at", "action", "success", "actor_id", "actor_email", "impersonator_id", "impersonator_email"),
    *("target_type", "target_id", "ip_address", "user_agent", "details", "actor_kind", "actor_name"),
    *("sentence", "target_name"),
)
# Spreadsheets run cells with these first characters as formulas. Clients choose their user agents.
FORMULA_STARTS: Final = ("=", "+", "-", "@", "\t", "\r")

T = TypeVar("T")


class ExportFormat(StrEnum):
    """An export's format."""

    CSV = "csv"
    JSON_LINES = "jsonl"


async def stream_entries(
    batches: Batches[DescribedEntry], format_: ExportFormat, name: str, to_response: Callable[[DescribedEntry], kit.ResponseModel]
) -> Response:
    """Return all entries as a streamed file (`stream_file`). In CSV, `details` is JSON."""
    return await stream_file(batches, format_, name, COLUMNS, _cells, to_response)


async def stream_file(
    batches: Batches[T],
    format_: ExportFormat,
    name: str,
    columns: Sequence[str],
    to_cells: Callable[[T], Iterable[str]],
    to_response: Callable[[T], kit.ResponseModel],
) -> Response:
    """Return all items as a streamed file with this name.

    The format's extension is added.

    A JSON line is an item's response. In CSV, a cell that a spreadsheet would run as a formula has an apostrophe before
    it.
    """

    def to_csv(items: Sequence[T]) -> bytes:
        return _csv_lines([_safe_cells(to_cells(item)) for item in items])

    def to_json_lines(items: Sequence[T]) -> bytes:
        return b"".join(to_response(item).model_dump_json().encode() + b"\n" for item in items)

    if format_ is ExportFormat.CSV:
        return await stream_lines(batches, to_csv, f"{CSV}; charset=utf-8", f"{name}.csv", header=_csv_lines([columns]))
    return await stream_lines(batches, to_json_lines, JSON_LINES, f"{name}.jsonl")


def _cells(described: DescribedEntry) -> list[str]:
    entry = described.entry
    impersonator = entry.impersonator
    return [
        *(str(entry.id), rfc3339(entry.created_at), entry.action, str(entry.success).lower(), entry.actor.id, entry.actor.email),
        *(("", "") if impersonator is None else (impersonator.id, impersonator.email)),
        *(entry.target_type, entry.target_id, entry.address or "", entry.agent or ""),
        *(json.dumps(dict(entry.details), ensure_ascii=False), entry.actor.kind, entry.actor.name or ""),
        *(described.sentence, "" if described.target is None else described.target.text),
    ]


def _safe_cells(values: Iterable[str]) -> list[str]:
    return [f"'{value}" if value.startswith(FORMULA_STARTS) else value for value in values]


def _csv_lines(rows: Sequence[Sequence[Any]]) -> bytes:
    """Return the rows in RFC 4180's format."""
    lines = io.StringIO(newline="")
    csv.writer(lines).writerows(rows)
    return lines.getvalue().encode()


routes = Blueprint("audit", __name__)

BUILT: Final = ("action", "target_type", "target_id", "actor_id", "success", "since", "until")  # the filters that need no names
# A part of an address or name. Spaces around it do not count.
SearchText = Annotated[kit.Text, StringConstraints(strip_whitespace=True), WithJsonSchema({"type": "string", "minLength": MIN_SEARCH})]


class AuditActorResponse(kit.ResponseModel):
    """An entry's actor: a user, a service account, an API key, a SCIM token, or an actor without account."""

    id: str = Field(
        description="The id of the user, service account, API key or SCIM token. Or `system` for a background job, `anonymous` for a "
        "caller without a session, `unknown` for a deleted account."
    )
    email: str = Field(description="The user's email address, or a placeholder for other actors.", examples=["ada@example.com"])
    is_platform_owner: bool = Field(description="Whether the actor is a platform owner.")
    kind: str = Field(
        description="`user`, `service_account`, `api_key`, `scim_token`, `registration_token`, `setup_link`, `system` or `anonymous`."
    )
    name: str | None = Field(description="The name that a service account or a set-up link had when it acted, and null for other actors.")


class AuditLocationResponse(kit.ResponseModel):
    """An IP address's place."""

    city: str | None = Field(description="The city, in English.", examples=["Zurich"])
    country: str = Field(description="The country as an ISO 3166-1 alpha-2 code.", examples=["CH"])


class AuditEntryResponse(kit.ResponseModel):
    """An audit log entry."""

    id: UUID = Field(description="The id of the entry.")
    org_id: UUID = Field(description="The id of the organization.")
    actor: AuditActorResponse = Field(description="The actor. During an impersonation, this is the impersonated user.")
    action: str = Field(description="The action. `GET .../audit-log/event-types` lists all actions.", examples=["user.invited"])
    target_type: str = Field(description="The type of object that the action changed.", examples=["user"])
    target_id: str = Field(description="The id of this object.")
    ip_address: str | None = Field(description="The IP address of the request, or null for a background job or a platform owner.")
    user_agent: str | None = Field(description="The user agent of the request, or null if it sent none, or for a platform owner.")
    success: bool = Field(description="Whether the action succeeded. False for refused changes and wrong codes.")
    details: dict[str, Any] = Field(
        description="More information, depending on the action. During an impersonation, `impersonator` has the id and the email address "
        "of the person who acted."
    )
    created_at: kit.Timestamp = Field(description="The time of the action.")
    sentence: str = Field(
        description="The entry as an English sentence with the names of today, which are not stored.",
        examples=["owner@acme.example changed kai@acme.example from member to admin"],
    )
    actor_name: str | None = Field(
        description="The name of the user, API key, SCIM token or service account. Null if it has none, or if the user is"
        " no confirmed member."
    )
    target_name: str | None = Field(
        description="The email address or the name of the object today. Null if it has none, or if the user is unknown here."
    )
    location: AuditLocationResponse | None = Field(description="The place of the IP address, or null if it is unknown.")


class AuditEntryListResponse(kit.ResponseModel):
    """A page of the audit log."""

    logs: list[AuditEntryResponse] = Field(description="The entries, newest first.")
    pagination: kit.Pagination = Field(
        description="The position of this page. With a filter by success, time or text, the newest 10,000 entries "
        "that match have pages, and `total` counts no more."
    )


class AuditFilters(kit.Query):
    """The audit log's filters. An entry must match all filters."""

    action: kit.Text | None = Field(default=None, description="Only entries with this action.", examples=["user.invited"])
    target_type: event_catalog.Target | None = Field(
        default=None, description="Only entries about this type of object. Required with `target_id`."
    )
    target_id: kit.Text | None = Field(default=None, description="Only entries about the object with this id.")
    actor_id: kit.Text | None = Field(default=None, description="Only entries with this actor: an id, `system` or `anonymous`.")
    success: kit.Flag | None = Field(default=None, description="Only entries of actions that succeeded (`true`) or failed (`false`).")
    since: kit.DateTime | None = Field(default=None, description="Only entries of this time and later.", examples=["2026-03-01T00:00:00Z"])
    until: kit.DateTime | None = Field(default=None, description="Only entries before this time.", examples=["2026-04-01T00:00:00Z"])

    category: kit.Text | None = Field(
        default=None,
        description="Only entries with actions of this category, as in `GET .../audit-log/event-types`.",
        examples=["Security"],
    )
    period: Period | None = Field(default=None, description="Only entries of the last hour (`1h`), 24 hours (`24h`) or 7 days (`7d`).")
    actor: SearchText | None = Field(
        default=None,
        description="Only entries with an actor that has this text in the email address or name. Like `target` and "
        "`search`, it searches today's names, in the last 90 days unless `since` or `period` is set. For "
        "applications' users, it finds the beginning of the address.",
        examples=["owner@acme.example"],
    )
    target: SearchText | None = Field(
        default=None, description="Only entries about an object with this text in the address or name.", examples=["kai"]
    )
    search: SearchText | None = Field(
        default=None, description="Only entries whose actor or object has this text in the address or name.", examples=["kai"]
    )

    def to_filter(self, known_actions: Mapping[str, event_catalog.EventKind] = event_catalog.AUDIT_ACTIONS) -> AuditFilter | None:
        """Return the filter, or None if no entry can match."""
        fields = {name: getattr(self, name) for name in BUILT}
        filter_ = audit_model.restrict_to_category(
            audit_model.build_filter(**fields, known_actions=known_actions), self.category, known_actions
        )
        search = AuditSearch(actor=self.actor, target=self.target, either=self.search, period=self.period)
        return filter_ if filter_ is None or search == AuditSearch() else replace(filter_, search=search)


class AuditQuery(AuditFilters, kit.PageQuery):
    """The audit log's filters, and the page. An entry must match all filters."""


@routes.get("/api/organizations/<org_slug>/audit-log")
@kit.member(Capability.AUDIT_VIEW)
async def list_entries(org_slug: str, query_args: AuditQuery) -> AuditEntryListResponse:
    """List the organization's audit log.

    Entries are sorted by time, newest first. Filters can be combined.
    """
    entries = await audit.list_entries(kit.ports(), kit.acting(), query_args.to_filter(), query_args.page_request())
    return AuditEntryListResponse(logs=[to_response(entry) for entry in entries.items], pagination=query_args.pagination(entries.total))


class AuditExportQuery(AuditFilters):
    """The audit log's filters, and the format. An entry must match all filters."""

    format: ExportFormat = Field(default=ExportFormat.CSV, description="The format: `csv`, or `jsonl` for one JSON object per line.")


@routes.get("/api/organizations/<org_slug>/audit-log/export")
@kit.member(Capability.AUDIT_VIEW)
@kit.describes({200: "The entries, newest first."}, content_type=CSV, other_content_types=(JSON_LINES,))
async def export(org_slug: str, query_args: AuditExportQuery) -> Response:
    """Export the organization's audit log.

    The export has all entries that match, newest first. A JSON line has the same fields as `GET
    .../audit-log/{entry_id}`. In CSV, `details` is JSON, and a cell that a spreadsheet would run as a formula has an
    apostrophe before it.
    """
    batches = await audit.export(kit.ports(), kit.acting(), query_args.to_filter())
    return await stream_entries(batches, query_args.format, f"audit-log-{org_slug}", to_response)


@routes.get("/api/organizations/<org_slug>/audit-log/<entry_id>")
@kit.member(Capability.AUDIT_VIEW)
async def get_entry(org_slug: str, entry_id: UUID) -> AuditEntryResponse:
    """Return an audit log entry.

    The entry has the same fields as in the list.
    """
    return to_response(await audit.get_entry(kit.ports(), kit.acting(), entry_id))


def to_response(described: DescribedEntry) -> AuditEntryResponse:
    """Return the response for an entry."""
    return AuditEntryResponse(**to_json(described))


def to_json(described: DescribedEntry) -> dict[str, Any]:
    """Return the fields in an entry's response."""
    actor, target, location = described.actor, described.target, described.location
    is_user = described.entry.actor.kind == "user"
    return {
        **audit_model.to_json(described.entry),
        "sentence": described.sentence,
        "actor_name": None if actor is None else actor.person if is_user else actor.text,
        "target_name": None if target is None else target.text,
        "location": None if location is None else {"city": location.city, "country": location.country},
    }


class AuditEventTypeResponse(kit.ResponseModel):
    """An action that the audit log can contain."""

    value: str = Field(description="The action, as in the field `action` of an entry.", examples=["user.invited"])
    label: str = Field(description="The name to show to people.", examples=["User invited"])
    category: str = Field(description="The category, for grouping in a user interface.", examples=["User management"])


@routes.get("/api/organizations/<org_slug>/audit-log/event-types")
@kit.member(Capability.AUDIT_VIEW)
async def list_event_types(org_slug: str) -> list[AuditEventTypeResponse]:
    """List the actions that the audit log can contain.

    Use `value` as the audit log's filter `action`. The list is the same for all organizations.
    """
    return [
        AuditEventTypeResponse(value=kind.name, label=kind.label, category=kind.category) for kind in event_catalog.AUDIT_ACTIONS.values()
    ]


class PlatformAuditEntryResponse(AuditEntryResponse):
    """An entry in the platform's log. It has the same fields as an organization's audit log."""

    org_id: None = Field(description="Always null: the entry belongs to no organization.")  # type: ignore[assignment]


class PlatformAuditEntryListResponse(kit.ResponseModel):
    """A page of the platform's log."""

    logs: list[PlatformAuditEntryResponse] = Field(description="The entries, newest first.")
    pagination: kit.Pagination = Field(
        description="The position of this page. The newest 10,000 entries that match have pages, and `total` counts no more."
    )


class PlatformAuditFilters(AuditFilters):
    """The platform log's filters. An entry must match all filters."""

    action: kit.Text | None = Field(default=None, description="Only entries with this action.", examples=["user.impersonated"])
    impersonator_id: kit.Text | None = Field(default=None, description="Only entries of this platform owner's impersonations.")
    session_id: kit.Text | None = Field(
        default=None, description="Only entries of this impersonation: its start with the reason, and its requests."
    )

    def to_platform_filter(self) -> AuditFilter | None:
        """Return the filter, or None if no entry can match."""
        return audit_model.to_platform_filter(self.to_filter(event_catalog.PLATFORM_ACTIONS), self.impersonator_id, self.session_id)


class PlatformAuditQuery(PlatformAuditFilters, kit.PageQuery):
    """The platform log's filters, and the page. An entry must match all filters."""


@routes.get("/api/platform/audit-log")
@kit.platform_owner(Capability.PLATFORM_AUDIT_VIEW)
async def list_platform_entries(query_args: PlatformAuditQuery) -> PlatformAuditEntryListResponse:
    """List the platform's log.

    It has the events that belong to no organization: impersonations with their reasons and requests, changes to
    platform owners, their recoveries, deactivated accounts, removed second factors, rejected, suspended and deleted
    organizations, and events about users without an organization. Entries are sorted by time, newest first. Filters can
    be combined.
    """
    entries = await audit.list_entries(kit.ports(), None, query_args.to_platform_filter(), query_args.page_request())
    return PlatformAuditEntryListResponse(
        logs=[to_platform_response(entry) for entry in entries.items], pagination=query_args.pagination(entries.total)
    )


class PlatformAuditExportQuery(PlatformAuditFilters):
    """The platform log's filters, and the format. An entry must match all filters."""

    format: ExportFormat = Field(default=ExportFormat.CSV, description="The format: `csv`, or `jsonl` for one JSON object per line.")


@routes.get("/api/platform/audit-log/export")
@kit.platform_owner(Capability.PLATFORM_AUDIT_VIEW)
@kit.describes({200: "The entries, newest first."}, content_type=CSV, other_content_types=(JSON_LINES,))
async def export_platform(query_args: PlatformAuditExportQuery) -> Response:
    """Export the platform's log.

    The export has all entries that match, newest first. A JSON line has the same fields as `GET
    /api/platform/audit-log/{entry_id}`. In CSV, `details` is JSON, and a cell that a spreadsheet would run as a formula
    has an apostrophe before it.
    """
    batches = await audit.export(kit.ports(), None, query_args.to_platform_filter())
    return await stream_entries(batches, query_args.format, "platform-log", to_platform_response)


@routes.get("/api/platform/audit-log/<entry_id>")
@kit.platform_owner(Capability.PLATFORM_AUDIT_VIEW)
async def get_platform_entry(entry_id: UUID) -> PlatformAuditEntryResponse:
    """Return an entry in the platform's log.

    The `audit_log_id` in an impersonation's response is the id of such an entry.
    """
    return to_platform_response(await audit.get_entry(kit.ports(), None, entry_id))


def to_platform_response(described: DescribedEntry) -> PlatformAuditEntryResponse:
    """Return the response for an entry."""
    return PlatformAuditEntryResponse(**to_json(described))
