"""The roles that members can have, and the roles that they may give."""

import pytest

from core.kernel.roles import ADMIN, MEMBER, OWNER, ROLES, rights_of
from core.tenancy.model.members import OwnershipNotAssignable, RoleUnknown, may_invite, require_assignable


def test_admin_and_member_are_assignable() -> None:
    for role in (ADMIN, MEMBER):
        assert require_assignable(ROLES[role]) == ROLES[role]


def test_the_role_owner_is_not_assignable() -> None:
    with pytest.raises(OwnershipNotAssignable):
        require_assignable(ROLES[OWNER])


def test_an_unknown_role_is_not_assignable() -> None:
    with pytest.raises(RoleUnknown):
        require_assignable(None)


def test_the_owner_may_give_two_roles_and_an_admin_one() -> None:
    expected = {OWNER: {ADMIN, MEMBER}, ADMIN: {MEMBER}, MEMBER: set(), None: set()}
    assert {giver: {role for role in ROLES if may_invite(rights_of(giver), ROLES[role])} for giver in expected} == expected
