"""The rights of roles, and who may give which role (security R-1)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.kernel.roles import (
    GRANTABLE,
    PLATFORM_RIGHTS,
    Capability,
    Role,
    assignable,
    giveable,
    may_give,
    names_with,
    needs_roles_manage,
    rights_of,
)

# The roles that each role may give to a person. Whether it may invite at all is the right `members.manage`.
TO_PEOPLE = {
    Role.OWNER: {Role.ADMIN, Role.MEMBER},
    Role.ADMIN: {Role.MEMBER},
    Role.MEMBER: {Role.MEMBER},
}
# And to a service account.
TO_PROGRAMS = {
    Role.OWNER: {Role.OWNER, Role.ADMIN, Role.MEMBER},
    Role.ADMIN: {Role.ADMIN, Role.MEMBER},
    Role.MEMBER: {Role.MEMBER},
}
RIGHTS = st.frozensets(st.sampled_from(Capability))


@pytest.mark.parametrize("role", [*Role])
@pytest.mark.parametrize("giver", [*Role])
def test_each_role_may_give_exactly_these_roles(giver: Role, role: Role) -> None:
    assert may_give(rights_of(giver), role) == (role in TO_PEOPLE[giver])
    assert may_give(rights_of(giver), role, to_program=True) == (role in TO_PROGRAMS[giver])


def test_the_lists_have_what_may_be_given_in_order() -> None:
    assert giveable(rights_of(Role.OWNER)) == assignable() == (Role.ADMIN, Role.MEMBER)
    assert giveable(rights_of(Role.OWNER), to_program=True) == (Role.OWNER, Role.ADMIN, Role.MEMBER)
    assert giveable(rights_of(Role.ADMIN), to_program=True) == (Role.ADMIN, Role.MEMBER)
    assert giveable(frozenset()) == giveable(PLATFORM_RIGHTS, to_program=True) == ()


@given(RIGHTS, st.sampled_from(Role), st.booleans())
def test_the_giver_has_every_right_of_the_role(giver: frozenset[Capability], role: Role, to_program: bool) -> None:
    if may_give(giver, role, to_program=to_program):
        assert rights_of(role) <= giver


@given(RIGHTS, st.sampled_from(Role))
def test_a_person_gets_a_role_above_member_only_from_a_caller_with_roles_manage(giver: frozenset[Capability], role: Role) -> None:
    if may_give(giver, role):
        assert role == Role.MEMBER or Capability.ROLES_MANAGE in giver


@given(RIGHTS)
def test_no_one_gives_a_person_the_ownership(giver: frozenset[Capability]) -> None:
    assert not any(Capability.ORGANIZATION_OWN in rights_of(role) for role in giveable(giver))
    assert not may_give(frozenset(Capability), Role.OWNER)


@pytest.mark.parametrize("name", [None, "", "Owner", "billing", "owner "])
def test_an_unknown_role_has_no_rights(name: str | None) -> None:
    assert rights_of(name) == frozenset()


def test_every_role_but_member_needs_roles_manage() -> None:
    assert [role for role in Role if needs_roles_manage(role)] == [Role.OWNER, Role.ADMIN]
    assert needs_roles_manage("billing"), "and a role of a later release does, too"


def test_the_names_with_a_right_are_those_of_its_roles() -> None:
    assert names_with(Capability.SERVICE_ACCOUNTS_MANAGE) == (Role.OWNER, Role.ADMIN)
    assert names_with(Capability.ORGANIZATION_VIEW) == (Role.OWNER, Role.ADMIN, Role.MEMBER)
    assert names_with(Capability.ROLES_MANAGE) == (Role.OWNER,)
    assert names_with(Capability.PLATFORM_OWN) == ()


def test_platform_owners_have_the_rights_of_the_platform_and_no_others() -> None:
    assert {capability for capability in Capability if capability.is_of_platform} == PLATFORM_RIGHTS
    assert not any(rights_of(role) & PLATFORM_RIGHTS for role in Role)
    assert {capability for capability in GRANTABLE if capability.is_of_platform} <= PLATFORM_RIGHTS
