"""SCIM filters as SQL conditions. Every value is a bound parameter (security C-7, N-7)."""

from collections.abc import Mapping
from typing import Final, LiteralString

from core.kernel.values import Email, parse_id
from core.provisioning.model.filters import FURTHER_FIELDS, FieldComparison, FieldPresent, FieldType, ScimField, ScimFilter
from core.provisioning.model.grammar import And, FilterOperator, Not, Or

# The field expressions. `u` is users, `s` is scim_users, `b` is directory_blocks, `k` has the users that the directory
# knows. Responses use the same expressions.
ACTIVE: Final = "(b.user_id is null and u.deactivated_at is null and u.anonymized_at is null)"
# Provisioned users keep the time when they were provisioned, even after leaving and joining again.
CREATED: Final = "case when u.origin = 'scim' and u.origin_org_id = %(org_id)s then u.created_at else k.joined_at end"
# When a field in the response last changed. A former member has an old address (`k.email`), so a
# later change to the account's address does not count.
UPDATED: Final = """greatest(s.updated_at, k.joined_at, case when k.email is null then u.email_changed_at end,
                              case when k.confirmed then u.profile_changed_at end)"""
_COLUMNS: Final[Mapping[ScimField, str]] = {
    ScimField.ID: "u.id::text",
    ScimField.EXTERNAL_ID: "s.external_id",
    ScimField.ADDRESS_TYPE: "'work'::text",
    ScimField.ADDRESS_PRIMARY: "true",
    ScimField.FORMATTED: "coalesce(s.formatted, nullif(concat_ws(' ', s.given_name, s.family_name), ''))",
    ScimField.GIVEN_NAME: "s.given_name",
    ScimField.FAMILY_NAME: "s.family_name",
    ScimField.DISPLAY_NAME: "s.display_name",
    **{field: f"s.attributes ->> '{name}'" for field, name in FURTHER_FIELDS.items()},
    ScimField.ACTIVE: ACTIVE,
    ScimField.RESOURCE_TYPE: "'User'::text",
    ScimField.CREATED: CREATED,
    ScimField.LAST_MODIFIED: UPDATED,
}
# Texts are ordered by code points, whatever the database's collation is. Text parts are found
# without LIKE, so that its wildcards have no meaning.
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
_SQL_TYPES: Final[Mapping[FieldType, str]] = {FieldType.FLAG: "boolean", FieldType.TIME: "timestamptz"}


def user_name(address: LiteralString) -> LiteralString:
    """Return the expression for the userName: the stored userName, or else the id if another user has the address, or else the address.

    Joining and changing one's own address are never refused and do not lock the directory's data, so this is decided
    when a user is read.
    """
    # Keep the order by user_id: with membership_id, the planner may scan an index on all former members.
    return f"""coalesce(s.user_name, (
        select k.user_id::text where exists (
            select 1 from scim_users o where o.org_id = %(org_id)s and lower(o.user_name) = {address}
            union all
            select 1 from users v join memberships m on m.org_id = %(org_id)s and m.user_id = v.id where v.email = k.email
            union all
            select 1 from scim_users o where o.org_id = %(org_id)s and o.email = k.email and o.user_id < k.user_id)), {address})"""


def condition(filter_: ScimFilter, address: LiteralString) -> tuple[str, dict[str, object]]:
    """Return the filter's SQL condition, and its parameters.

    `address` is the column with the email address.
    """
    values: dict[str, object] = {}
    columns = {**_COLUMNS, ScimField.ADDRESS: address, ScimField.USER_NAME: user_name(address)}
    return _condition(filter_, columns, values, bare=True), values


def _condition(filter_: ScimFilter, columns: Mapping[ScimField, str], values: dict[str, object], *, bare: bool) -> str:
    # With `bare`, the condition may be null for a row without a value, which counts as false, and
    # an index can be used. Below a `not` the condition must be true or false.
    match filter_:
        case FieldComparison():
            sql = _comparison(filter_, columns, values)
            return sql if bare else f"coalesce({sql}, false)"
        case FieldPresent(field):
            return f"({columns[field]} is not null)"
        case And(operands):
            return f"({' and '.join(_condition(operand, columns, values, bare=bare) for operand in operands)})"
        case Or(operands):
            return f"({' or '.join(_condition(operand, columns, values, bare=bare) for operand in operands)})"
        case Not(operand):
            return f"(not {_condition(operand, columns, values, bare=False)})"


def _comparison(test: FieldComparison, columns: Mapping[ScimField, str], values: dict[str, object]) -> str:
    column, type_, name = columns[test.field], test.field.type, f"value_{len(values)}"
    values[name] = test.value
    value = f"%({name})s::{_SQL_TYPES.get(type_, 'text')}"
    if type_ is FieldType.TEXT:
        column, value = f"lower({column})", f"lower({value})"
    match test.operator:
        case FilterOperator.EQ if test.field is ScimField.USER_NAME:
            # The candidates are found by the indexes on the stored userName, the address and the id; a single condition
            # over several tables could use no index. An address can be spelled in Unicode.
            same, id_ = f"{name}_address", f"{name}_id"
            values |= {same: Email.parse_part(str(test.value)), id_: parse_id(str(test.value))}
            is_current = columns[ScimField.ADDRESS] == "u.email"
            by_address = "select id from users where" if is_current else "select user_id from scim_users where org_id = %(org_id)s and"
            return f"""(u.id = any(array(
                select user_id from scim_users where org_id = %(org_id)s and lower(user_name) = {value}
                union all {by_address} email = %({same})s::text union all select %({id_})s::uuid))
                and {column} in ({value}, %({same})s::text))"""
        case FilterOperator.EQ if test.field is ScimField.ID:
            values[name] = parse_id(str(test.value))  # as a UUID, so that the index is used; null matches no user
            return f"u.id = %({name})s::uuid"
        case FilterOperator.EQ:
            return f"{column} = {value}"
        case FilterOperator.NE:
            return f"{column} is distinct from {value}"
    return (_TIMES if type_ is FieldType.TIME else _TEXTS)[test.operator].format(column=column, value=value)
