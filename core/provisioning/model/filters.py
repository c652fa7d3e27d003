"""SCIM filters over the fields of users and groups (RFC 7644 section 3.4.2.2).

A filter is a tree over known fields. Storage turns a filter into SQL and binds every value (security C-7). The syntax
is in `core.provisioning.model.grammar`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from core.kernel.values import Email
from core.provisioning.model import grammar
from core.provisioning.model.schemas import ENTERPRISE_URN, GROUP_URN, USER_URN


class FieldType(Enum):
    """The field types, which determine how values are compared. The enumeration values are phrases in error messages."""

    EXACT = "a string"
    TEXT = "a string, ignoring case"
    ADDRESS = "an email address"
    FLAG = "true or false"
    TIME = "a time"


class ScimField(Enum):
    """The fields that filters can use: the SCIM name and the type."""

    ID = ("id", FieldType.EXACT)
    EXTERNAL_ID = ("externalId", FieldType.EXACT)
    USER_NAME = ("userName", FieldType.TEXT)
    ADDRESS = ("emails.value", FieldType.ADDRESS)
    ADDRESS_TYPE = ("emails.type", FieldType.TEXT)
    ADDRESS_PRIMARY = ("emails.primary", FieldType.FLAG)
    FORMATTED = ("name.formatted", FieldType.TEXT)
    GIVEN_NAME = ("name.givenName", FieldType.TEXT)
    FAMILY_NAME = ("name.familyName", FieldType.TEXT)
    DISPLAY_NAME = ("displayName", FieldType.TEXT)
    TITLE = ("title", FieldType.TEXT)
    PREFERRED_LANGUAGE = ("preferredLanguage", FieldType.TEXT)
    LOCALE = ("locale", FieldType.TEXT)
    TIMEZONE = ("timezone", FieldType.TEXT)
    EMPLOYEE_NUMBER = (f"{ENTERPRISE_URN}:employeeNumber", FieldType.TEXT)
    DEPARTMENT = (f"{ENTERPRISE_URN}:department", FieldType.TEXT)
    ACTIVE = ("active", FieldType.FLAG)
    RESOURCE_TYPE = ("meta.resourceType", FieldType.EXACT)
    CREATED = ("meta.created", FieldType.TIME)
    LAST_MODIFIED = ("meta.lastModified", FieldType.TIME)
    MEMBER = ("members.value", FieldType.EXACT)

    @property
    def type(self) -> FieldType:
        return self.value[1]


_COMMON: Final = (
    ScimField.ID,
    ScimField.EXTERNAL_ID,
    ScimField.DISPLAY_NAME,
    ScimField.RESOURCE_TYPE,
    ScimField.CREATED,
    ScimField.LAST_MODIFIED,
)


def _by_name(*fields: ScimField, **others: ScimField) -> Mapping[str, ScimField]:
    return MappingProxyType({**{field.value[0].lower(): field for field in fields}, **others})


# The fields with a value in `ScimProfile.attributes`, by its name there.
FURTHER_FIELDS: Final = {
    field: field.value[0].rpartition(":")[2]
    for field in (
        *(ScimField.TITLE, ScimField.PREFERRED_LANGUAGE, ScimField.LOCALE, ScimField.TIMEZONE),
        *(ScimField.EMPLOYEE_NUMBER, ScimField.DEPARTMENT),
    )
}
# The fields by their names in lower case.
USER_FIELDS: Final = _by_name(
    *_COMMON, ScimField.USER_NAME, ScimField.ADDRESS, ScimField.ADDRESS_TYPE, ScimField.ADDRESS_PRIMARY, ScimField.ACTIVE,
    ScimField.FORMATTED, ScimField.GIVEN_NAME, ScimField.FAMILY_NAME, *FURTHER_FIELDS, emails=ScimField.ADDRESS,
)  # fmt: skip
GROUP_FIELDS: Final = _by_name(*_COMMON, ScimField.MEMBER, members=ScimField.MEMBER)

ComparisonValue: TypeAlias = str | bool | datetime


@dataclass(frozen=True, slots=True)
class FieldComparison:
    """A comparison between a field and a value that has the field's type. Email addresses are in lower case."""

    field: ScimField
    operator: grammar.FilterOperator
    value: ComparisonValue


@dataclass(frozen=True, slots=True)
class FieldPresent:
    """A test whether a field has a value."""

    field: ScimField


ScimFilter: TypeAlias = FieldComparison | FieldPresent | grammar.And["ScimFilter"] | grammar.Or["ScimFilter"] | grammar.Not["ScimFilter"]

_OPERATORS: Final[Mapping[FieldType, frozenset[grammar.FilterOperator]]] = MappingProxyType(
    {
        FieldType.EXACT: frozenset(grammar.FilterOperator),
        FieldType.TEXT: frozenset(grammar.FilterOperator),
        FieldType.ADDRESS: frozenset(grammar.FilterOperator),
        FieldType.FLAG: frozenset({grammar.FilterOperator.EQ, grammar.FilterOperator.NE}),
        FieldType.TIME: frozenset(grammar.FilterOperator)
        - {grammar.FilterOperator.CO, grammar.FilterOperator.SW, grammar.FilterOperator.EW},
    }
)


def parse_user_filter(text: str) -> ScimFilter:
    """Parse a user filter."""
    return _resolve(grammar.parse(text), USER_FIELDS, "", f"{USER_URN.lower()}:")


def parse_group_filter(text: str) -> ScimFilter:
    """Parse a group filter. Members can only be compared with `eq`."""
    filter_ = _resolve(grammar.parse(text), GROUP_FIELDS, "", f"{GROUP_URN.lower()}:")
    if any(test.operator is not grammar.FilterOperator.EQ for test in comparisons(filter_) if test.field is ScimField.MEMBER):
        raise grammar.FilterInvalid("members can only be compared with eq")
    return filter_


def comparisons(filter_: ScimFilter) -> Iterator[FieldComparison]:
    """Return all comparisons in the filter."""
    match filter_:
        case FieldComparison():
            yield filter_
        case grammar.And(operands) | grammar.Or(operands):
            for operand in operands:
                yield from comparisons(operand)
        case grammar.Not(operand):
            yield from comparisons(operand)


def tests_presence(filter_: ScimFilter, field: ScimField) -> bool:
    """Return whether the filter tests whether this field has a value."""
    match filter_:
        case FieldPresent(tested):
            return tested is field
        case grammar.And(operands) | grammar.Or(operands):
            return any(tests_presence(operand, field) for operand in operands)
        case grammar.Not(operand):
            return tests_presence(operand, field)
    return False


def _resolve(parsed: grammar.ParsedFilter, fields: Mapping[str, ScimField], prefix: str, urn: str) -> ScimFilter:
    """Replace the names by fields. Inside brackets, `prefix` is the attribute before them, with a dot."""
    match parsed:
        case grammar.ParsedComparison(name, operator, literal):
            return _compare(_find_field(name, fields, prefix, urn), operator, literal)
        case grammar.ParsedPresence(name):
            # A complex attribute is present if a sub-attribute is (RFC 7644 section 3.4.2.2).
            full_name = prefix + name.removeprefix(urn)
            parts = tuple(FieldPresent(field) for part, field in fields.items() if part.startswith(f"{full_name}."))
            is_complex = bool(parts) and full_name not in fields
            return grammar.Or(parts) if is_complex else FieldPresent(_find_field(name, fields, prefix, urn))
        case grammar.ParsedValuePath(name, inner):
            # A user has only one email address, and members can be compared by their id only. So
            # "one value matches the whole filter" is the same as "the filter matches".
            name = name.removeprefix(urn)
            if prefix or name not in ("emails", "members") or name not in fields:
                raise grammar.FilterInvalid("brackets are allowed only after emails or members")
            return _resolve(inner, fields, f"{name}.", urn)
        case grammar.And(operands):
            return grammar.And(tuple(_resolve(operand, fields, prefix, urn) for operand in operands))
        case grammar.Or(operands):
            return grammar.Or(tuple(_resolve(operand, fields, prefix, urn) for operand in operands))
        case grammar.Not(operand):
            return grammar.Not(_resolve(operand, fields, prefix, urn))


def _find_field(name: str, fields: Mapping[str, ScimField], prefix: str, urn: str) -> ScimField:
    field = fields.get(prefix + name.removeprefix(urn))
    if field is None:
        raise grammar.FilterInvalid("it uses an attribute that filters do not support")
    return field


def _compare(field: ScimField, operator: grammar.FilterOperator, literal: grammar.LiteralValue) -> ScimFilter:
    if literal is None and operator in (grammar.FilterOperator.EQ, grammar.FilterOperator.NE):  # null means no value (RFC 7643 section 2.5)
        return grammar.Not(FieldPresent(field)) if operator is grammar.FilterOperator.EQ else FieldPresent(field)
    if operator not in _OPERATORS[field.type]:
        raise grammar.FilterInvalid(f"{field.value[0]} cannot be compared with {operator}")
    return FieldComparison(field, operator, _to_value(field, literal))


def _to_value(field: ScimField, literal: grammar.LiteralValue) -> ComparisonValue:
    match field.type, literal:
        case FieldType.EXACT, str():
            return literal.lower() if field is ScimField.MEMBER else literal  # an id, which can be written in capitals
        case FieldType.TEXT, str():
            return literal  # kept as it is: the comparison converts both sides to lower case in the same way
        case FieldType.ADDRESS, str():
            return Email.parse_part(literal)
        case FieldType.FLAG, bool():
            return literal
        case FieldType.FLAG, str() if literal.lower() in ("true", "false"):  # sent by Microsoft's clients
            return literal.lower() == "true"
        case FieldType.TIME, str():
            return _parse_time(literal)
    raise grammar.FilterInvalid(f"{field.value[0]} must be compared with {field.type.value}")


def _parse_time(text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text.upper())
        # A time without an offset is UTC. Times in the calendar's first and last hours raise
        # OverflowError: with their offset, they are in the UTC year 0 or 10000.
        time = time.replace(tzinfo=UTC) if time.tzinfo is None else time
        return time.astimezone(UTC)
    except (ValueError, OverflowError):
        raise grammar.FilterInvalid("a time must be written as in 2026-03-14T15:09:26Z") from None


# A field's value; a set for a multi-valued attribute, which supports only `eq`.
FieldValue: TypeAlias = str | bool | datetime | frozenset[str] | None


def matches(filter_: ScimFilter, value_of: Callable[[ScimField], FieldValue]) -> bool:
    """Return whether a resource with these values matches the filter."""
    match filter_:
        case FieldComparison(field, operator, value) if field.type is FieldType.TEXT:
            return _evaluate(_lower(value_of(field)), operator, _lower(value))
        case FieldComparison(field, operator, value):
            return _evaluate(value_of(field), operator, value)
        case FieldPresent(field):
            return value_of(field) is not None
        case grammar.And(operands):
            return all(matches(operand, value_of) for operand in operands)
        case grammar.Or(operands):
            return any(matches(operand, value_of) for operand in operands)
        case grammar.Not(operand):
            return not matches(operand, value_of)


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def _evaluate(left: FieldValue, operator: grammar.FilterOperator, right: ComparisonValue) -> bool:
    match operator:
        case grammar.FilterOperator.EQ:
            return right in left if isinstance(left, frozenset) else left == right
        case grammar.FilterOperator.NE:  # also true if there is no value
            return left != right
    match left, right:
        case str(), str():
            return TEXT_COMPARISONS[operator](left, right)
        case datetime(), datetime():
            return _TIME_COMPARISONS[operator](left, right)
    return False


TEXT_COMPARISONS: Final[Mapping[grammar.FilterOperator, Callable[[str, str], bool]]] = {
    grammar.FilterOperator.CO: lambda value, part: part in value,
    grammar.FilterOperator.SW: str.startswith,
    grammar.FilterOperator.EW: str.endswith,
    grammar.FilterOperator.GT: str.__gt__,
    grammar.FilterOperator.GE: str.__ge__,
    grammar.FilterOperator.LT: str.__lt__,
    grammar.FilterOperator.LE: str.__le__,
}
_TIME_COMPARISONS: Final[Mapping[grammar.FilterOperator, Callable[[datetime, datetime], bool]]] = {
    grammar.FilterOperator.GT: datetime.__gt__,
    grammar.FilterOperator.GE: datetime.__ge__,
    grammar.FilterOperator.LT: datetime.__lt__,
    grammar.FilterOperator.LE: datetime.__le__,
}
