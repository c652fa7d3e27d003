"""The grammar of SCIM's filters (RFC 7644 section 3.4.2.2), read by a descending parser that looks at each character once. What they mean
is said by core/scim_filters.py.

The same grammar stands in the paths of patches (RFC 7644 section 3.5.2), so those are read here, too.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Generic, TypeAlias, TypeVar

from core.kernel.errors import Invalid
from core.kernel.values import is_printable, parse_id

LONGEST_VALUE: Final = 256  # characters (security.md C-7)
LONGEST: Final = 8192
DEEPEST: Final = 16  # parentheses in parentheses
MOST: Final = 100  # comparisons


class FilterInvalid(Invalid):
    """The filter is not valid."""

    scim_type = "invalidFilter"

    def __init__(self, why: str) -> None:
        super().__init__(f"The filter is not valid: {why}.")


class PathInvalid(Invalid):
    """There is no such path."""

    scim_type = "invalidPath"


class FilterOperator(StrEnum):
    """How a filter compares."""

    EQ = "eq"
    NE = "ne"
    CO = "co"
    SW = "sw"
    EW = "ew"
    GT = "gt"
    GE = "ge"
    LT = "lt"
    LE = "le"


LiteralValue: TypeAlias = str | int | float | bool | None

# What filters are put together with, whether as they are written or as they are meant.

Part = TypeVar("Part", covariant=True)


@dataclass(frozen=True, slots=True)
class And(Generic[Part]):
    """Filters with `and` between them."""

    of: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Or(Generic[Part]):
    """Filters with `or` between them."""

    of: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Not(Generic[Part]):
    """`not (filter)`."""

    of: Part


# What is written, before it is known which attributes there are; names are in lower case.


@dataclass(frozen=True, slots=True)
class ParsedComparison:
    """`name op literal`."""

    name: str
    operator: FilterOperator
    literal: LiteralValue


@dataclass(frozen=True, slots=True)
class ParsedPresence:
    """`name pr`."""

    name: str


@dataclass(frozen=True, slots=True)
class ParsedValuePath:
    """`name[filter]`: that some value of the attribute is so."""

    name: str
    filter: ParsedFilter


ParsedFilter: TypeAlias = ParsedComparison | ParsedPresence | ParsedValuePath | And["ParsedFilter"] | Or["ParsedFilter"] | Not["ParsedFilter"]


@dataclass(frozen=True, slots=True)
class PatchPath:
    """What a patch changes: an attribute; those of its values for which a filter holds; one of its sub-attributes. As it was written."""

    attribute: str
    filter: ParsedFilter | None = None
    sub: str | None = None


def parse(text: str) -> ParsedFilter:
    """The filter that `text` is. Raises FilterInvalid."""
    reader = _Reader(text)
    found = reader.alternatives(0)
    reader.expect_end()
    return found


def parse_path(text: str) -> PatchPath:
    """The path that `text` is. Raises PathInvalid, and FilterInvalid for what is in its brackets."""
    if not text or len(text) > LONGEST:
        raise PathInvalid
    attribute, bracket, rest = text.partition("[")
    if not bracket:
        return _dotted(text)
    reader = _Reader(rest)
    found = reader.alternatives(0)
    sub = reader.rest_behind_bracket()
    if not _is_name(attribute) or (sub and not (sub[0] == "." and _is_name(sub[1:]) and "." not in sub[1:])):
        raise PathInvalid
    return PatchPath(attribute, found, sub[1:] or None)


def _dotted(text: str) -> PatchPath:
    # The version in the name of a schema has a dot, too, so the name of the attribute begins behind the last colon.
    urn, colon, name = text.rpartition(":")
    attribute, dot, sub = name.partition(".")
    if not _is_name(urn + colon + attribute) or (dot and not (_is_name(sub) and "." not in sub)):
        raise PathInvalid
    return PatchPath(urn + colon + attribute, None, sub or None)


_MARKS: Final = frozenset("()[]")
_NAME_MARKS: Final = frozenset(":.$-_")


def _is_name(text: str) -> bool:
    return bool(text) and text.isascii() and all(letter.isalnum() or letter in _NAME_MARKS for letter in text)


class _Reader:
    """Reads a filter from its beginning to its end. What stands next is a mark, a text in quotation marks, or a word."""

    def __init__(self, text: str) -> None:
        if len(text) > LONGEST:
            raise FilterInvalid(f"it is longer than {LONGEST} characters")
        self._text = text
        self._at = 0
        self._comparisons = 0

    def alternatives(self, depth: int) -> ParsedFilter:
        if depth > DEEPEST:
            raise FilterInvalid("it has too many parentheses in parentheses")
        found = [self._conjunction(depth)]
        while self._takes("or"):
            found.append(self._conjunction(depth))
        return found[0] if len(found) == 1 else Or(tuple(found))

    def _conjunction(self, depth: int) -> ParsedFilter:
        found = [self._term(depth)]
        while self._takes("and"):
            found.append(self._term(depth))
        return found[0] if len(found) == 1 else And(tuple(found))

    def _term(self, depth: int) -> ParsedFilter:
        if self._takes_mark("("):
            return self._until(")", depth)
        name = self._word()
        if name.lower() == "not" and self._takes_mark("("):
            return Not(self._until(")", depth))
        if not _is_name(name):
            raise FilterInvalid("where an attribute should be named, something else is")
        self._comparisons += 1
        if self._comparisons > MOST:
            raise FilterInvalid(f"it has more than {MOST} comparisons")
        name = name.lower()
        if self._takes_mark("["):
            within = ParsedValuePath(name, self._until("]", depth))
            if self._text[self._at : self._at + 1] != ".":
                return within
            # `emails[type eq "work"].value eq "..."`, which no grammar has and Entra ID sends.
            return And((within, self._compared(name + self._word().lower())))
        return self._compared(name)

    def _compared(self, name: str) -> ParsedFilter:
        operator = self._word().lower()
        if operator == "pr":
            return ParsedPresence(name)
        if operator not in list(FilterOperator):
            raise FilterInvalid("it has an operator that there is not")
        return ParsedComparison(name, FilterOperator(operator), self._literal())

    def _until(self, mark: str, depth: int) -> ParsedFilter:
        found = self.alternatives(depth + 1)
        if not self._takes_mark(mark):
            raise FilterInvalid(f'a "{mark}" is missing')
        return found

    def expect_end(self) -> None:
        self._skip()
        if self._at < len(self._text):
            raise FilterInvalid("something follows where it should end")

    def rest_behind_bracket(self) -> str:
        if not self._takes_mark("]"):
            raise FilterInvalid('a "]" is missing')
        return self._text[self._at :]

    def _skip(self) -> None:
        while self._at < len(self._text) and self._text[self._at] == " ":
            self._at += 1

    def _takes_mark(self, mark: str) -> bool:
        self._skip()
        if self._text[self._at : self._at + 1] != mark:
            return False
        self._at += 1
        return True

    def _takes(self, word: str) -> bool:
        before = self._at
        if self._word().lower() == word:
            return True
        self._at = before
        return False

    def _word(self) -> str:
        self._skip()
        began = self._at
        while self._at < len(self._text) and self._text[self._at] not in _MARKS and self._text[self._at] not in ' "':
            self._at += 1
        return self._text[began : self._at]

    def _literal(self) -> LiteralValue:
        self._skip()
        if self._text[self._at : self._at + 1] == '"':
            raw = self._quoted()
        else:
            raw = self._word()
            if parse_id(raw) is not None:  # which the document shows without quotation marks (identity.md section 4.6)
                return raw
            raw = raw.lower()
        try:
            found = _JSON.decode(raw)
        except ValueError:
            raise FilterInvalid("a value is neither a text in quotation marks nor a number, true, false or null") from None
        if isinstance(found, str) and (len(found) > LONGEST_VALUE or not is_printable(found)):
            raise FilterInvalid(f"a value is longer than {LONGEST_VALUE} characters, or has some that are not allowed")
        if not (found is None or isinstance(found, str | int | float | bool)):
            raise FilterInvalid("a value is neither a text in quotation marks nor a number, true, false or null")
        return found

    def _quoted(self) -> str:
        began = self._at
        self._at += 1
        while (quote := self._text.find('"', self._at)) != -1:
            escape = self._text.find("\\", self._at, quote)
            self._at = quote + 1 if escape == -1 else escape + 2
            if escape == -1:
                return self._text[began : self._at]
        raise FilterInvalid("a quotation mark is missing")


def _refuse(_: str) -> None:
    raise ValueError


_JSON: Final = json.JSONDecoder(parse_constant=_refuse)  # made once: a patch of a group may have very many paths with a value each
