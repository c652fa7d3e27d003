"""Filters of SCIM (RFC 7644 section 3.4.2.2): the grammar, read by a descending parser that looks at each character once, and what a
filter means, as a tree over the few fields that there are. Storage turns the tree into SQL, with every value bound (security.md C-7).

The same grammar stands in the paths of patches (RFC 7644 section 3.5.2), so those are read here, too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, StrEnum
from types import MappingProxyType
from typing import Any, Final, Generic, TypeAlias, TypeVar

from core.errors import Invalid
from core.scim_schemas import GROUP_URN, USER_URN
from core.values import Email, is_plain, parse_id

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


class Operator(StrEnum):
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


Literal: TypeAlias = str | int | float | bool | None

# What filters are put together with, whether as they are written or as they are meant.

Part = TypeVar("Part", covariant=True)


@dataclass(frozen=True, slots=True)
class All(Generic[Part]):
    """Filters with `and` between them."""

    of: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Some(Generic[Part]):
    """Filters with `or` between them."""

    of: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Not(Generic[Part]):
    """`not (filter)`."""

    of: Part


# What is written, before it is known which attributes there are; names are in lower case.


@dataclass(frozen=True, slots=True)
class Compare:
    """`name op literal`."""

    name: str
    operator: Operator
    literal: Literal


@dataclass(frozen=True, slots=True)
class Present:
    """`name pr`."""

    name: str


@dataclass(frozen=True, slots=True)
class Within:
    """`name[filter]`: that some value of the attribute is so."""

    name: str
    filter: Written


Written: TypeAlias = Compare | Present | Within | All["Written"] | Some["Written"] | Not["Written"]


@dataclass(frozen=True, slots=True)
class Path:
    """What a patch changes: an attribute; those of its values for which a filter holds; one of its sub-attributes. As it was written."""

    attribute: str
    filter: Written | None = None
    sub: str | None = None


def parse(text: str) -> Written:
    """The filter that `text` is. Raises FilterInvalid."""
    reader = _Reader(text)
    found = reader.alternatives(0)
    reader.expect_end()
    return found


def parse_path(text: str) -> Path:
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
    return Path(attribute, found, sub[1:] or None)


def _dotted(text: str) -> Path:
    # The version in the name of a schema has a dot, too, so the name of the attribute begins behind the last colon.
    urn, colon, name = text.rpartition(":")
    attribute, dot, sub = name.partition(".")
    if not _is_name(urn + colon + attribute) or (dot and not (_is_name(sub) and "." not in sub)):
        raise PathInvalid
    return Path(urn + colon + attribute, None, sub or None)


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

    def alternatives(self, depth: int) -> Written:
        if depth > DEEPEST:
            raise FilterInvalid("it has too many parentheses in parentheses")
        found = [self._conjunction(depth)]
        while self._takes("or"):
            found.append(self._conjunction(depth))
        return found[0] if len(found) == 1 else Some(tuple(found))

    def _conjunction(self, depth: int) -> Written:
        found = [self._term(depth)]
        while self._takes("and"):
            found.append(self._term(depth))
        return found[0] if len(found) == 1 else All(tuple(found))

    def _term(self, depth: int) -> Written:
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
            within = Within(name, self._until("]", depth))
            if self._text[self._at : self._at + 1] != ".":
                return within
            # `emails[type eq "work"].value eq "..."`, which no grammar has and Entra ID sends.
            return All((within, self._compared(name + self._word().lower())))
        return self._compared(name)

    def _compared(self, name: str) -> Written:
        operator = self._word().lower()
        if operator == "pr":
            return Present(name)
        if operator not in list(Operator):
            raise FilterInvalid("it has an operator that there is not")
        return Compare(name, Operator(operator), self._literal())

    def _until(self, mark: str, depth: int) -> Written:
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

    def _literal(self) -> Literal:
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
        if isinstance(found, str) and (len(found) > LONGEST_VALUE or not is_plain(found)):
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


# What is meant


class Kind(Enum):
    """How the values of a field compare."""

    EXACT = "text"
    TEXT = "text without case"
    ADDRESS = "an e-mail address"
    FLAG = "true or false"
    TIME = "a time"


class Field(Enum):
    """What can be asked about."""

    ID = ("id", Kind.EXACT)
    EXTERNAL_ID = ("externalId", Kind.EXACT)
    ADDRESS = ("userName", Kind.ADDRESS)
    ADDRESS_TYPE = ("emails.type", Kind.TEXT)
    ADDRESS_PRIMARY = ("emails.primary", Kind.FLAG)
    FORMATTED = ("name.formatted", Kind.TEXT)
    GIVEN_NAME = ("name.givenName", Kind.TEXT)
    FAMILY_NAME = ("name.familyName", Kind.TEXT)
    DISPLAY_NAME = ("displayName", Kind.EXACT)
    ACTIVE = ("active", Kind.FLAG)
    RESOURCE_TYPE = ("meta.resourceType", Kind.EXACT)
    CREATED = ("meta.created", Kind.TIME)
    LAST_MODIFIED = ("meta.lastModified", Kind.TIME)
    MEMBER = ("members.value", Kind.EXACT)

    @property
    def kind(self) -> Kind:
        return self.value[1]


_COMMON: Final = (Field.ID, Field.DISPLAY_NAME, Field.RESOURCE_TYPE, Field.CREATED, Field.LAST_MODIFIED)


def _names(*fields: Field, **others: Field) -> Mapping[str, Field]:
    return MappingProxyType({**{field.value[0].lower(): field for field in fields}, **others})


_OF_USERS_ALONE: Final = (Field.EXTERNAL_ID, Field.ADDRESS, Field.ADDRESS_TYPE, Field.ADDRESS_PRIMARY, Field.ACTIVE)
OF_USERS: Final = _names(
    *_COMMON, *_OF_USERS_ALONE, Field.FORMATTED, Field.GIVEN_NAME, Field.FAMILY_NAME,
    **{"emails": Field.ADDRESS, "emails.value": Field.ADDRESS},
)  # fmt: skip
OF_GROUPS: Final = _names(*_COMMON, Field.MEMBER, members=Field.MEMBER)

Operand: TypeAlias = str | bool | datetime


@dataclass(frozen=True, slots=True)
class Comparison:
    """That a field compares so with a value, which is of the field's kind; in lower case where the field has none."""

    field: Field
    operator: Operator
    operand: Operand


@dataclass(frozen=True, slots=True)
class Known:
    """That a field has a value."""

    field: Field


Filter: TypeAlias = Comparison | Known | All["Filter"] | Some["Filter"] | Not["Filter"]

_OPERATORS: Final[Mapping[Kind, frozenset[Operator]]] = MappingProxyType(
    {
        Kind.EXACT: frozenset(Operator),
        Kind.TEXT: frozenset(Operator),
        Kind.ADDRESS: frozenset(Operator),
        Kind.FLAG: frozenset({Operator.EQ, Operator.NE}),
        Kind.TIME: frozenset(Operator) - {Operator.CO, Operator.SW, Operator.EW},
    }
)


def about_users(text: str) -> Filter:
    """The filter of users that `text` is. Raises FilterInvalid."""
    return _meant(parse(text), OF_USERS, "", f"{USER_URN.lower()}:")


def about_groups(text: str) -> Filter:
    """The filter of groups that `text` is. Whether somebody is a member can only be asked with `eq`. Raises FilterInvalid."""
    found = _meant(parse(text), OF_GROUPS, "", f"{GROUP_URN.lower()}:")
    if any(each.operator is not Operator.EQ for each in comparisons(found) if each.field is Field.MEMBER):
        raise FilterInvalid("members can only be compared with eq")
    return found


def comparisons(found: Filter) -> Iterator[Comparison]:
    """All comparisons in it."""
    match found:
        case Comparison():
            yield found
        case All(of) | Some(of):
            for each in of:
                yield from comparisons(each)
        case Not(each):
            yield from comparisons(each)


def _meant(written: Written, names: Mapping[str, Field], outer: str, urn: str) -> Filter:
    match written:
        case Compare(name, operator, literal):
            return _test(_field(name, names, outer, urn), operator, literal)
        case Present(name):
            # What has parts is there if one of them is (RFC 7644 section 3.4.2.2).
            whole = outer + name.removeprefix(urn)
            parts = tuple(Known(field) for part, field in names.items() if part.startswith(f"{whole}."))
            return Some(parts) if parts and whole not in names else Known(_field(name, names, outer, urn))
        case Within(name, inside):
            # There is one address, and members are asked about by their id alone: that some value is all of this means that it is.
            name = name.removeprefix(urn)
            if outer or name not in ("emails", "members") or name not in names:
                raise FilterInvalid("brackets stand behind emails, or members, alone")
            return _meant(inside, names, f"{name}.", urn)
        case All(of):
            return All(tuple(_meant(each, names, outer, urn) for each in of))
        case Some(of):
            return Some(tuple(_meant(each, names, outer, urn) for each in of))
        case Not(of):
            return Not(_meant(of, names, outer, urn))


def _field(name: str, names: Mapping[str, Field], outer: str, urn: str) -> Field:
    found = names.get(outer + name.removeprefix(urn))
    if found is None:
        raise FilterInvalid("it names an attribute that cannot be asked about")
    return found


def _test(field: Field, operator: Operator, literal: Literal) -> Filter:
    if literal is None and operator in (Operator.EQ, Operator.NE):  # null is no value (RFC 7643 section 2.5)
        return Not(Known(field)) if operator is Operator.EQ else Known(field)
    if operator not in _OPERATORS[field.kind]:
        raise FilterInvalid(f"{field.value[0]} cannot be compared with {operator}")
    return Comparison(field, operator, _operand(field, literal))


def _operand(field: Field, literal: Literal) -> Operand:
    match field.kind, literal:
        case Kind.EXACT, str():
            return literal
        case Kind.TEXT, str():
            return literal  # whoever compares takes the case away, from both in one way
        case Kind.ADDRESS, str():
            return Email.parse_part(literal)
        case Kind.FLAG, bool():
            return literal
        case Kind.FLAG, str() if literal.lower() in ("true", "false"):  # as Microsoft's clients write it
            return literal.lower() == "true"
        case Kind.TIME, str():
            return _time(literal)
    raise FilterInvalid(f"{field.value[0]} is compared with {field.kind.value}")


def _time(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text.upper())
        # Without an offset it is UTC; the years at both ends have no such time in every offset.
        found = found.replace(tzinfo=UTC) if found.tzinfo is None else found
        return found.astimezone(UTC)
    except (ValueError, OverflowError):
        raise FilterInvalid("a time is not one, such as 2026-03-14T15:09:26Z") from None


Value: TypeAlias = str | bool | datetime | frozenset[str] | None  # the last one of what has many values, for `eq` alone


def holds(found: Filter, value: Callable[[Field], Value]) -> bool:
    """Whether the filter holds of what has these values."""
    match found:
        case Comparison(field, operator, operand) if field.kind is Kind.TEXT:
            return _compares(_lower(value(field)), operator, _lower(operand))
        case Comparison(field, operator, operand):
            return _compares(value(field), operator, operand)
        case Known(field):
            return value(field) is not None
        case All(of):
            return all(holds(each, value) for each in of)
        case Some(of):
            return any(holds(each, value) for each in of)
        case Not(of):
            return not holds(of, value)


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def _compares(value: Value, operator: Operator, operand: Operand) -> bool:
    match operator:
        case Operator.EQ:
            return operand in value if isinstance(value, frozenset) else value == operand
        case Operator.NE:  # which is that it is not equal, also where there is no value
            return value != operand
    match value, operand:
        case str(), str():
            return TEXTS[operator](value, operand)
        case datetime(), datetime():
            return _TIMES[operator](value, operand)
    return False


TEXTS: Final[Mapping[Operator, Callable[[str, str], bool]]] = {
    Operator.CO: lambda value, part: part in value,
    Operator.SW: str.startswith,
    Operator.EW: str.endswith,
    Operator.GT: str.__gt__,
    Operator.GE: str.__ge__,
    Operator.LT: str.__lt__,
    Operator.LE: str.__le__,
}
_TIMES: Final[Mapping[Operator, Callable[[datetime, datetime], bool]]] = {
    Operator.GT: datetime.__gt__,
    Operator.GE: datetime.__ge__,
    Operator.LT: datetime.__lt__,
    Operator.LE: datetime.__le__,
}
