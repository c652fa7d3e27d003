"""The groups that are assigned to an application or an API resource, or have a role, as pages show them."""

from collections.abc import Sequence
from typing import Any

from core.kernel.roles import Capability
from core.tenancy import groups
from core.tenancy.model.groups import AssignedGroup
from entrypoints.http import kit
from entrypoints.http.pages import console


async def assigned_group_values(assigned: Sequence[AssignedGroup]) -> dict[str, Any]:
    """Return the values for `tenancy/_assigned_groups.html`: these groups, and other groups as options if the member sees groups."""
    others = await groups.list_all(kit.ports(), kit.acting_member()) if console.may(Capability.MEMBERS_VIEW) else []
    ids = {group.group_id for group in assigned}
    return {
        "groups": assigned,
        "other_groups": [(str(group.id), group.name) for group in others if group.id not in ids],
        "groups_path": console.organization_path("/groups"),
    }
