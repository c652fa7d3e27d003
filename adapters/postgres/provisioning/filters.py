"""SCIM filters as SQL: texts of our own with every value bound beside them (security.md C-7, N-7)."""

from collections.abc import Mapping
from typing import Final

from core.kernel.values import parse_id
from core.provisioning.filters import Comparison, Field, Filter, Kind, Known
from core.provisioning.grammar import All, Not, Operator, Some

# What each field is, of `u` (users), `s` (scim_users) and `k` (whom the directory knows). As patches and answers say it.
ACTIVE: Final = "(s.deactivated_at is null and u.deactivated_at is null and u.anonymized_at is null)"
# Whom the directory has made is here since then, however often they have left and come back.
CREATED: Final = "case when u.origin = 'scim' and u.origin_org_id = %(org_id)s then u.created_at else k.joined_at end"
# The newest of what is shown. Of whoever is no member, the address is an old one (`k.email`), and when it was changed is not told.
UPDATED: Final = "greatest(s.updated_at, k.joined_at, case when k.email is null then u.email_changed_at end)"
_COLUMNS: Final[Mapping[Field, str]] = {
    Field.ID: "u.id::text",
    Field.EXTERNAL_ID: "s.external_id",
    Field.ADDRESS_TYPE: "'work'::text",
    Field.ADDRESS_PRIMARY: "true",
    Field.FORMATTED: "s.formatted",
    Field.GIVEN_NAME: "s.given_name",
    Field.FAMILY_NAME: "s.family_name",
    Field.DISPLAY_NAME: "s.display_name",
    Field.ACTIVE: ACTIVE,
    Field.RESOURCE_TYPE: "'User'::text",
    Field.CREATED: CREATED,
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


def condition(found: Filter, address: str) -> tuple[str, dict[str, object]]:
    """The condition that the filter is, where the addresses are in this column, and what is bound to its names."""
    values: dict[str, object] = {}
    return _condition(found, {**_COLUMNS, Field.ADDRESS: address}, values, bare=True), values


def _condition(found: Filter, columns: Mapping[Field, str], values: dict[str, object], *, bare: bool) -> str:
    # `bare`: an unknown, where there is no value, may come out, since there it counts as false; and an index can be used.
    match found:
        case Comparison():
            text = _test(found, columns, values)
            return text if bare else f"coalesce({text}, false)"
        case Known(field):
            return f"({columns[field]} is not null)"
        case All(of):
            return f"({' and '.join(_condition(each, columns, values, bare=bare) for each in of)})"
        case Some(of):
            return f"({' or '.join(_condition(each, columns, values, bare=bare) for each in of)})"
        case Not(each):
            return f"(not {_condition(each, columns, values, bare=False)})"


def _test(test: Comparison, columns: Mapping[Field, str], values: dict[str, object]) -> str:
    column, kind, name = columns[test.field], test.field.kind, f"value_{len(values)}"
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
