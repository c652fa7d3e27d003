"""A SCIM client that provisions an organization's users."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from core.provisioning.model.schemas import GROUP_URN, USER_URN
from tests.support.builders import Answer
from tests.support.tenants import Tenant

PATCH_URN: Final = "urn:ietf:params:scim:api:messages:2.0:PatchOp"
LIST_URN: Final = "urn:ietf:params:scim:api:messages:2.0:ListResponse"
ERROR_URN: Final = "urn:ietf:params:scim:api:messages:2.0:Error"
SCIM_JSON: Final = "application/scim+json"
GRACE: Final = "grace@acme.example"


@dataclass(frozen=True, slots=True)
class Directory:
    """An organization's directory, with its SCIM token."""

    tenant: Tenant
    token: str

    async def call(self, method: str, path: str, body: Any = None, *, token: str | None = None, content_type: str = SCIM_JSON) -> Answer:
        headers = {} if body is None else {"Content-Type": content_type}
        raw = None if body is None else json.dumps(body).encode()
        answer = await self.tenant.api.call(method, f"/scim/v2{path}", token=token or self.token, headers=headers, raw=raw)
        if answer.status != 204:
            assert answer.headers["Content-Type"] == SCIM_JSON, answer.text
        return answer

    async def get(self, path: str) -> Any:
        answer = await self.call("GET", path)
        assert answer.status == 200, answer.text
        return answer.json

    async def try_create_user(self, email: str = GRACE, **fields: Any) -> Answer:
        return await self.call("POST", "/Users", {"schemas": [USER_URN], "userName": email, **fields})

    async def create_user(self, email: str = GRACE, **fields: Any) -> dict[str, Any]:
        answer = await self.try_create_user(email, **fields)
        assert answer.status == 201, answer.text
        user: dict[str, Any] = answer.json
        return user

    async def put(self, user_id: object, **fields: Any) -> Answer:
        return await self.call("PUT", f"/Users/{user_id}", {"schemas": [USER_URN], **fields})

    async def patch(self, user_id: object, *operations: Mapping[str, Any]) -> Answer:
        return await self.call("PATCH", f"/Users/{user_id}", {"schemas": [PATCH_URN], "Operations": list(operations)})

    async def delete(self, user_id: object) -> Answer:
        return await self.call("DELETE", f"/Users/{user_id}")

    async def activate(self, user_id: object, active: object = True) -> Answer:
        return await self.patch(user_id, {"op": "replace", "path": "active", "value": active})

    async def deactivate(self, user_id: object) -> Answer:
        return await self.activate(user_id, active=False)

    async def find_user_names(self, filter_: str) -> list[str]:
        page = await self.list_users(filter=filter_)
        assert page["totalResults"] == len(page["Resources"])
        return [user["userName"] for user in page["Resources"]]

    async def list_users(self, **query: Any) -> Any:
        answer = await self.try_list(**query)
        assert answer.status == 200, answer.text
        return answer.json

    async def try_list(self, kind: str = "Users", **query: Any) -> Answer:
        return await self.call("GET", f"/{kind}?{urlencode(query)}")

    # The group

    @property
    def group_path(self) -> str:
        return f"/Groups/{self.tenant.org}"

    async def group_member_ids(self) -> set[str]:
        return {member["value"] for member in (await self.get(self.group_path))["members"]}

    async def put_group(self, *user_ids: object, **fields: Any) -> Answer:
        members = [{"value": str(user_id), "type": "User"} for user_id in user_ids]
        body = {"schemas": [GROUP_URN], "displayName": "Acme", "members": members, **fields}
        return await self.call("PUT", self.group_path, body)

    async def patch_group(self, *operations: Mapping[str, Any]) -> Answer:
        return await self.call("PATCH", self.group_path, {"schemas": [PATCH_URN], "Operations": list(operations)})

    async def add_members(self, *user_ids: object) -> Answer:
        members = [{"value": str(user_id)} for user_id in user_ids]
        return await self.patch_group({"op": "add", "value": {"members": members}})

    async def remove_member(self, user_id: object) -> Answer:
        return await self.patch_group({"op": "remove", "path": f'members[value eq "{user_id}"]'})


class GroupDirectory:
    """The groups that a directory creates."""

    def __init__(self, directory: Directory) -> None:
        self.directory = directory

    async def try_create(self, name: str, *user_ids: object, **fields: Any) -> Answer:
        members = [{"value": str(user_id)} for user_id in user_ids]
        body = {"schemas": [GROUP_URN], "displayName": name, "members": members, **fields}
        return await self.directory.call("POST", "/Groups", body)

    async def create(self, name: str = "Engineering", *user_ids: object, **fields: Any) -> str:
        """Create a group, and return its id."""
        answer = await self.try_create(name, *user_ids, **fields)
        assert answer.status == 201, answer.text
        return str(answer.json["id"])

    async def patch(self, group: str, *operations: Mapping[str, Any]) -> Answer:
        return await self.directory.call("PATCH", f"/Groups/{group}", {"schemas": [PATCH_URN], "Operations": list(operations)})

    async def add(self, group: str, *user_ids: object) -> Answer:
        return await self.patch(group, {"op": "add", "path": "members", "value": [{"value": str(user_id)} for user_id in user_ids]})

    async def remove(self, group: str, *user_ids: object) -> Answer:
        return await self.patch(group, {"op": "remove", "path": "members", "value": [{"value": str(user_id)} for user_id in user_ids]})

    async def members(self, group: str) -> set[str]:
        return {member["value"] for member in (await self.directory.get(f"/Groups/{group}"))["members"]}

    async def find(self, filter_: str) -> list[str]:
        """Return the names of the groups that match."""
        answer = await self.directory.try_list("Groups", filter=filter_, excludedAttributes="members")
        assert answer.status == 200, answer.text
        return [group["displayName"] for group in answer.json["Resources"]]


async def directory_of(tenant: Tenant, by: str = "owner", *, groups: bool = False) -> Directory:
    """Return the organization's directory, with a token that this member created. With `groups`, it may create groups."""
    body = {"name": "Directory", "directory_groups": groups}
    answer = await tenant.api.post(f"{tenant.path}/scim-tokens", body, token=tenant.token(by))
    assert answer.status == 200, answer.text
    return Directory(tenant, answer.json["token"])


def problem(answer: Answer) -> tuple[int, str | None]:
    """Return a response's status and scimType, after checking that it is a SCIM error."""
    body = answer.json
    assert answer.headers["Content-Type"] == SCIM_JSON
    assert (body["schemas"], body["status"]) == ([ERROR_URN], answer.status)
    assert body["detail"]
    assert set(body) <= {"schemas", "status", "scimType", "detail"}
    return answer.status, body.get("scimType")
