"""Exports audit logs as files: CSV, and JSON lines."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Any, Final, TypeVar

from quart import Response

from core.eventing.model.sentences import DescribedEntry
from core.kernel.values import Batches, rfc3339
from entrypoints.http.edge.bodies import ResponseModel
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
    batches: Batches[DescribedEntry], format_: ExportFormat, name: str, to_response: Callable[[DescribedEntry], ResponseModel]
) -> Response:
    """Return all entries as a streamed file (`stream_file`). In CSV, `details` is JSON."""
    return await stream_file(batches, format_, name, COLUMNS, _cells, to_response)


async def stream_file(
    batches: Batches[T],
    format_: ExportFormat,
    name: str,
    columns: Sequence[str],
    to_cells: Callable[[T], Iterable[str]],
    to_response: Callable[[T], ResponseModel],
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
