"""SCIM filters as SQL: texts of our own with every value bound beside them (security.md C-7, N-7)."""

from collections.abc import Mapping
from typing import Final

from core.scim_filters import Comparison, Either, Every, Field, Filter, Kind, Known, Neither, Operator
from core.values import parse_id

# What each field is, of `u` (users), `s` (scim_users) and `k` (whom the directory knows). As patches and answers say it.
ACTIVE: Final = "(s.deactivated_at is null and u.deactivated_at is null and u.anonymized_at is null)"
UPDATED: Final = "coalesce(s.updated_at, k.joined_at)"
_COLUMNS: Final[Mapping[Field, str]] = {
    Field.ID: "u.id::text",
    Field.EXTERNAL_ID: "s.external_id",
    Field.ADDRESS: "u.email",
    Field.ADDRESS_TYPE: "'work'::text",
    Field.ADDRESS_PRIMARY: "true",
    Field.FORMATTED: "s.formatted",
    Field.GIVEN_NAME: "s.given_name",
    Field.FAMILY_NAME: "s.family_name",
    Field.DISPLAY_NAME: "s.display_name",
    Field.ACTIVE: ACTIVE,
    Field.RESOURCE_TYPE: "'User'::text",
    Field.CREATED: "k.joined_at",
    Field.LAST_MODIFIED: UPDATED,
}
# By code points, whatever the database's own order is. A part is looked for without the wildcards of a pattern.
_TEXTS: Final[Mapping[Operator, str]] = {
    Operator.CO: "strpos({column}, {value}) > 0",
    Operator.SW: "starts_with({column}, {value})",
    Operator.EW: "right({column}, length({value})) = {value}",
    Operator.GT: '{column} collate "C" > {value}',
    Operator.GE: '{column} collate "C" >= {value}',
    Operator.LT: '{column} collate "C" < {value}',
    Operator.LE: '{column} collate "C" <= {value}',
}
_TIMES: Final[Mapping[Operator, str]] = {
    Operator.GT: "{column} > {value}",
    Operator.GE: "{column} >= {value}",
    Operator.LT: "{column} < {value}",
    Operator.LE: "{column} <= {value}",
}
_TYPES: Final[Mapping[Kind, str]] = {Kind.FLAG: "boolean", Kind.TIME: "timestamptz"}


def condition(found: Filter) -> tuple[str, dict[str, object]]:
    """The condition that the filter is, and what is bound to its names."""
    values: dict[str, object] = {}
    return _condition(found, values, bare=True), values


def _condition(found: Filter, values: dict[str, object], *, bare: bool) -> str:
    # `bare`: an unknown, where there is no value, may come out, since there it counts as false; and an index can be used.
    match found:
        case Comparison():
            text = _test(found, values)
            return text if bare else f"coalesce({text}, false)"
        case Known(field):
            return f"({_COLUMNS[field]} is not null)"
        case Every(of):
            return f"({' and '.join(_condition(each, values, bare=bare) for each in of)})"
        case Either(of):
            return f"({' or '.join(_condition(each, values, bare=bare) for each in of)})"
        case Neither(each):
            return f"(not {_condition(each, values, bare=False)})"


def _test(test: Comparison, values: dict[str, object]) -> str:
    column, kind, name = _COLUMNS[test.field], test.field.kind, f"value_{len(values)}"
    values[name] = test.operand
    value = f"%({name})s::{_TYPES.get(kind, 'text')}"
    if kind is Kind.TEXT:
        column, value = f"lower({column})", f"lower({value})"
    match test.operator:
        case Operator.EQ if test.field is Field.ID:
            values[name] = parse_id(str(test.operand))  # as an id, of which there is an index; what is none is nobody's
            return f"u.id = %({name})s::uuid"
        case Operator.EQ:
            return f"{column} = {value}"
        case Operator.NE:
            return f"{column} is distinct from {value}"
    return (_TIMES if kind is Kind.TIME else _TEXTS)[test.operator].format(column=column, value=value)
