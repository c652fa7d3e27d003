"""The grammar of SCIM filters, and what they mean (RFC 7644 section 3.4.2.2; security.md C-7)."""

import json
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.provisioning.filters import GROUP_FIELDS, USER_FIELDS, FieldComparison, ScimField, FieldType, FieldPresent, parse_group_filter, parse_user_filter, matches
from core.provisioning.grammar import (
    MAX_DEPTH,
    And,
    ParsedComparison,
    FilterInvalid,
    Not,
    FilterOperator,
    PatchPath,
    PathInvalid,
    ParsedPresence,
    Or,
    ParsedValuePath,
    ParsedFilter,
    parse,
    parse_path,
)
from core.provisioning.schemas import GROUP, USER, ScimSchema


def test_and_binds_closer_than_or_and_not_closest() -> None:
    a, b, c = ParsedPresence("a"), ParsedPresence("b"), ParsedPresence("c")
    assert parse("a pr or b pr and c pr") == Or((a, And((b, c))))
    assert parse("(a pr or b pr) and c pr") == And((Or((a, b)), c))
    assert parse("not (a pr) and b pr") == And((Not(a), b))
    assert parse("A PR OR NOT(B pr AND C pr)") == Or((a, Not(And((b, c)))))
    assert parse('a[b eq "x" and c pr]') == ParsedValuePath("a", And((ParsedComparison("b", FilterOperator.EQ, "x"), c)))


def test_literals_are_those_of_json_and_ids_may_stand_alone() -> None:
    for text, literal in (
        ('"x"', "x"), ('"a \\"b\\" \\u00e9"', 'a "b" é'), ("true", True), ("False", False), ("null", None), ("5", 5), ("-1.5", -1.5),
        ("7e2a5f6c-0000-4000-8000-000000000001", "7e2a5f6c-0000-4000-8000-000000000001"), ('")("', ")("),
    ):  # fmt: skip
        assert parse(f"a eq {text}") == ParsedComparison("a", FilterOperator.EQ, literal)


@pytest.mark.parametrize(("fields", "schema"), [(USER_FIELDS, USER), (GROUP_FIELDS, GROUP)])
def test_values_have_the_case_that_the_schema_says(fields: Mapping[str, ScimField], schema: ScimSchema) -> None:
    for name, field in fields.items():
        first, _, second = name.partition(".")
        attribute = schema.attribute(first)
        assert attribute is not None, name
        if attribute.sub_attributes:
            attribute = attribute.sub(second or "value")
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
        | st.lists(inner, min_size=2, max_size=3).map(lambda of: And(tuple(of)))
        | st.lists(inner, min_size=2, max_size=3).map(lambda of: Or(tuple(of)))
    ),
    max_leaves=8,
)


def written(tree: ParsedFilter) -> str:
    """The tree with all its parentheses."""
    match tree:
        case ParsedPresence(name):
            return f"{name} pr"
        case ParsedComparison(name, operator, literal):
            return f"{name} {operator} {json.dumps(literal)}"
        case Not(each):
            return f"not ({written(each)})"
        case And(of):
            return " and ".join(f"({written(each)})" for each in of)
        case Or(of):
            return " or ".join(f"({written(each)})" for each in of)
        case ParsedValuePath(name, each):
            return f"{name}[{written(each)}]"


@settings(max_examples=40)
@given(trees)
def test_what_is_written_is_read(tree: ParsedFilter) -> None:
    assert parse(written(tree)) == tree


@given(st.text(max_size=60) | st.text('()[]" eq.andornot"x5', max_size=60))
def test_whatever_is_written_is_read_or_refused(text: str) -> None:
    for read in (parse_user_filter, parse_group_filter, parse_path):
        with suppress(FilterInvalid, PathInvalid):
            read(text)


def test_depth_and_length_are_bounded() -> None:
    parse("(" * MAX_DEPTH + "a pr" + ")" * MAX_DEPTH)
    for text in ("(" * (MAX_DEPTH + 1) + "a pr" + ")" * (MAX_DEPTH + 1), "a pr" + " " * 9000, " and ".join(["a pr"] * 101)):
        with pytest.raises(FilterInvalid):
            parse(text)


def test_what_a_filter_of_users_means() -> None:
    for text, meant in (
        ('userName eq "Ada@EXAMPLE.com"', FieldComparison(ScimField.ADDRESS, FilterOperator.EQ, "ada@example.com")),
        ('emails[type eq "WORK"]', FieldComparison(ScimField.ADDRESS_TYPE, FilterOperator.EQ, "WORK")),
        ('name.givenName co "AD"', FieldComparison(ScimField.GIVEN_NAME, FilterOperator.CO, "AD")),
        ('displayName eq "Ada"', FieldComparison(ScimField.DISPLAY_NAME, FilterOperator.EQ, "Ada")),
        ('active ne "FALSE"', FieldComparison(ScimField.ACTIVE, FilterOperator.NE, False)),
        ("externalId eq null", Not(FieldPresent(ScimField.EXTERNAL_ID))),
        ("externalId ne null", FieldPresent(ScimField.EXTERNAL_ID)),
        ('meta.created ge "2026-01-02T03:04:05+01:00"', FieldComparison(ScimField.CREATED, FilterOperator.GE, datetime(2026, 1, 2, 2, 4, 5, tzinfo=UTC))),
        ('id pr and not (id eq "x")', And((FieldPresent(ScimField.ID), Not(FieldComparison(ScimField.ID, FilterOperator.EQ, "x"))))),
        ('id pr or id sw "x"', Or((FieldPresent(ScimField.ID), FieldComparison(ScimField.ID, FilterOperator.SW, "x")))),
    ):
        assert parse_user_filter(text) == meant, text


def test_a_value_that_there_is_not_is_not_equal_and_compares_with_nothing() -> None:
    nobody = dict.fromkeys(ScimField)
    for text, held in (
        ('externalId eq "x"', False),
        ('externalId ne "x"', True),
        ('externalId gt ""', False),
        ('not (externalId co "")', True),
    ):
        assert matches(parse_user_filter(text), nobody.__getitem__) is held


def test_paths() -> None:
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
        assert parse_path(text) == path
    for text in ("", " ", "a b", "a.", ".a", "a.b.c", "[id pr]", "a[id pr]b", "a[id pr].b.c", "a[id pr]..", "é"):
        with pytest.raises(PathInvalid):
            parse_path(text)
    for text in ("a[", "a[]", "a[id pr", "a[id]"):
        with pytest.raises(FilterInvalid):
            parse_path(text)


def test_what_is_no_literal_is_refused() -> None:
    for text in ("userName eq {}", "userName eq {x", "userName eq }", "active eq nan", "userName eq []"):
        with pytest.raises(FilterInvalid):
            parse(text)
