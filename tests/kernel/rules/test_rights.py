"""The roles' rights, and who may give which role (security R-1)."""

from hypothesis import given
from hypothesis import strategies as st

from core.kernel.roles import (
    ADMIN,
    GRANTABLE,
    MEMBER,
    OWNER,
    PLATFORM_RIGHTS,
    ROLES,
    Capability,
    Rights,
    Role,
    RoleName,
    find_role,
    giveable,
    may_give,
    names_with,
    needs_roles_manage,
    rights_of,
)
from tests.tables import table

# The roles that a role may give to a person. Whether it may invite at all is the right `members.manage`.
TO_PEOPLE = {
    OWNER: {ADMIN, MEMBER},
    ADMIN: {MEMBER},
    MEMBER: {MEMBER},
}
# And to a service account.
TO_PROGRAMS = {
    OWNER: {OWNER, ADMIN, MEMBER},
    ADMIN: {ADMIN, MEMBER},
    MEMBER: {MEMBER},
}
RIGHTS = st.frozensets(st.sampled_from(Capability))
# The roles in the table, and roles with any other rights.
ANY_ROLE = st.one_of(st.sampled_from([*ROLES.values()]), st.builds(Role, st.just(RoleName("billing")), st.just(""), st.just(""), RIGHTS))


@table("name", [*ROLES])
@table("giver", [*ROLES])
def test_each_role_may_give_exactly_these_roles(giver: RoleName, name: RoleName) -> None:
    assert may_give(rights_of(giver), ROLES[name]) == (name in TO_PEOPLE[giver])
    assert may_give(rights_of(giver), ROLES[name], to_program=True) == (name in TO_PROGRAMS[giver])


def test_the_lists_have_what_may_be_given_in_order() -> None:
    owner, admin, member = ROLES.values()
    roles = ROLES.values()
    assert giveable(rights_of(OWNER), roles) == (admin, member)
    assert giveable(rights_of(OWNER), roles, to_program=True) == (owner, admin, member)
    assert giveable(rights_of(ADMIN), roles, to_program=True) == (admin, member)
    assert giveable(frozenset(), roles) == giveable(PLATFORM_RIGHTS, roles, to_program=True) == ()


@given(RIGHTS, ANY_ROLE, st.booleans())
def test_the_giver_has_every_right_of_the_role(giver: Rights, role: Role, to_program: bool) -> None:
    if may_give(giver, role, to_program=to_program):
        assert role.rights <= giver


@given(RIGHTS, ANY_ROLE)
def test_a_person_gets_a_role_above_member_only_from_a_caller_with_roles_manage(giver: Rights, role: Role) -> None:
    if may_give(giver, role):
        assert role.name == MEMBER or Capability.ROLES_MANAGE in giver


@given(RIGHTS, ANY_ROLE)
def test_no_one_gives_a_person_the_ownership(giver: Rights, role: Role) -> None:
    if may_give(giver, role) and role.name != MEMBER:
        assert Capability.ORGANIZATION_OWN not in role.rights
    assert not may_give(frozenset(Capability), ROLES[OWNER])


@table("name", [None, "", "Owner", "billing", "owner "])
def test_an_unknown_role_has_no_rights(name: str | None) -> None:
    assert rights_of(name) == frozenset()
    assert find_role(name) is None
    assert not may_give(frozenset(Capability), find_role(name), to_program=True), "which does not make it a role of everyone"


def test_every_role_but_member_needs_roles_manage() -> None:
    assert [role for role in ROLES if needs_roles_manage(role)] == [OWNER, ADMIN]
    assert needs_roles_manage("billing"), "and a role of a later release does, too"


def test_the_names_with_a_right_are_those_of_its_roles() -> None:
    assert names_with(Capability.SERVICE_ACCOUNTS_MANAGE) == (OWNER, ADMIN)
    assert names_with(Capability.ORGANIZATION_VIEW) == (OWNER, ADMIN, MEMBER)
    assert names_with(Capability.ROLES_MANAGE) == (OWNER,)
    assert names_with(Capability.PLATFORM_OWN) == ()


def test_platform_owners_have_the_rights_of_the_platform_and_no_others() -> None:
    assert {capability for capability in Capability if capability.is_of_platform} == PLATFORM_RIGHTS
    assert not any(rights_of(role) & PLATFORM_RIGHTS for role in ROLES)
    assert {capability for capability in GRANTABLE if capability.is_of_platform} <= PLATFORM_RIGHTS
