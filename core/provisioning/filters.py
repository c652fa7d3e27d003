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
from core.provisioning.grammar import And, ParsedComparison, FilterInvalid, LiteralValue, Not, FilterOperator, ParsedPresence, Or, ParsedValuePath, ParsedFilter, parse
from core.provisioning.schemas import GROUP_URN, USER_URN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


class FieldType(Enum):
    """How the values of a field compare."""

    EXACT = "text"
    TEXT = "text without case"
    ADDRESS = "an email address"
    FLAG = "true or false"
    TIME = "a time"


class ScimField(Enum):
    """What can be asked about."""

    ID = ("id", FieldType.EXACT)
    EXTERNAL_ID = ("externalId", FieldType.EXACT)
    ADDRESS = ("userName", FieldType.ADDRESS)
    ADDRESS_TYPE = ("emails.type", FieldType.TEXT)
    ADDRESS_PRIMARY = ("emails.primary", FieldType.FLAG)
    FORMATTED = ("name.formatted", FieldType.TEXT)
    GIVEN_NAME = ("name.givenName", FieldType.TEXT)
    FAMILY_NAME = ("name.familyName", FieldType.TEXT)
    DISPLAY_NAME = ("displayName", FieldType.EXACT)
    ACTIVE = ("active", FieldType.FLAG)
    RESOURCE_TYPE = ("meta.resourceType", FieldType.EXACT)
    CREATED = ("meta.created", FieldType.TIME)
    LAST_MODIFIED = ("meta.lastModified", FieldType.TIME)
    MEMBER = ("members.value", FieldType.EXACT)

    @property
    def kind(self) -> FieldType:
        return self.value[1]


_COMMON: Final = (ScimField.ID, ScimField.DISPLAY_NAME, ScimField.RESOURCE_TYPE, ScimField.CREATED, ScimField.LAST_MODIFIED)


def _names(*fields: ScimField, **others: ScimField) -> Mapping[str, ScimField]:
    return MappingProxyType({**{field.value[0].lower(): field for field in fields}, **others})


_OF_USERS_ALONE: Final = (ScimField.EXTERNAL_ID, ScimField.ADDRESS, ScimField.ADDRESS_TYPE, ScimField.ADDRESS_PRIMARY, ScimField.ACTIVE)
USER_FIELDS: Final = _names(
    *_COMMON, *_OF_USERS_ALONE, ScimField.FORMATTED, ScimField.GIVEN_NAME, ScimField.FAMILY_NAME,
    **{"emails": ScimField.ADDRESS, "emails.value": ScimField.ADDRESS},
)  # fmt: skip
GROUP_FIELDS: Final = _names(*_COMMON, ScimField.MEMBER, members=ScimField.MEMBER)

ComparisonValue: TypeAlias = str | bool | datetime


@dataclass(frozen=True, slots=True)
class FieldComparison:
    """That a field compares so with a value, which is of the field's kind; in lower case where the field has none."""

    field: ScimField
    operator: FilterOperator
    operand: ComparisonValue


@dataclass(frozen=True, slots=True)
class FieldPresent:
    """That a field has a value."""

    field: ScimField


ScimFilter: TypeAlias = FieldComparison | FieldPresent | And["ScimFilter"] | Or["ScimFilter"] | Not["ScimFilter"]

_OPERATORS: Final[Mapping[FieldType, frozenset[FilterOperator]]] = MappingProxyType(
    {
        FieldType.EXACT: frozenset(FilterOperator),
        FieldType.TEXT: frozenset(FilterOperator),
        FieldType.ADDRESS: frozenset(FilterOperator),
        FieldType.FLAG: frozenset({FilterOperator.EQ, FilterOperator.NE}),
        FieldType.TIME: frozenset(FilterOperator) - {FilterOperator.CO, FilterOperator.SW, FilterOperator.EW},
    }
)


def parse_user_filter(text: str) -> ScimFilter:
    """The filter of users that `text` is. Raises FilterInvalid."""
    return _meant(parse(text), USER_FIELDS, "", f"{USER_URN.lower()}:")


def parse_group_filter(text: str) -> ScimFilter:
    """The filter of groups that `text` is. Whether somebody is a member can only be asked with `eq`. Raises FilterInvalid."""
    found = _meant(parse(text), GROUP_FIELDS, "", f"{GROUP_URN.lower()}:")
    if any(each.operator is not FilterOperator.EQ for each in comparisons(found) if each.field is ScimField.MEMBER):
        raise FilterInvalid("members can only be compared with eq")
    return found


def comparisons(found: ScimFilter) -> Iterator[FieldComparison]:
    """And comparisons in it."""
    match found:
        case FieldComparison():
            yield found
        case And(of) | Or(of):
            for each in of:
                yield from comparisons(each)
        case Not(each):
            yield from comparisons(each)


def _meant(written: ParsedFilter, names: Mapping[str, ScimField], outer: str, urn: str) -> ScimFilter:
    match written:
        case ParsedComparison(name, operator, literal):
            return _test(_field(name, names, outer, urn), operator, literal)
        case ParsedPresence(name):
            # What has parts is there if one of them is (RFC 7644 section 3.4.2.2).
            whole = outer + name.removeprefix(urn)
            parts = tuple(FieldPresent(field) for part, field in names.items() if part.startswith(f"{whole}."))
            return Or(parts) if parts and whole not in names else FieldPresent(_field(name, names, outer, urn))
        case ParsedValuePath(name, inside):
            # There is one address, and members are asked about by their id alone: that some value is all of this means that it is.
            name = name.removeprefix(urn)
            if outer or name not in ("emails", "members") or name not in names:
                raise FilterInvalid("brackets stand behind emails, or members, alone")
            return _meant(inside, names, f"{name}.", urn)
        case And(of):
            return And(tuple(_meant(each, names, outer, urn) for each in of))
        case Or(of):
            return Or(tuple(_meant(each, names, outer, urn) for each in of))
        case Not(of):
            return Not(_meant(of, names, outer, urn))


def _field(name: str, names: Mapping[str, ScimField], outer: str, urn: str) -> ScimField:
    found = names.get(outer + name.removeprefix(urn))
    if found is None:
        raise FilterInvalid("it names an attribute that cannot be asked about")
    return found


def _test(field: ScimField, operator: FilterOperator, literal: LiteralValue) -> ScimFilter:
    if literal is None and operator in (FilterOperator.EQ, FilterOperator.NE):  # null is no value (RFC 7643 section 2.5)
        return Not(FieldPresent(field)) if operator is FilterOperator.EQ else FieldPresent(field)
    if operator not in _OPERATORS[field.kind]:
        raise FilterInvalid(f"{field.value[0]} cannot be compared with {operator}")
    return FieldComparison(field, operator, _operand(field, literal))


def _operand(field: ScimField, literal: LiteralValue) -> ComparisonValue:
    match field.kind, literal:
        case FieldType.EXACT, str():
            return literal
        case FieldType.TEXT, str():
            return literal  # whoever compares takes the case away, from both in one way
        case FieldType.ADDRESS, str():
            return Email.parse_part(literal)
        case FieldType.FLAG, bool():
            return literal
        case FieldType.FLAG, str() if literal.lower() in ("true", "false"):  # as Microsoft's clients write it
            return literal.lower() == "true"
        case FieldType.TIME, str():
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


def holds(found: ScimFilter, value: Callable[[ScimField], Value]) -> bool:
    """Whether the filter holds of what has these values."""
    match found:
        case FieldComparison(field, operator, operand) if field.kind is FieldType.TEXT:
            return _compares(_lower(value(field)), operator, _lower(operand))
        case FieldComparison(field, operator, operand):
            return _compares(value(field), operator, operand)
        case FieldPresent(field):
            return value(field) is not None
        case And(of):
            return all(holds(each, value) for each in of)
        case Or(of):
            return any(holds(each, value) for each in of)
        case Not(of):
            return not holds(of, value)


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def _compares(value: Value, operator: FilterOperator, operand: ComparisonValue) -> bool:
    match operator:
        case FilterOperator.EQ:
            return operand in value if isinstance(value, frozenset) else value == operand
        case FilterOperator.NE:  # which is that it is not equal, also where there is no value
            return value != operand
    match value, operand:
        case str(), str():
            return TEXTS[operator](value, operand)
        case datetime(), datetime():
            return _TIMES[operator](value, operand)
    return False


TEXTS: Final[Mapping[FilterOperator, Callable[[str, str], bool]]] = {
    FilterOperator.CO: lambda value, part: part in value,
    FilterOperator.SW: str.startswith,
    FilterOperator.EW: str.endswith,
    FilterOperator.GT: str.__gt__,
    FilterOperator.GE: str.__ge__,
    FilterOperator.LT: str.__lt__,
    FilterOperator.LE: str.__le__,
}
_TIMES: Final[Mapping[FilterOperator, Callable[[datetime, datetime], bool]]] = {
    FilterOperator.GT: datetime.__gt__,
    FilterOperator.GE: datetime.__ge__,
    FilterOperator.LT: datetime.__lt__,
    FilterOperator.LE: datetime.__le__,
}
