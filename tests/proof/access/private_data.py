"""The home organization's data, which no response to another tenant may contain."""

import base64
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any
from urllib.parse import quote, quote_plus

from markupsafe import escape

from tests.proof.access.decoys import DECOYS, ID, shape, texts
from tests.proof.access.state import State
from tests.proof.access.world import HOME, SLUGS, World, reason_of
from tests.support.builders import Answer

# Logs, and values that users do not choose.
LEFT_BEHIND = {
    "webhook_deliveries",
    "audit_log",
    "events",
    "login_events",
    "logout_notices",
    "mfa_events",
    "privacy_log",
    "sessions",
    "devices",
    "identities",
    "passkeys",
}

_TOKEN = re.compile(r"eyJ[\w-]+\.(eyJ[\w-]+)\.[\w-]+")
_HEX = re.compile(r"[0-9a-f]{8,}")


class Index:
    """The private texts by a part of them. Few parts occur in a response, and searching all texts would be slow.

    Pages have most lines in common, so every line is searched once.
    """

    def __init__(self, private: Iterable[tuple[str, str]]) -> None:
        self._in_line = lru_cache(10_000)(self._search)
        self._by_digits: dict[str, list[tuple[str, str]]] = {}  # the first eight hexadecimal digits of ids and hashes
        self._by_name: dict[str, list[tuple[str, str]]] = {}
        self._by_lines: dict[str, list[tuple[str, str]]] = {}  # texts with several lines
        for text, column in private:
            digits = _HEX.search(text)
            if digits:
                self._by_digits.setdefault(digits[0][:8], []).append((text, column))
            else:
                part = next((name for name in (HOME, DECOYS["text"]) if name in text), text)
                by_part = self._by_lines if "\n" in part else self._by_name
                by_part.setdefault(part, []).append((text, column))

    def candidates(self, text: str) -> list[tuple[str, str]]:
        """Return all private texts that can be in a response, in lower case, and some more."""
        candidates = [entry for part, entries in self._by_lines.items() if part in text for entry in entries]
        for line in text.split("\n"):
            candidates += self._in_line(line)
        return candidates

    def _search(self, line: str) -> list[tuple[str, str]]:
        candidates = [entry for part, entries in self._by_name.items() if part in line for entry in entries]
        for run in _HEX.findall(line):
            for start in range(len(run) - 7):
                candidates += self._by_digits.get(run[start : start + 8], ())
        return candidates


@dataclass(frozen=True, slots=True)
class Secrets:
    """The home organization's data: its rows, their texts by column, and secrets that no row has."""

    rows: State
    texts: Mapping[str, str]
    ids: Mapping[str, str]  # the things, with their columns
    uncovered: Mapping[str, str]  # texts that a request can name, from columns in which the decoy has none, a text per column
    rival: str  # the rival organization's id
    _index: Index  # also of secrets that no row has: passwords and tokens, which are stored as hashes

    @classmethod
    def of(cls, world: World, decoys: State = frozenset()) -> "Secrets":
        rows = world.state - world.state_without_home | decoys
        known = {text for _, row in world.state_without_home for text in texts(json.loads(row))}
        columns, opaque = list[tuple[str, str]](), set[str]()
        for table, row in sorted(rows):
            for column, value in stored(row).items():
                columns += [(text, f"{table}.{column}") for text in texts(value) if text not in known]
                opaque |= {f"{table}.{column}"} if is_opaque(value) else set()
        private = dict(columns)
        unwritten = {text.lower(): name for name, text in world.home.things.items() if text.lower() not in known | private.keys()}
        # Six digits occur in many numbers. The platform's own records do not belong to the tenant.
        unwritten = {text: name for text, name in unwritten.items() if not text.isdecimal()} | dict.fromkeys(
            map(reason_of, SLUGS), "reason"
        )
        covered = opaque | {column for text, column in columns if text in DECOYS.values()}
        uncovered = {column: text for text, column in columns if column not in covered}
        index = Index([*private.items(), *unwritten.items()])
        ids = {text: column for text, column in private.items() if ID.fullmatch(text) and column.partition(".")[0] not in LEFT_BEHIND}
        return cls(rows, private, ids, uncovered, str(world.rival.organization.id), index)

    def private_texts(self, response: str, *sent: str) -> list[str]:
        """Return the private texts in a response.

        Texts from the request, and their parts, can come back without revealing anything.
        """
        response = rest = response.lower()
        candidates = self._index.candidates(response)
        if not candidates:
            return []
        for one in sent:
            for form in forms(one):
                rest = rest.replace(form, "")
        request = " ".join(sent).lower()
        return [f"{column}: {text}" for text, column in candidates if text in (rest if text in request else response)]


@cache
def forms(sent: str) -> tuple[str, ...]:
    """Return the forms that a text from the request has in a response, in lower case.

    Pages have the request in links too, also as the path at which the sign-in continues. They, and JSON, escape quotes.
    """
    plus, percent = quote_plus(sent), quote(sent, safe="")
    found = (sent, plus, percent, quote_plus(plus), quote_plus(percent), str(escape(sent)), json.dumps(sent)[1:-1])
    return tuple(dict.fromkeys(form.lower() for form in found))


def is_opaque(value: Any) -> bool:
    """Return whether no request finds a row by this value: a ciphertext, a salt, or a password hash."""
    is_bytes = isinstance(value, str) and value.startswith("\\x")
    return (is_bytes and shape(value.removeprefix("\\x")) != "hash") or (isinstance(value, str) and value.startswith("$argon2"))


def stored(row: str) -> dict[str, Any]:
    """Return a row's columns, without columns that PostgreSQL computes."""
    return {column: value for column, value in json.loads(row).items() if not column.startswith("canonical_")}


def full_text(answer: Answer) -> str:
    """Return body and headers, and the content of tokens in them."""
    text = f"{answer.text} {answer.headers}"
    return text + " ".join(base64.urlsafe_b64decode(claims + "==").decode() for claims in _TOKEN.findall(text))
