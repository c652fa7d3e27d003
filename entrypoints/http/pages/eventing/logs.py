"""The pages for an organization's audit log, and for the platform's log: list, entry, and export."""

import json
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from quart import Blueprint, Response, request

from core.eventing import audit
from core.eventing.model import sentences
from core.eventing.model.audit import Period, SearchRefused
from core.kernel import event_catalog
from core.kernel.display import to_words
from core.kernel.roles import Capability
from core.kernel.values import PageResult
from entrypoints.http import kit
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
from entrypoints.http.pages import console

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
    event_catalog.Target.SERVICE.value: "Application",
    event_catalog.Target.API_KEY.value: "API key",
    event_catalog.Target.API_RESOURCE.value: "API resource",
    event_catalog.Target.GROUP.value: "Group",
}
NO_ENTRIES: Final[PageResult[sentences.DescribedEntry]] = PageResult([], 0)


def _actions(kinds: Iterable[event_catalog.EventKind]) -> list[tuple[str, Any]]:
    """Return the options for the action filter, grouped by category."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for kind in kinds:
        groups.setdefault(kind.category, []).append((kind.name, kind.label))
    return [("", "All events"), *((category, sorted(entries, key=lambda entry: entry[1])) for category, entries in sorted(groups.items()))]


def _categories(kinds: Iterable[event_catalog.EventKind]) -> list[tuple[str, str]]:
    return [("", "All groups"), *((category, category) for category in sorted({kind.category for kind in kinds}))]


ACTIONS: Final = _actions(event_catalog.AUDIT_ACTIONS.values())
ACTIONS_OF_PLATFORM: Final = _actions(event_catalog.PLATFORM_ACTIONS.values())


async def _list_page(
    load: Awaitable[PageResult[sentences.DescribedEntry]],
    query: AuditQuery | PlatformAuditQuery,
    kinds: Mapping[str, event_catalog.EventKind],
    **values: Any,
) -> Response:
    entries, refusal = NO_ENTRIES, None
    chosen = {name: request.args.get(name, "") for name in FILTERS}
    try:
        entries = await load
    except SearchRefused as refused:
        refusal = refused
    return await console.console_page(
        "eventing/log.html",
        groups=sentences.group_entries(entries.items),
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
        files={format_: console.with_query(page=None, limit=None, format=format_) for format_ in ("csv", "jsonl")},
        **values,
        **console.neighbors(query, entries.total),
    )


def _narrowed(chosen: Mapping[str, str], entries: Sequence[sentences.DescribedEntry]) -> list[tuple[str, str]]:
    """Return the id filters, which have no form field. Every filter has the query that removes it."""
    first = entries[0] if entries else None
    actor = None if first is None else first.entry.actor.email if first.actor is None else first.actor.text
    target = None if first is None or first.target is None else first.target.text
    shown = [
        ("Actor", actor or chosen["actor_id"], ("actor_id",)),
        ("About", target or chosen["target_id"], ("target_id", "target_type")),
        ("About", "" if chosen["target_id"] else kit.label(chosen["target_type"], OBJECTS), ("target_type",)),
        ("Impersonation", chosen["session_id"], ("session_id",)),
        ("Impersonator", chosen["impersonator_id"], ("impersonator_id",)),
    ]
    return [
        (f"{title}: {text}", console.with_query(page=None, **dict.fromkeys(names)))
        for title, text, names in shown
        if text and chosen[names[0]]
    ]


@routes.get(LOG)
@kit.member_page(Capability.AUDIT_VIEW)
@console.shows(f"GET {API}", f"GET {API}/export")
async def show_audit_log(org_slug: str, query_args: AuditQuery) -> Response:
    """List an organization's audit log."""
    entries = audit.list_entries(kit.ports(), kit.acting_member(), query_args.to_filter(), query_args.page_request())
    return await _list_page(
        entries, query_args, event_catalog.AUDIT_ACTIONS, actions=ACTIONS, path=console.organization_path("/audit-log"), is_platform=False
    )


@routes.get(f"{LOG}/export")
@kit.member_page(Capability.AUDIT_VIEW)
@kit.describes(FILE, content_type=CSV, other_content_types=(JSON_LINES,), api=[f"GET {API}/export"])
async def export_audit_log(org_slug: str, query_args: AuditExportQuery) -> Response:
    """Export the entries in an organization's audit log that match the filters."""
    batches = await audit.export(kit.ports(), kit.acting_member(), query_args.to_filter())
    return await stream_entries(batches, query_args.format, f"audit-log-{org_slug}", to_response)


@routes.get(f"{LOG}/<entry_id>")
@kit.member_page(Capability.AUDIT_VIEW)
@console.shows(f"GET {API}/<entry_id>")
async def show_entry(org_slug: str, entry_id: UUID) -> Response:
    """Show an audit log entry."""
    described = await audit.get_entry(kit.ports(), kit.acting_member(), entry_id)
    return await _entry_page(described, event_catalog.AUDIT_ACTIONS, console.organization_path("/audit-log"), to_response(described))


async def _entry_page(
    described: sentences.DescribedEntry, kinds: Mapping[str, event_catalog.EventKind], path: str, shown: AuditEntryResponse
) -> Response:
    kind, rows = kinds.get(described.entry.action), sentences.detail_rows(described)
    return await console.console_page(
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
@kit.platform_page
@console.shows(f"GET {PLATFORM_API}", f"GET {PLATFORM_API}/export")
async def show_platform_log(query_args: PlatformAuditQuery) -> Response:
    """List the platform's log."""
    entries = audit.list_entries(kit.ports(), None, query_args.to_platform_filter(), query_args.page_request())
    return await _list_page(
        entries, query_args, event_catalog.PLATFORM_ACTIONS, actions=ACTIONS_OF_PLATFORM, path=PLATFORM_LOG, is_platform=True
    )


@routes.get(f"{PLATFORM_LOG}/export")
@kit.platform_page
@kit.describes(FILE, content_type=CSV, other_content_types=(JSON_LINES,), api=[f"GET {PLATFORM_API}/export"])
async def export_platform_log(query_args: PlatformAuditExportQuery) -> Response:
    """Export the entries in the platform's log that match the filters."""
    batches = await audit.export(kit.ports(), None, query_args.to_platform_filter())
    return await stream_entries(batches, query_args.format, "platform-log", to_platform_response)


@routes.get(f"{PLATFORM_LOG}/<entry_id>")
@kit.platform_page
@console.shows(f"GET {PLATFORM_API}/<entry_id>")
async def show_platform_entry(entry_id: UUID) -> Response:
    """Show an entry in the platform's log."""
    described = await audit.get_entry(kit.ports(), None, entry_id)
    return await _entry_page(described, event_catalog.PLATFORM_ACTIONS, PLATFORM_LOG, to_platform_response(described))
