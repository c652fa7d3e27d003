"""The pages for an organization's audit log, and for the platform's log: list, entry, and export."""

import json
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from quart import Blueprint, Response, request

from core.eventing import audit
from core.eventing.model.audit import Period, SearchRefused
from core.eventing.model.sentences import DescribedEntry, detail_rows, group_entries
from core.kernel.display import to_words
from core.kernel.event_catalog import AUDIT_ACTIONS, PLATFORM_ACTIONS, EventKind, Target
from core.kernel.roles import Capability
from core.kernel.values import PageResult
from entrypoints.http.api.eventing.audit import (
    CSV,
    JSON_LINES,
    AuditEntryResponse,
    AuditExportQuery,
    AuditQuery,
    PlatformAuditExportQuery,
    PlatformAuditQuery,
    stream_entries,
    to_platform_response,
    to_response,
)
from entrypoints.http.base.context import acting_member, ports
from entrypoints.http.base.rendering.labels import label
from entrypoints.http.edge.access import member_page, platform_page
from entrypoints.http.edge.openapi import describes
from entrypoints.http.pages.console import console_page, neighbors, organization_path, shows, with_query

routes = Blueprint("log_pages", __name__)

LOG: Final = "/app/organizations/<org_slug>/audit-log"
PLATFORM_LOG: Final = "/app/platform/log"
API: Final = "/api/organizations/<org_slug>/audit-log"
PLATFORM_API: Final = "/api/platform/audit-log"
PERIODS: Final = [("", "All time"), (Period.HOUR, "Last hour"), (Period.DAY, "Last 24 hours"), (Period.WEEK, "Last 7 days")]
RESULTS: Final = [("", "All results"), ("true", "Succeeded"), ("false", "Failed or refused")]
FILE: Final = {200: "The entries, newest first."}
FILTERS: Final = (
    *("search", "actor", "target", "category", "action", "success", "since", "until", "period"),
    *("target_type", "target_id", "actor_id", "impersonator_id", "session_id"),
)
SEARCHES: Final = ("search", "actor", "target")  # the filters by text
OBJECTS: Final = {
    Target.SERVICE.value: "Application",
    Target.API_KEY.value: "API key",
    Target.API_RESOURCE.value: "API resource",
    Target.GROUP.value: "Group",
}
NO_ENTRIES: Final[PageResult[DescribedEntry]] = PageResult([], 0)


def _actions(kinds: Iterable[EventKind]) -> list[tuple[str, Any]]:
    """Return the options for the action filter, grouped by category."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for kind in kinds:
        groups.setdefault(kind.category, []).append((kind.name, kind.label))
    return [("", "All events"), *((category, sorted(entries, key=lambda entry: entry[1])) for category, entries in sorted(groups.items()))]


def _categories(kinds: Iterable[EventKind]) -> list[tuple[str, str]]:
    return [("", "All groups"), *((category, category) for category in sorted({kind.category for kind in kinds}))]


ACTIONS: Final = _actions(AUDIT_ACTIONS.values())
ACTIONS_OF_PLATFORM: Final = _actions(PLATFORM_ACTIONS.values())


async def _list_page(
    load: Awaitable[PageResult[DescribedEntry]], query: AuditQuery | PlatformAuditQuery, kinds: Mapping[str, EventKind], **values: Any
) -> Response:
    entries, refusal = NO_ENTRIES, None
    chosen = {name: request.args.get(name, "") for name in FILTERS}
    try:
        entries = await load
    except SearchRefused as refused:
        refusal = refused
    return await console_page(
        "eventing/log.html",
        groups=group_entries(entries.items),
        problem=refusal and refusal.message,
        wrong=next((name for name in SEARCHES if refusal and chosen[name].strip() == refusal.text), None),
        categories=_categories(kinds.values()),
        periods=PERIODS,
        objects=OBJECTS,
        labels={name: kind.label for name, kind in kinds.items()},
        chosen=chosen,
        narrowed=_narrowed(chosen, entries.items),
        is_filtered=any(chosen.values()),
        results=RESULTS,
        files={format_: with_query(page=None, limit=None, format=format_) for format_ in ("csv", "jsonl")},
        **values,
        **neighbors(query, entries.total),
    )


def _narrowed(chosen: Mapping[str, str], entries: Sequence[DescribedEntry]) -> list[tuple[str, str]]:
    """Return the id filters, which have no form field. Every filter has the query that removes it."""
    first = entries[0] if entries else None
    actor = None if first is None else first.entry.actor.email if first.actor is None else first.actor.text
    target = None if first is None or first.target is None else first.target.text
    shown = [
        ("Actor", actor or chosen["actor_id"], ("actor_id",)),
        ("About", target or chosen["target_id"], ("target_id", "target_type")),
        ("About", "" if chosen["target_id"] else label(chosen["target_type"], OBJECTS), ("target_type",)),
        ("Impersonation", chosen["session_id"], ("session_id",)),
        ("Impersonator", chosen["impersonator_id"], ("impersonator_id",)),
    ]
    return [
        (f"{title}: {text}", with_query(page=None, **dict.fromkeys(names))) for title, text, names in shown if text and chosen[names[0]]
    ]


@routes.get(LOG)
@member_page(Capability.AUDIT_VIEW)
@shows(f"GET {API}", f"GET {API}/export")
async def show_audit_log(org_slug: str, query_args: AuditQuery) -> Response:
    """List an organization's audit log."""
    entries = audit.list_entries(ports(), acting_member(), query_args.to_filter(), query_args.page_request())
    return await _list_page(entries, query_args, AUDIT_ACTIONS, actions=ACTIONS, path=organization_path("/audit-log"), is_platform=False)


@routes.get(f"{LOG}/export")
@member_page(Capability.AUDIT_VIEW)
@describes(FILE, content_type=CSV, other_content_types=(JSON_LINES,), api=[f"GET {API}/export"])
async def export_audit_log(org_slug: str, query_args: AuditExportQuery) -> Response:
    """Export the entries in an organization's audit log that match the filters."""
    batches = await audit.export(ports(), acting_member(), query_args.to_filter())
    return await stream_entries(batches, query_args.format, f"audit-log-{org_slug}", to_response)


@routes.get(f"{LOG}/<entry_id>")
@member_page(Capability.AUDIT_VIEW)
@shows(f"GET {API}/<entry_id>")
async def show_entry(org_slug: str, entry_id: UUID) -> Response:
    """Show an audit log entry."""
    described = await audit.get_entry(ports(), acting_member(), entry_id)
    return await _entry_page(described, AUDIT_ACTIONS, organization_path("/audit-log"), to_response(described))


async def _entry_page(described: DescribedEntry, kinds: Mapping[str, EventKind], path: str, shown: AuditEntryResponse) -> Response:
    kind, rows = kinds.get(described.entry.action), detail_rows(described)
    return await console_page(
        "eventing/entry.html",
        described=described,
        changes=[row for row in rows if row.old is not None],
        objects=OBJECTS,
        facts=[row for row in rows if row.old is None],
        label=to_words(described.entry.action) if kind is None else kind.label,
        path=path,
        json=json.dumps(json.loads(shown.model_dump_json()), indent=2, ensure_ascii=False),
    )


@routes.get(PLATFORM_LOG)
@platform_page
@shows(f"GET {PLATFORM_API}", f"GET {PLATFORM_API}/export")
async def show_platform_log(query_args: PlatformAuditQuery) -> Response:
    """List the platform's log."""
    entries = audit.list_platform_entries(ports(), query_args.to_platform_filter(), query_args.page_request())
    return await _list_page(entries, query_args, PLATFORM_ACTIONS, actions=ACTIONS_OF_PLATFORM, path=PLATFORM_LOG, is_platform=True)


@routes.get(f"{PLATFORM_LOG}/export")
@platform_page
@describes(FILE, content_type=CSV, other_content_types=(JSON_LINES,), api=[f"GET {PLATFORM_API}/export"])
async def export_platform_log(query_args: PlatformAuditExportQuery) -> Response:
    """Export the entries in the platform's log that match the filters."""
    batches = await audit.export_platform(ports(), query_args.to_platform_filter())
    return await stream_entries(batches, query_args.format, "platform-log", to_platform_response)


@routes.get(f"{PLATFORM_LOG}/<entry_id>")
@platform_page
@shows(f"GET {PLATFORM_API}/<entry_id>")
async def show_platform_entry(entry_id: UUID) -> Response:
    """Show an entry in the platform's log."""
    described = await audit.get_platform_entry(ports(), entry_id)
    return await _entry_page(described, PLATFORM_ACTIONS, PLATFORM_LOG, to_platform_response(described))
