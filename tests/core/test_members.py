"""The pure rules about members: which roles can be given, and to which roles somebody may not invite."""

import pytest

from core.access import Role
from core.members import OwnershipNotAssigned, RoleUnknown, assignable, out_of_reach


@pytest.mark.parametrize("role", [Role.ADMIN, Role.MEMBER])
def test_roles_that_can_be_given(role: Role) -> None:
    assert assignable(role.value) is role


def test_nobody_is_made_owner() -> None:
    with pytest.raises(OwnershipNotAssigned):
        assignable("owner")


@pytest.mark.parametrize("name", ["", "boss", "Admin", " admin", "admin\n", "ADMIN", "members"])
def test_there_are_no_other_roles(name: str) -> None:
    with pytest.raises(RoleUnknown):
        assignable(name)


@pytest.mark.parametrize(
    ("role", "roles"),
    [
        (Role.OWNER, {Role.OWNER}),
        (Role.ADMIN, {Role.OWNER, Role.ADMIN}),
        (Role.MEMBER, {Role.OWNER, Role.ADMIN, Role.MEMBER}),
        (None, {Role.OWNER, Role.ADMIN, Role.MEMBER}),
    ],
)
def test_nobody_invites_to_a_role_that_they_could_not_give(role: Role | None, roles: set[Role]) -> None:
    assert out_of_reach(role) == roles
