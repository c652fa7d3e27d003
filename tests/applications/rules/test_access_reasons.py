"""The reason why a user may use an application, or may not."""

from dataclasses import replace
from typing import Any

from core.applications.model.access_reasons import (
    AccessReason,
    ApplicationAccess,
    ApplicationFacts,
    RoleAtApplication,
    UserState,
    reason_of,
)
from core.applications.model.authorization import GivingGroup
from core.applications.model.users import AccessPolicy
from core.kernel.values import Email, new_id
from tests.tables import table

GROUP = GivingGroup(new_id(), "Staff")
USER = UserState(
    user_id=new_id(),
    email=Email("ada@example.com"),
    is_member=False,
    is_end_user=True,
    is_deactivated=False,
    is_blocked_by_directory=False,
    is_blocked_by_admin=False,
)
SHOP = ApplicationFacts(slug="shop", name="Shop", policy=AccessPolicy.ASSIGNED, is_assigned=False, is_subscribed=False, groups=(), roles=())


@table(
    ("user", "application", "expected"),
    [
        ({}, {"policy": AccessPolicy.ANYONE}, AccessReason.ANYONE),
        ({}, {"policy": AccessPolicy.MEMBERS}, AccessReason.NOT_MEMBER),
        ({"is_member": True}, {"policy": AccessPolicy.MEMBERS}, AccessReason.MEMBER),
        ({"is_member": True}, {}, AccessReason.NOT_ASSIGNED),
        ({"is_member": True}, {"policy": AccessPolicy.MEMBERS_AND_ASSIGNED, "is_assigned": True}, AccessReason.MEMBER),
        ({}, {"policy": AccessPolicy.MEMBERS_AND_ASSIGNED, "is_assigned": True}, AccessReason.ASSIGNED),
        ({}, {"policy": AccessPolicy.MEMBERS_AND_ASSIGNED}, AccessReason.NOT_ASSIGNED),
        ({}, {"is_assigned": True, "is_subscribed": True, "groups": (GROUP,)}, AccessReason.ASSIGNED),
        ({}, {"is_subscribed": True, "groups": (GROUP,)}, AccessReason.SUBSCRIPTION),
        ({}, {"groups": (GROUP,)}, AccessReason.GROUP),
        ({"is_blocked_by_admin": True}, {"policy": AccessPolicy.ANYONE}, AccessReason.BLOCKED_BY_ADMIN),
        ({"is_blocked_by_directory": True, "is_blocked_by_admin": True}, {"is_assigned": True}, AccessReason.BLOCKED_BY_DIRECTORY),
        ({"is_deactivated": True, "is_blocked_by_directory": True}, {}, AccessReason.DEACTIVATED),
    ],
)
def test_each_reason(user: dict[str, Any], application: dict[str, Any], expected: AccessReason) -> None:
    assert reason_of(replace(USER, **user), replace(SHOP, **application)) is expected


def test_roles_give_no_permission_without_access() -> None:
    roles = (RoleAtApplication("b", "B", ("write", "read"), True, ()), RoleAtApplication("a", "A", ("read",), False, (GROUP,)))
    shop = replace(SHOP, roles=roles)
    assert ApplicationAccess(shop, AccessReason.GROUP).permissions == ["read", "write"]
    assert ApplicationAccess(shop, AccessReason.NOT_ASSIGNED).permissions == []
