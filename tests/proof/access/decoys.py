"""The decoy: a copy of the home organization whose rows all share the same values.

All rows share an id, a hash, an email address, a URL, a domain and a text. In every table, the decoy's id is the key of
a row. So a single request with this id in a field shows whether any statement looks up that field without the caller's
organization, in any column. The decoy's rows need not make sense. It is enough that such a statement finds them.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final
from uuid import UUID

from core.kernel.values import digest
from tests.proof.access.state import Row, State

ID: Final = re.compile(r"[0-9a-f]{8}-.*")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d.*")

# The decoy's texts by shape. A text has the first shape that matches.
SHAPES: Final = {
    "id": ID,
    "hash": re.compile(r"[0-9a-f]{64}"),
    "email": re.compile(r"[^@\s]+@[^@\s]+"),
    "url": re.compile(r"https?://.*"),
    "domain": re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)+"),
    "text": re.compile(r"[^$\n][^\n]{,200}"),  # keys, certificates and password hashes stay as they are
}
DECOYS: Final = {
    "id": str(UUID(bytes=digest("decoy")[:16], version=4)),
    "hash": digest("no secret has this hash").hex(),
    "email": "decoy@decoy.example",
    "url": "https://decoy.example/decoy",
    "domain": "decoy.example",
    "text": "decoy-text",  # long, so that no random token contains it, even if the case is ignored
}

# Columns that have a time if the row is not valid any longer.
_ENDS: Final = ("ended_at", "revoked_at", "deactivated_at", "used_at", "rotated_at", "finished_at", "answered_at", "anonymized_at")


def shape(text: str) -> str | None:
    """Return the name of a text's shape, or None for a text without a shape."""
    return next((name for name, pattern in SHAPES.items() if pattern.fullmatch(text)), None)


def texts(value: Any) -> Iterator[str]:
    """Yield every text in a JSON value except times, and bytes as hexadecimal digits. A text can be a JSON object itself."""
    match value:
        case dict():
            for item in value.values():
                yield from texts(item)
        case list():
            for item in value:
                yield from texts(item)
        case str() if value.startswith('{"'):
            yield from texts(json.loads(value))
        case str() if not _TIME.fullmatch(value):
            yield value.removeprefix("\\x").lower()


def decoys_of(rows: State, private: Mapping[str, str]) -> list[Row]:
    """Return candidates for decoy rows: these rows, with the decoy's texts in place of private texts.

    A table's best candidates come first: valid rows with many private texts. Later candidates can have the same key.
    """

    def replaced(value: Any) -> Any:
        match value:
            case dict():
                return {name: replaced(item) for name, item in value.items()}
            case list():
                return [replaced(item) for item in value]
            case str() if (text := value.removeprefix("\\x").lower()) in private:
                kind = shape(text)
                if value.startswith("\\x"):  # bytes: a hash, or a salt or ciphertext, which stays
                    return f"\\x{DECOYS[kind]}" if kind == "hash" else value
                return DECOYS[kind] if kind else value
        return value

    def ended(row: dict[str, Any]) -> int:
        return sum(row.get(name) is not None for name in _ENDS)

    def latest_first(row: dict[str, Any]) -> str:
        return "".join(chr(0x10FFFF - ord(letter)) for letter in row.get("expires_at") or "~")

    def known(row: dict[str, Any]) -> int:
        return -sum(text in private for text in texts(row))

    parsed = [(table, json.loads(row)) for table, row in sorted(rows)]
    parsed.sort(key=lambda one: (one[0], ended(one[1]), known(one[1]), latest_first(one[1])))
    return [(table, json.dumps(replaced(row))) for table, row in parsed]
