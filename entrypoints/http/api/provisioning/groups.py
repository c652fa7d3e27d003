"""SCIM groups. Each organization has one: itself (RFC 7643 section 4.2)."""

import json
from collections.abc import Callable
from typing import Any
from uuid import UUID

from quart import Blueprint, Response

from core.kernel.errors import Forbidden
from core.provisioning import filters as scim_filters
from core.provisioning import groups as scim_groups
from core.provisioning.group_patches import GroupChanges, parse_group, parse_group_patch
from core.provisioning.groups_rules import GroupCreationUnsupported, ScimGroup, require_own_group
from core.provisioning.schemas import GROUP, GROUP_URN, USER
from entrypoints.http.api.provisioning.models import (
    GROUP_LIST_RESPONSE,
    GROUP_REQUEST,
    GROUP_RESPONSE,
    PAGING,
    PATCH_REQUEST,
    PROJECTION,
)
from entrypoints.http.api.provisioning.protocol import (
    Projection,
    check_body,
    json_response,
    list_body,
    location,
    meta,
    parse_operations,
    read_filter,
    read_page,
    stream_with_list,
)
from entrypoints.http.edge.access import scim_client
from entrypoints.http.edge.bodies import read_in_thread
from entrypoints.http.edge.context import acting_directory, ports
from entrypoints.http.edge.error_body import SCIM_JSON
from entrypoints.http.edge.openapi import describes, refuses
from entrypoints.http.edge.queries import path_id

routes = Blueprint("scim_groups", __name__)


class GroupDeletionForbidden(Forbidden):
    """The group cannot be deleted by SCIM, because it is the organization. An owner can delete the organization."""


@routes.get("/scim/v2/Groups")
@scim_client
@refuses(400)
@describes(
    {200: "A list response with the group."},
    content_type=SCIM_JSON,
    response_schema=GROUP_LIST_RESPONSE,
    optional={
        "filter": 'A filter of RFC 7644 section 3.4.2.2, such as `displayName eq "Acme"` or `members eq "<user id>"`.',
        **PAGING,
    },
)
async def list_groups() -> Response:
    """List the groups.

    There is one group, which is the organization. With `excludedAttributes=members`, the response
    is small and fast for any number of members.
    """
    (start, count), filter_ = read_page(), read_filter(scim_filters.parse_group_filter)
    group = await scim_groups.find_matching(ports(), acting_directory(), filter_)
    if group is None or start > 1 or count == 0:
        return json_response(list_body([], 0 if group is None else 1, start))
    envelope = json.dumps({**list_body([{}], 1, start), "Resources": []})
    return await _group_response(group, Projection(GROUP), (envelope[:-2], envelope[-2:]))


@routes.get("/scim/v2/Groups/<group_id>")
@scim_client
@refuses(400)
@describes({200: "The group with all members."}, content_type=SCIM_JSON, response_schema=GROUP_RESPONSE, optional=PROJECTION)
async def get(group_id: str) -> Response:
    """Get the group with all its members.

    Users that your directory deactivated are members, too. `excludedAttributes=members` leaves the
    members out.
    """
    group = await scim_groups.find(ports(), acting_directory(), path_id(group_id))
    return await _group_response(group, Projection(GROUP))


@routes.post("/scim/v2/Groups")
@scim_client
@refuses(501)
@describes({})
async def create() -> Response:
    """Not supported.

    Each organization has one group. It cannot have others.
    """
    raise GroupCreationUnsupported


@routes.put("/scim/v2/Groups/<group_id>")
@scim_client
@describes(
    {200: "The group with all members."},
    content_type=SCIM_JSON,
    response_schema=GROUP_RESPONSE,
    optional=PROJECTION,
    request_schema=GROUP_REQUEST,
)
async def replace(group_id: str) -> Response:
    """Replace the members of the group.

    Members that are not named lose their membership; the owner and platform owners stay. New
    members must be users that your directory knows. The `externalId` changes, too; the name of the
    group does not.
    """
    return await _change(group_id, lambda body: parse_group(GROUP, check_body(body, GROUP_URN)))


@routes.patch("/scim/v2/Groups/<group_id>")
@scim_client
@describes(
    {200: "The group with all members."},
    content_type=SCIM_JSON,
    response_schema=GROUP_RESPONSE,
    optional=PROJECTION,
    request_schema=PATCH_REQUEST,
)
async def patch(group_id: str) -> Response:
    """Add members to the group, or remove members from it.

    Either all operations are applied, or none. New members must be users that your directory knows.
    Removing `members` without naming any removes only those that your directory provisioned. The
    `externalId` changes, too; other attributes of the group do not.
    """
    return await _change(group_id, lambda body: parse_group_patch(GROUP, parse_operations(body)))


@routes.delete("/scim/v2/Groups/<group_id>")
@scim_client
@describes({})
async def delete(group_id: str) -> Response:
    """Not allowed.

    The group is the organization. An owner can delete the organization.
    """
    raise GroupDeletionForbidden


async def _change(group_id: str, parse: Callable[[dict[str, Any]], GroupChanges]) -> Response:
    caller, id_ = acting_directory(), path_id(group_id)
    require_own_group(caller, id_)  # an unknown id is 404, whatever the body is
    projection = Projection(GROUP)
    changes = await read_in_thread(parse)
    return await _group_response(await scim_groups.change(ports(), caller, id_, changes), projection)


async def _group_response(group: ScimGroup, projection: Projection, around: tuple[str, str] = ("", "")) -> Response:
    resource = projection.apply(
        {
            "schemas": [GROUP_URN],
            "id": str(group.id),
            "meta": meta(GROUP, group.id, group.created_at, group.updated_at),
            "externalId": group.external_id,
            "displayName": group.name,
        }
    )
    if not projection.includes("members"):
        text = f"{around[0]}{json.dumps(resource)}{around[1]}"
        return Response(text.encode(), content_type=SCIM_JSON)
    users_url = location(USER.endpoint)

    def to_member(user_id: UUID) -> dict[str, Any]:
        members = projection.apply({"members": [{"value": str(user_id), "$ref": f"{users_url}/{user_id}", "type": "User"}]})
        return dict(members["members"][0])

    return await stream_with_list(resource, "members", scim_groups.list_member_ids(ports(), acting_directory()), to_member, around)
