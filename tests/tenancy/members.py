"""The members of the organizations in the tests of members, and every call about members."""

from collections.abc import Awaitable, Callable, Mapping

from core.kernel.principals import Role
from tests.support.builders import Answer
from tests.support.tenants import Tenant

CAST: Mapping[str, Role] = {"owner": Role.OWNER, "admin": Role.ADMIN, "deputy": Role.ADMIN, "member": Role.MEMBER, "further": Role.MEMBER}

CALLS: dict[str, Callable[[Tenant, str, str], Awaitable[Answer]]] = {
    "list": lambda team, token, whom: team.api.get(f"{team.path}/members", token=token),
    "role": lambda team, token, whom: team.api.patch(f"{team.path}/members/{whom}", {"role": "admin"}, token=token),
    "removal": lambda team, token, whom: team.api.post(f"{team.path}/members/{whom}", token=token),
    "transfer": lambda team, token, whom: team.api.post(f"{team.path}/transfer-ownership", {"new_owner_user_id": whom}, token=token),
}
