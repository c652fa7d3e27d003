"""The roles that members can have, and the roles that they may give."""

import pytest

from core.kernel.roles import ADMIN, MEMBER, OWNER, ROLES, rights_of
from core.tenancy.model.members import OwnershipNotAssignable, RoleUnknown, may_invite, parse_assignable_role


def test_admin_and_member_are_assignable() -> None:
    for role in (ADMIN, MEMBER):
        assert parse_assignable_role(role) == role


def test_the_role_owner_is_not_assignable() -> None:
    with pytest.raises(OwnershipNotAssignable):
        parse_assignable_role("owner")


def test_other_roles_do_not_exist() -> None:
    for name in ("", "boss", "Admin", " admin", "admin\n", "ADMIN", "members"):
        with pytest.raises(RoleUnknown):
            parse_assignable_role(name)


def test_the_owner_may_give_two_roles_and_an_admin_one() -> None:
    expected = {OWNER: {ADMIN, MEMBER}, ADMIN: {MEMBER}, MEMBER: set(), None: set()}
    assert {giver: {role for role in ROLES if may_invite(rights_of(giver), role)} for giver in expected} == expected
