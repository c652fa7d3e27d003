"""The organizations' members in the member tests, and every call about members."""

from collections.abc import Awaitable, Callable, Mapping

from core.kernel.roles import ADMIN, MEMBER, OWNER, RoleName
from tests.support.builders import Answer
from tests.support.tenants import Tenant

CAST: Mapping[str, RoleName] = {"owner": OWNER, "admin": ADMIN, "deputy": ADMIN, "member": MEMBER, "further": MEMBER}

CALLS: dict[str, Callable[[Tenant, str, str], Awaitable[Answer]]] = {
    "list": lambda team, token, user_id: team.api.get(f"{team.path}/members", token=token),
    "role": lambda team, token, user_id: team.api.patch(f"{team.path}/members/{user_id}", {"role": "admin"}, token=token),
    "removal": lambda team, token, user_id: team.api.post(f"{team.path}/members/{user_id}", token=token),
    "transfer": lambda team, token, user_id: team.api.post(f"{team.path}/transfer-ownership", {"new_owner_user_id": user_id}, token=token),
}
