"""SCIM filters in SQL against a model: the same filter, applied to values in Python."""

from functools import partial
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.provisioning.model.filters import (
    FURTHER_FIELDS,
    FieldComparison,
    FieldPresent,
    FieldType,
    FieldValue,
    ScimField,
    ScimFilter,
    matches,
)
from core.provisioning.model.grammar import And, FilterOperator, Not, Or
from core.provisioning.model.users import ScimUser
from tests.provisioning.storage.users import TEXTS, add_users
from tests.support.rows import NOW, SECOND


def value_of(user: ScimUser, field: ScimField) -> FieldValue:
    profile = user.profile
    values: dict[ScimField, FieldValue] = {
        ScimField.ID: str(user.id),
        ScimField.EXTERNAL_ID: profile.external_id,
        ScimField.USER_NAME: user.user_name,
        ScimField.ADDRESS: user.email,
        ScimField.ADDRESS_TYPE: "work",
        ScimField.ADDRESS_PRIMARY: True,
        ScimField.FORMATTED: profile.full_name,
        ScimField.GIVEN_NAME: profile.given_name,
        ScimField.FAMILY_NAME: profile.family_name,
        ScimField.DISPLAY_NAME: profile.display_name,
        **{further: profile.attributes.get(name) for further, name in FURTHER_FIELDS.items()},
        ScimField.ACTIVE: user.active,
        ScimField.RESOURCE_TYPE: "User",
        ScimField.CREATED: user.created_at,
        ScimField.LAST_MODIFIED: user.updated_at,
    }
    value = values[field]
    return value.lower() if field.type is FieldType.TEXT and isinstance(value, str) else value


fields = st.sampled_from([field for field in ScimField if field is not ScimField.MEMBER])


@st.composite
def comparisons(draw: st.DrawFn) -> ScimFilter:
    field = draw(fields)
    text = draw(st.sampled_from([*TEXTS, "ada@example.com", "@example", "work", "User", "00000000-0000-4000-8000-000000000001"]))
    match field.type:
        case FieldType.FLAG:
            return FieldComparison(field, draw(st.sampled_from([FilterOperator.EQ, FilterOperator.NE])), draw(st.booleans()))
        case FieldType.TIME:
            operators = [
                operator for operator in FilterOperator if operator not in (FilterOperator.CO, FilterOperator.SW, FilterOperator.EW)
            ]
            return FieldComparison(field, draw(st.sampled_from(operators)), NOW + draw(st.integers(-1, 3)) * SECOND)
        case FieldType.EXACT:
            return FieldComparison(field, draw(st.sampled_from(FilterOperator)), text)
    return FieldComparison(field, draw(st.sampled_from(FilterOperator)), text.lower())


filters: st.SearchStrategy[ScimFilter] = st.recursive(
    comparisons() | st.builds(FieldPresent, fields),
    lambda inner: (
        st.builds(Not, inner)
        | st.lists(inner, min_size=2, max_size=3).map(lambda operands: And(tuple(operands)))
        | st.lists(inner, min_size=2, max_size=3).map(lambda operands: Or(tuple(operands)))
    ),
    max_leaves=5,
)


def examples(count: int) -> list[ScimFilter]:
    collected: list[ScimFilter] = []

    @settings(max_examples=count)
    @given(filters)
    def collect(filter_: ScimFilter) -> None:
        collected.append(filter_)

    collect()
    return collected


@pytest.mark.slow
async def test_a_filter_finds_the_matching_users(storage: Postgres, pool: Pool, acme: UUID, other_tenant: UUID) -> None:
    users = await add_users(storage, pool, acme, other_tenant)
    async with storage.reading() as read:
        for filter_ in [*examples(400), *(FieldComparison(ScimField.ID, FilterOperator.EQ, str(user.id)) for user in users)]:
            expected = [user for user in users if matches(filter_, partial(value_of, user))]
            page = await read.scim_users.page(acme, filter_, 0, 100)
            assert (list(page.items), page.total) == (expected, len(expected)), filter_
            part = await read.scim_users.page(acme, filter_, 1, 2)
            assert (list(part.items), part.total) == (expected[1:3], len(expected)), filter_
