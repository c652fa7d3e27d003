"""SCIM filters as SQL conditions. Every value is a bound parameter (security C-7, N-7)."""

from collections.abc import Mapping
from typing import Final, LiteralString

from core.kernel.values import Email, parse_id
from core.provisioning.model import filters, grammar

# The field expressions. `u` is users, `s` is scim_users, `b` is directory_blocks, `k` has the users that the directory
# knows. Responses use the same expressions.
ACTIVE: Final = "(b.user_id is null and u.deactivated_at is null and u.anonymized_at is null)"
# Provisioned users keep the time when they were provisioned, even after leaving and joining again.
CREATED: Final = "case when u.origin = 'scim' and u.origin_org_id = %(org_id)s then u.created_at else k.joined_at end"
# When a field in the response last changed. A former member has an old address (`k.email`), so a
# later change to the account's address does not count.
UPDATED: Final = """greatest(s.updated_at, k.joined_at, case when k.email is null then u.email_changed_at end,
                              case when k.confirmed then u.profile_changed_at end)"""
_COLUMNS: Final[Mapping[filters.ScimField, str]] = {
    filters.ScimField.ID: "u.id::text",
    filters.ScimField.EXTERNAL_ID: "s.external_id",
    filters.ScimField.ADDRESS_TYPE: "'work'::text",
    filters.ScimField.ADDRESS_PRIMARY: "true",
    filters.ScimField.FORMATTED: "coalesce(s.formatted, nullif(concat_ws(' ', s.given_name, s.family_name), ''))",
    filters.ScimField.GIVEN_NAME: "s.given_name",
    filters.ScimField.FAMILY_NAME: "s.family_name",
    filters.ScimField.DISPLAY_NAME: "s.display_name",
    **{field: f"s.attributes ->> '{name}'" for field, name in filters.FURTHER_FIELDS.items()},
    filters.ScimField.ACTIVE: ACTIVE,
    filters.ScimField.RESOURCE_TYPE: "'User'::text",
    filters.ScimField.CREATED: CREATED,
    filters.ScimField.LAST_MODIFIED: UPDATED,
}
# Texts are ordered by code points, whatever the database's collation is. Text parts are found
# without LIKE, so that its wildcards have no meaning.
_TEXTS: Final[Mapping[grammar.FilterOperator, str]] = {
    grammar.FilterOperator.CO: "strpos({column}, {value}) > 0",
    grammar.FilterOperator.SW: "starts_with({column}, {value})",
    grammar.FilterOperator.EW: "right({column}, length({value})) = {value}",
    grammar.FilterOperator.GT: '{column} collate "C" > {value}',
    grammar.FilterOperator.GE: '{column} collate "C" >= {value}',
    grammar.FilterOperator.LT: '{column} collate "C" < {value}',
    grammar.FilterOperator.LE: '{column} collate "C" <= {value}',
}
_TIMES: Final[Mapping[grammar.FilterOperator, str]] = {
    grammar.FilterOperator.GT: "{column} > {value}",
    grammar.FilterOperator.GE: "{column} >= {value}",
    grammar.FilterOperator.LT: "{column} < {value}",
    grammar.FilterOperator.LE: "{column} <= {value}",
}
_SQL_TYPES: Final[Mapping[filters.FieldType, str]] = {filters.FieldType.FLAG: "boolean", filters.FieldType.TIME: "timestamptz"}


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


def condition(filter_: filters.ScimFilter, address: LiteralString) -> tuple[str, dict[str, object]]:
    """Return the filter's SQL condition, and its parameters.

    `address` is the column with the email address.
    """
    values: dict[str, object] = {}
    columns = {**_COLUMNS, filters.ScimField.ADDRESS: address, filters.ScimField.USER_NAME: user_name(address)}
    return _condition(filter_, columns, values, bare=True), values


def _condition(filter_: filters.ScimFilter, columns: Mapping[filters.ScimField, str], values: dict[str, object], *, bare: bool) -> str:
    # With `bare`, the condition may be null for a row without a value, which counts as false, and
    # an index can be used. Below a `not` the condition must be true or false.
    match filter_:
        case filters.FieldComparison():
            sql = _comparison(filter_, columns, values)
            return sql if bare else f"coalesce({sql}, false)"
        case filters.FieldPresent(field):
            return f"({columns[field]} is not null)"
        case grammar.And(operands):
            return f"({' and '.join(_condition(operand, columns, values, bare=bare) for operand in operands)})"
        case grammar.Or(operands):
            return f"({' or '.join(_condition(operand, columns, values, bare=bare) for operand in operands)})"
        case grammar.Not(operand):
            return f"(not {_condition(operand, columns, values, bare=False)})"


def _comparison(test: filters.FieldComparison, columns: Mapping[filters.ScimField, str], values: dict[str, object]) -> str:
    column, type_, name = columns[test.field], test.field.type, f"value_{len(values)}"
    values[name] = test.value
    value = f"%({name})s::{_SQL_TYPES.get(type_, 'text')}"
    if type_ is filters.FieldType.TEXT:
        column, value = f"lower({column})", f"lower({value})"
    match test.operator:
        case grammar.FilterOperator.EQ if test.field is filters.ScimField.USER_NAME:
            # The candidates are found by the indexes on the stored userName, the address and the id; a single condition
            # over several tables could use no index. An address can be spelled in Unicode.
            same, id_ = f"{name}_address", f"{name}_id"
            values |= {same: Email.parse_part(str(test.value)), id_: parse_id(str(test.value))}
            is_current = columns[filters.ScimField.ADDRESS] == "u.email"
            by_address = "select id from users where" if is_current else "select user_id from scim_users where org_id = %(org_id)s and"
            return f"""(u.id = any(array(
                select user_id from scim_users where org_id = %(org_id)s and lower(user_name) = {value}
                union all {by_address} email = %({same})s::text union all select %({id_})s::uuid))
                and {column} in ({value}, %({same})s::text))"""
        case grammar.FilterOperator.EQ if test.field is filters.ScimField.ID:
            values[name] = parse_id(str(test.value))  # as a UUID, so that the index is used; null matches no user
            return f"u.id = %({name})s::uuid"
        case grammar.FilterOperator.EQ:
            return f"{column} = {value}"
        case grammar.FilterOperator.NE:
            return f"{column} is distinct from {value}"
    return (_TIMES if type_ is filters.FieldType.TIME else _TEXTS)[test.operator].format(column=column, value=value)
