"""Parser for SCIM filters (RFC 7644 section 3.4.2.2) and for patch paths (section 3.5.2).

Paths have filters with the same grammar in brackets. The parser is a recursive descent parser that reads every
character once. The parser knows no attributes: `core.provisioning.model.filters` gives filters their meaning.
"""

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Generic, TypeAlias, TypeVar

from core.kernel import values
from core.kernel.errors import Invalid

# The limits in security C-7.
MAX_FILTER_LENGTH: Final = 8192  # characters
MAX_VALUE_LENGTH: Final = 256  # characters
MAX_DEPTH: Final = 16  # nested parentheses
MAX_COMPARISONS: Final = 100


class FilterInvalid(Invalid):
    """The filter is not valid."""

    scim_type = "invalidFilter"

    def __init__(self, reason: str) -> None:
        super().__init__(f"The filter is not valid: {reason}.")


class PathInvalid(Invalid):
    """This path does not exist. Name an attribute of the schema."""

    scim_type = "invalidPath"


class FilterOperator(StrEnum):
    """The comparison operators in filters."""

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

# The logical operators. Operands are parsed filters here, and filters over known fields in
# `core.provisioning.model.filters`.

Operand = TypeVar("Operand", covariant=True)


@dataclass(frozen=True, slots=True)
class And(Generic[Operand]):
    """Filters joined by `and`."""

    operands: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Or(Generic[Operand]):
    """Filters joined by `or`."""

    operands: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Not(Generic[Operand]):
    """A negated filter: `not (filter)`."""

    operand: Operand


# Further nodes in a parsed filter. Names are in lower case.


@dataclass(frozen=True, slots=True)
class ParsedComparison:
    """A comparison: `name operator literal`."""

    name: str
    operator: FilterOperator
    literal: LiteralValue


@dataclass(frozen=True, slots=True)
class ParsedPresence:
    """A test for a value: `name pr`."""

    name: str


@dataclass(frozen=True, slots=True)
class ParsedValuePath:
    """A filter for an attribute's values: `name[filter]`. One value must match the whole filter."""

    name: str
    filter: "ParsedFilter"


ParsedFilter: TypeAlias = (
    ParsedComparison | ParsedPresence | ParsedValuePath | And["ParsedFilter"] | Or["ParsedFilter"] | Not["ParsedFilter"]
)


@dataclass(frozen=True, slots=True)
class PatchPath:
    """The path in a patch operation: an attribute, a filter for its values, and a sub-attribute."""

    attribute: str
    filter: ParsedFilter | None = None
    sub: str | None = None


def parse(text: str) -> ParsedFilter:
    """Parse a filter. Raises: FilterInvalid."""
    parser = _Parser(text)
    parsed = parser.parse_or(0)
    parser.expect_end()
    return parsed


def parse_path(text: str) -> PatchPath:
    """Parse a path. Raises: PathInvalid; FilterInvalid for the filter in brackets."""
    if not text or len(text) > MAX_FILTER_LENGTH:
        raise PathInvalid
    attribute, bracket, rest = text.partition("[")
    if not bracket:
        return _parse_path_without_filter(text)
    parser = _Parser(rest)
    parsed = parser.parse_or(0)
    sub = parser.rest_after_bracket()
    if not _is_name(attribute) or (sub and not (sub[0] == "." and _is_name(sub[1:]) and "." not in sub[1:])):
        raise PathInvalid
    return PatchPath(attribute, parsed, sub[1:] or None)


def _parse_path_without_filter(text: str) -> PatchPath:
    # A schema URN contains a dot in its version, so the attribute name starts after the last colon.
    urn, colon, name = text.rpartition(":")
    attribute, dot, sub = name.partition(".")
    if not _is_name(urn + colon + attribute) or (dot and not (_is_name(sub) and "." not in sub)):
        raise PathInvalid
    return PatchPath(urn + colon + attribute, None, sub or None)


_MARKS: Final = frozenset("()[]")
_NAME_PUNCTUATION: Final = frozenset(":.$-_")


def _is_name(text: str) -> bool:
    return bool(text) and text.isascii() and all(char.isalnum() or char in _NAME_PUNCTUATION for char in text)


class _Parser:
    """Reads a filter from start to end. The tokens are brackets, quoted strings and words."""

    def __init__(self, text: str) -> None:
        if len(text) > MAX_FILTER_LENGTH:
            raise FilterInvalid(f"it is longer than {MAX_FILTER_LENGTH} characters")
        self._text = text
        self._position = 0
        self._comparisons = 0

    def parse_or(self, depth: int) -> ParsedFilter:
        if depth > MAX_DEPTH:
            raise FilterInvalid(f"it has more than {MAX_DEPTH} nested parentheses")
        operands = [self._parse_and(depth)]
        while self._skip_word("or"):
            operands.append(self._parse_and(depth))
        return operands[0] if len(operands) == 1 else Or(tuple(operands))

    def _parse_and(self, depth: int) -> ParsedFilter:
        operands = [self._parse_term(depth)]
        while self._skip_word("and"):
            operands.append(self._parse_term(depth))
        return operands[0] if len(operands) == 1 else And(tuple(operands))

    def _parse_term(self, depth: int) -> ParsedFilter:
        if self._skip_mark("("):
            return self._parse_until(")", depth)
        name = self._read_word()
        if name.lower() == "not" and self._skip_mark("("):
            return Not(self._parse_until(")", depth))
        if not _is_name(name):
            raise FilterInvalid("an attribute name is missing or not valid")
        self._comparisons += 1
        if self._comparisons > MAX_COMPARISONS:
            raise FilterInvalid(f"it has more than {MAX_COMPARISONS} comparisons")
        name = name.lower()
        if self._skip_mark("["):
            value_path = ParsedValuePath(name, self._parse_until("]", depth))
            if self._text[self._position : self._position + 1] != ".":
                return value_path
            # Entra ID sends `emails[type eq "work"].value eq "..."`, which is not part of the
            # grammar.
            return And((value_path, self._parse_comparison(name + self._read_word().lower())))
        return self._parse_comparison(name)

    def _parse_comparison(self, name: str) -> ParsedFilter:
        operator = self._read_word().lower()
        if operator == "pr":
            return ParsedPresence(name)
        if operator not in list(FilterOperator):
            raise FilterInvalid(f"an operator is missing or unknown; the operators are {', '.join(FilterOperator)} and pr")
        return ParsedComparison(name, FilterOperator(operator), self._read_literal())

    def _parse_until(self, mark: str, depth: int) -> ParsedFilter:
        parsed = self.parse_or(depth + 1)
        if not self._skip_mark(mark):
            raise FilterInvalid(f'a "{mark}" is missing')
        return parsed

    def expect_end(self) -> None:
        self._skip_spaces()
        if self._position < len(self._text):
            raise FilterInvalid("it has additional text after its end")

    def rest_after_bracket(self) -> str:
        if not self._skip_mark("]"):
            raise FilterInvalid('a "]" is missing')
        return self._text[self._position :]

    def _skip_spaces(self) -> None:
        while self._position < len(self._text) and self._text[self._position] == " ":
            self._position += 1

    def _skip_mark(self, mark: str) -> bool:
        self._skip_spaces()
        if self._text[self._position : self._position + 1] != mark:
            return False
        self._position += 1
        return True

    def _skip_word(self, word: str) -> bool:
        start = self._position
        if self._read_word().lower() == word:
            return True
        self._position = start
        return False

    def _read_word(self) -> str:
        self._skip_spaces()
        start = self._position
        while self._position < len(self._text) and self._text[self._position] not in _MARKS and self._text[self._position] not in ' "':
            self._position += 1
        return self._text[start : self._position]

    def _read_literal(self) -> LiteralValue:
        self._skip_spaces()
        if self._text[self._position : self._position + 1] == '"':
            raw = self._read_quoted()
        else:
            raw = self._read_word()
            if values.parse_id(raw) is not None:  # ids are accepted without quotation marks
                return raw
            raw = raw.lower()
        try:
            literal = _JSON.decode(raw)
        except ValueError:
            raise FilterInvalid("a value must be a quoted string, a number, true, false or null") from None
        if isinstance(literal, str) and (len(literal) > MAX_VALUE_LENGTH or not values.is_printable(literal)):
            raise FilterInvalid(f"a value is longer than {MAX_VALUE_LENGTH} characters, or contains control characters")
        if not (literal is None or isinstance(literal, str | int | float | bool)):
            raise FilterInvalid("a value must be a quoted string, a number, true, false or null")
        return literal

    def _read_quoted(self) -> str:
        start = self._position
        self._position += 1
        while (quote := self._text.find('"', self._position)) != -1:
            escape = self._text.find("\\", self._position, quote)
            self._position = quote + 1 if escape == -1 else escape + 2
            if escape == -1:
                return self._text[start : self._position]
        raise FilterInvalid("a quotation mark is missing")


def _refuse_constant(_: str) -> None:
    """Refuse NaN and Infinity, which Python accepts and JSON does not have."""
    raise ValueError


# Created once, because a group patch can have very many paths with a value each.
_JSON: Final = json.JSONDecoder(parse_constant=_refuse_constant)
