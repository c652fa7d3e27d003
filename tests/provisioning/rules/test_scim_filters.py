"""SCIM filters and patch paths (security C-7, RFC 7644 section 3.4.2.2)."""

import json
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.provisioning.model.filters import (
    GROUP_FIELDS,
    USER_FIELDS,
    FieldComparison,
    FieldPresent,
    FieldType,
    ScimField,
    matches,
    parse_group_filter,
    parse_user_filter,
)
from core.provisioning.model.grammar import (
    MAX_DEPTH,
    And,
    FilterInvalid,
    FilterOperator,
    Not,
    Or,
    ParsedComparison,
    ParsedFilter,
    ParsedPresence,
    ParsedValuePath,
    PatchPath,
    PathInvalid,
    parse,
    parse_path,
)
from core.provisioning.model.schemas import ENTERPRISE_URN, GROUP, USER, ScimSchema
from tests.tables import table


def test_not_binds_tighter_than_and_which_binds_tighter_than_or() -> None:
    a, b, c = ParsedPresence("a"), ParsedPresence("b"), ParsedPresence("c")
    assert parse("a pr or b pr and c pr") == Or((a, And((b, c))))
    assert parse("(a pr or b pr) and c pr") == And((Or((a, b)), c))
    assert parse("not (a pr) and b pr") == And((Not(a), b))
    assert parse("A PR OR NOT(B pr AND C pr)") == Or((a, Not(And((b, c)))))
    assert parse('a[b eq "x" and c pr]') == ParsedValuePath("a", And((ParsedComparison("b", FilterOperator.EQ, "x"), c)))


def test_literals_are_json_and_ids_need_no_quotation_marks() -> None:
    for text, literal in (
        ('"x"', "x"), ('"a \\"b\\" \\u00e9"', 'a "b" é'), ("true", True), ("False", False), ("null", None), ("5", 5), ("-1.5", -1.5),
        ("7e2a5f6c-0000-4000-8000-000000000001", "7e2a5f6c-0000-4000-8000-000000000001"), ('")("', ")("),
    ):  # fmt: skip
        assert parse(f"a eq {text}") == ParsedComparison("a", FilterOperator.EQ, literal)


@table(("fields", "schema"), [(USER_FIELDS, USER), (GROUP_FIELDS, GROUP)])
def test_a_field_ignores_case_exactly_if_its_attribute_in_the_schema_does(fields: Mapping[str, ScimField], schema: ScimSchema) -> None:
    for name, field in fields.items():
        outer, _, inner = (name, "", "") if name.startswith("urn:") else name.partition(".")
        attribute = schema.attribute(outer)
        assert attribute is not None, name
        if attribute.sub_attributes:
            attribute = attribute.sub(inner or "value")
        assert attribute is not None, name
        if field.type in (FieldType.EXACT, FieldType.TEXT, FieldType.ADDRESS):
            assert attribute.case_exact is (field.type is FieldType.EXACT), name


names = st.sampled_from(["username", "externalid", "name.givenname", "active", "emails.value"])
literals = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**9), 10**9),
    st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S"]), max_size=9),
)
leaves = st.builds(ParsedPresence, names) | st.builds(ParsedComparison, names, st.sampled_from(FilterOperator), literals)
trees: st.SearchStrategy[ParsedFilter] = st.recursive(
    leaves,
    lambda inner: (
        st.builds(Not, inner)
        | st.lists(inner, min_size=2, max_size=3).map(lambda operands: And(tuple(operands)))
        | st.lists(inner, min_size=2, max_size=3).map(lambda operands: Or(tuple(operands)))
    ),
    max_leaves=8,
)


def to_text(tree: ParsedFilter) -> str:
    """Return the filter with parentheses around every operand."""
    match tree:
        case ParsedPresence(name):
            return f"{name} pr"
        case ParsedComparison(name, operator, literal):
            return f"{name} {operator} {json.dumps(literal)}"
        case Not(operand):
            return f"not ({to_text(operand)})"
        case And(operands):
            return " and ".join(f"({to_text(operand)})" for operand in operands)
        case Or(operands):
            return " or ".join(f"({to_text(operand)})" for operand in operands)
        case ParsedValuePath(name, inner):
            return f"{name}[{to_text(inner)}]"


@settings(max_examples=40)
@given(trees)
def test_parsing_the_text_of_a_filter_returns_the_filter(tree: ParsedFilter) -> None:
    assert parse(to_text(tree)) == tree


@given(st.text(max_size=60) | st.text('()[]" eq.andornot"x5', max_size=60))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    for parser in (parse_user_filter, parse_group_filter, parse_path):
        with suppress(FilterInvalid, PathInvalid):
            parser(text)


def test_depth_length_and_comparisons_are_limited() -> None:
    parse("(" * MAX_DEPTH + "a pr" + ")" * MAX_DEPTH)
    for text in ("(" * (MAX_DEPTH + 1) + "a pr" + ")" * (MAX_DEPTH + 1), "a pr" + " " * 9000, " and ".join(["a pr"] * 101)):
        with pytest.raises(FilterInvalid):
            parse(text)


def test_a_user_filter_compares_fields() -> None:
    for text, expected in (
        ('userName eq "Ada@EXAMPLE.com"', FieldComparison(ScimField.USER_NAME, FilterOperator.EQ, "Ada@EXAMPLE.com")),
        ('emails.value eq "Ada@EXAMPLE.com"', FieldComparison(ScimField.ADDRESS, FilterOperator.EQ, "ada@example.com")),
        (f'{ENTERPRISE_URN}:Department eq "Navy"', FieldComparison(ScimField.DEPARTMENT, FilterOperator.EQ, "Navy")),
        ('emails[type eq "WORK"]', FieldComparison(ScimField.ADDRESS_TYPE, FilterOperator.EQ, "WORK")),
        ('name.givenName co "AD"', FieldComparison(ScimField.GIVEN_NAME, FilterOperator.CO, "AD")),
        ('displayName eq "Ada"', FieldComparison(ScimField.DISPLAY_NAME, FilterOperator.EQ, "Ada")),
        ('active ne "FALSE"', FieldComparison(ScimField.ACTIVE, FilterOperator.NE, False)),
        ("externalId eq null", Not(FieldPresent(ScimField.EXTERNAL_ID))),
        ("externalId ne null", FieldPresent(ScimField.EXTERNAL_ID)),
        (
            'meta.created ge "2026-01-02T03:04:05+01:00"',
            FieldComparison(ScimField.CREATED, FilterOperator.GE, datetime(2026, 1, 2, 2, 4, 5, tzinfo=UTC)),
        ),
        ('id pr and not (id eq "x")', And((FieldPresent(ScimField.ID), Not(FieldComparison(ScimField.ID, FilterOperator.EQ, "x"))))),
        ('id pr or id sw "x"', Or((FieldPresent(ScimField.ID), FieldComparison(ScimField.ID, FilterOperator.SW, "x")))),
    ):
        assert parse_user_filter(text) == expected, text


def test_a_missing_value_is_unequal_to_every_value_and_matches_no_other_comparison() -> None:
    values = dict.fromkeys(ScimField)
    for text, expected in (
        ('externalId eq "x"', False),
        ('externalId ne "x"', True),
        ('externalId gt ""', False),
        ('not (externalId co "")', True),
    ):
        assert matches(parse_user_filter(text), values.__getitem__) is expected, text


def test_a_path_has_an_attribute_a_filter_and_a_sub_attribute() -> None:
    for text, path in (
        ("userName", PatchPath("userName")),
        ("name.givenName", PatchPath("name", None, "givenName")),
        ('emails[type eq "work"]', PatchPath("emails", ParsedComparison("type", FilterOperator.EQ, "work"))),
        ('emails[type eq "work"].value', PatchPath("emails", ParsedComparison("type", FilterOperator.EQ, "work"), "value")),
        (
            "urn:ietf:params:scim:schemas:core:2.0:User:name.givenName",
            PatchPath("urn:ietf:params:scim:schemas:core:2.0:User:name", None, "givenName"),
        ),
        (
            "members[value eq 7e2a5f6c-0000-4000-8000-000000000001]",
            PatchPath("members", ParsedComparison("value", FilterOperator.EQ, "7e2a5f6c-0000-4000-8000-000000000001")),
        ),
    ):
        assert parse_path(text) == path, text
    for text in ("", " ", "a b", "a.", ".a", "a.b.c", "[id pr]", "a[id pr]b", "a[id pr].b.c", "a[id pr]..", "é"):
        with pytest.raises(PathInvalid):
            parse_path(text)
    for text in ("a[", "a[]", "a[id pr", "a[id]"):
        with pytest.raises(FilterInvalid):
            parse_path(text)


def test_a_value_that_is_not_a_literal_is_refused() -> None:
    for text in ("userName eq {}", "userName eq {x", "userName eq }", "active eq nan", "userName eq []"):
        with pytest.raises(FilterInvalid):
            parse(text)
