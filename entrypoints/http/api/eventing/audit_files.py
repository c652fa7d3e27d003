"""Exports of audit logs as files: CSV, and JSON lines."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Any, Final

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


class ExportFormat(StrEnum):
    """The format of an export."""

    CSV = "csv"
    JSON_LINES = "jsonl"


async def stream_entries(
    batches: Batches[DescribedEntry], format_: ExportFormat, name: str, to_response: Callable[[DescribedEntry], ResponseModel]
) -> Response:
    """Return all entries as a streamed file with this name. The extension of the format is added.

    A line of JSON is the response of an entry. In CSV, `details` is JSON.
    """
    if format_ is ExportFormat.CSV:
        return await stream_lines(batches, _to_csv, f"{CSV}; charset=utf-8", f"{name}.csv", header=csv_lines([COLUMNS]))

    def to_json_lines(entries: Sequence[DescribedEntry]) -> bytes:
        return b"".join(to_response(entry).model_dump_json().encode() + b"\n" for entry in entries)

    return await stream_lines(batches, to_json_lines, JSON_LINES, f"{name}.jsonl")


def _to_csv(entries: Sequence[DescribedEntry]) -> bytes:
    return csv_lines([_cells(entry) for entry in entries])


def _cells(described: DescribedEntry) -> list[str]:
    entry = described.entry
    impersonator = entry.impersonator
    values = (
        *(str(entry.id), rfc3339(entry.created_at), entry.action, str(entry.success).lower(), entry.actor.id, entry.actor.email),
        *(("", "") if impersonator is None else (impersonator.id, impersonator.email)),
        *(entry.target_type, entry.target_id, entry.address or "", entry.agent or ""),
        *(json.dumps(dict(entry.details), ensure_ascii=False), entry.actor.kind, entry.actor.name or ""),
        *(described.sentence, "" if described.target is None else described.target.text),
    )
    return safe_cells(values)


def safe_cells(values: Iterable[str]) -> list[str]:
    """Return the cells, with an apostrophe before those that a spreadsheet would run as a formula."""
    return [f"'{value}" if value.startswith(FORMULA_STARTS) else value for value in values]


def csv_lines(rows: Sequence[Sequence[Any]]) -> bytes:
    """Return the rows in the format of RFC 4180."""
    lines = io.StringIO(newline="")
    csv.writer(lines).writerows(rows)
    return lines.getvalue().encode()
