"""Filters of SCIM (RFC 7644 section 3.4.2.2): what one means, as a tree over the few fields that there are. Storage turns the tree into
SQL, with every value bound (security.md C-7). How they are written is in core/scim_grammar.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from core.kernel.values import Email
from core.provisioning.grammar import All, Compare, FilterInvalid, Literal, Not, Operator, Present, Some, Within, Written, parse
from core.provisioning.schemas import GROUP_URN, USER_URN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


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
