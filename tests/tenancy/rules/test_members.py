"""The pure rules about members: which roles can be given, and by whom."""

import pytest

from core.kernel.principals import Role
from core.tenancy.members_rules import OwnershipNotAssignable, RoleUnknown, parse_assignable_role, grantable_roles


@pytest.mark.parametrize("role", [Role.ADMIN, Role.MEMBER])
def test_roles_that_can_be_given(role: Role) -> None:
    assert parse_assignable_role(role.value) is role


def test_nobody_is_made_owner() -> None:
    with pytest.raises(OwnershipNotAssignable):
        parse_assignable_role("owner")


@pytest.mark.parametrize("name", ["", "boss", "Admin", " admin", "admin\n", "ADMIN", "members"])
def test_there_are_no_other_roles(name: str) -> None:
    with pytest.raises(RoleUnknown):
        parse_assignable_role(name)


@pytest.mark.parametrize(
    ("role", "roles"),
    [
        (Role.OWNER, {Role.ADMIN, Role.MEMBER}),
        (Role.ADMIN, {Role.MEMBER}),
        (Role.MEMBER, set()),
        (None, set()),
    ],
)
def test_the_owner_can_give_two_roles_and_an_admin_one(role: Role | None, roles: set[Role]) -> None:
    assert grantable_roles(role) == roles
