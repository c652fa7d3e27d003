"""SCIM filters as SQL: texts of our own with every value bound beside them (security.md C-7, N-7)."""

from collections.abc import Mapping
from typing import Final

from core.kernel.values import parse_id
from core.provisioning.filters import FieldComparison, ScimField, ScimFilter, FieldType, FieldPresent
from core.provisioning.grammar import And, Not, FilterOperator, Or

# What each field is, of `u` (users), `s` (scim_users) and `k` (whom the directory knows). As patches and answers say it.
ACTIVE: Final = "(s.deactivated_at is null and u.deactivated_at is null and u.anonymized_at is null)"
# Whom the directory has made is here since then, however often they have left and come back.
CREATED: Final = "case when u.origin = 'scim' and u.origin_org_id = %(org_id)s then u.created_at else k.joined_at end"
# The newest of what is shown. Of whoever is no member, the address is an old one (`k.email`), and when it was changed is not told.
UPDATED: Final = "greatest(s.updated_at, k.joined_at, case when k.email is null then u.email_changed_at end)"
_COLUMNS: Final[Mapping[ScimField, str]] = {
    ScimField.ID: "u.id::text",
    ScimField.EXTERNAL_ID: "s.external_id",
    ScimField.ADDRESS_TYPE: "'work'::text",
    ScimField.ADDRESS_PRIMARY: "true",
    ScimField.FORMATTED: "s.formatted",
    ScimField.GIVEN_NAME: "s.given_name",
    ScimField.FAMILY_NAME: "s.family_name",
    ScimField.DISPLAY_NAME: "s.display_name",
    ScimField.ACTIVE: ACTIVE,
    ScimField.RESOURCE_TYPE: "'User'::text",
    ScimField.CREATED: CREATED,
    ScimField.LAST_MODIFIED: UPDATED,
}
# By code points, whatever the database's own order is. A part is looked for without the wildcards of a pattern.
_TEXTS: Final[Mapping[FilterOperator, str]] = {
    FilterOperator.CO: "strpos({column}, {value}) > 0",
    FilterOperator.SW: "starts_with({column}, {value})",
    FilterOperator.EW: "right({column}, length({value})) = {value}",
    FilterOperator.GT: '{column} collate "C" > {value}',
    FilterOperator.GE: '{column} collate "C" >= {value}',
    FilterOperator.LT: '{column} collate "C" < {value}',
    FilterOperator.LE: '{column} collate "C" <= {value}',
}
_TIMES: Final[Mapping[FilterOperator, str]] = {
    FilterOperator.GT: "{column} > {value}",
    FilterOperator.GE: "{column} >= {value}",
    FilterOperator.LT: "{column} < {value}",
    FilterOperator.LE: "{column} <= {value}",
}
_TYPES: Final[Mapping[FieldType, str]] = {FieldType.FLAG: "boolean", FieldType.TIME: "timestamptz"}


def condition(found: ScimFilter, address: str) -> tuple[str, dict[str, object]]:
    """The condition that the filter is, where the addresses are in this column, and what is bound to its names."""
    values: dict[str, object] = {}
    return _condition(found, {**_COLUMNS, ScimField.ADDRESS: address}, values, bare=True), values


def _condition(found: ScimFilter, columns: Mapping[ScimField, str], values: dict[str, object], *, bare: bool) -> str:
    # `bare`: an unknown, where there is no value, may come out, since there it counts as false; and an index can be used.
    match found:
        case FieldComparison():
            text = _test(found, columns, values)
            return text if bare else f"coalesce({text}, false)"
        case FieldPresent(field):
            return f"({columns[field]} is not null)"
        case And(of):
            return f"({' and '.join(_condition(each, columns, values, bare=bare) for each in of)})"
        case Or(of):
            return f"({' or '.join(_condition(each, columns, values, bare=bare) for each in of)})"
        case Not(each):
            return f"(not {_condition(each, columns, values, bare=False)})"


def _test(test: FieldComparison, columns: Mapping[ScimField, str], values: dict[str, object]) -> str:
    column, kind, name = columns[test.field], test.field.kind, f"value_{len(values)}"
    values[name] = test.operand
    value = f"%({name})s::{_TYPES.get(kind, 'text')}"
    if kind is FieldType.TEXT:
        column, value = f"lower({column})", f"lower({value})"
    match test.operator:
        case FilterOperator.EQ if test.field is ScimField.ID:
            values[name] = parse_id(str(test.operand))  # as an id, of which there is an index; what is none is nobody's
            return f"u.id = %({name})s::uuid"
        case FilterOperator.EQ:
            return f"{column} = {value}"
        case FilterOperator.NE:
            return f"{column} is distinct from {value}"
    return (_TIMES if kind is FieldType.TIME else _TEXTS)[test.operator].format(column=column, value=value)
