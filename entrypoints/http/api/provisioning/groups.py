"""SCIM groups: the organization, and its services with the policy `assigned` (RFC 7643 section 4.2)."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

from quart import Blueprint, Response

from core.kernel.errors import Forbidden
from core.provisioning import groups as scim_groups
from core.provisioning import service_groups
from core.provisioning.model import filters as scim_filters
from core.provisioning.model.groups import GroupChanges, GroupCreationUnsupported, ScimGroup, parse_group, parse_group_patch
from core.provisioning.model.schemas import GROUP, GROUP_URN, USER
from entrypoints.http.api.provisioning.models import GROUP_LIST_RESPONSE, GROUP_REQUEST, GROUP_RESPONSE, PAGING, PATCH_REQUEST, PROJECTION
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
from entrypoints.http.base.context import acting_directory, ports
from entrypoints.http.edge.access import scim_client
from entrypoints.http.edge.bodies import BodyInvalid, read_in_thread
from entrypoints.http.edge.error_body import SCIM_JSON
from entrypoints.http.edge.openapi import describes, refuses

routes = Blueprint("scim_groups", __name__)
describes_group = partial(describes, content_type=SCIM_JSON, response_schema=GROUP_RESPONSE, optional=PROJECTION)


class GroupDeletionForbidden(Forbidden):
    """Groups cannot be deleted by SCIM, because they are the organization and its applications. Its owner can delete these."""


class GroupEmpty(BodyInvalid):
    """The body has no attribute of a group. Send displayName and members."""


@routes.get("/scim/v2/Groups")
@scim_client
@refuses(400)
@describes(
    {200: "A list response with the groups."},
    content_type=SCIM_JSON,
    response_schema=GROUP_LIST_RESPONSE,
    optional={"filter": 'A filter of RFC 7644 section 3.4.2.2, such as `displayName eq "Acme"` or `members eq "<user id>"`.', **PAGING},
)
async def list_groups() -> Response:
    """List the groups.

    The first group is the organization. Each application with the access policy `assigned` is a
    group, too: its members are the users that your directory assigned. In this list, groups of
    applications are without members. With `excludedAttributes=members`, the response is small and
    fast for any number of members.
    """
    (start, count), filter_ = read_page(), read_filter(scim_filters.parse_group_filter)
    caller, projection = acting_directory(), Projection(GROUP)
    organization = await scim_groups.find_matching(ports(), caller, filter_)
    groups = [*([organization] if organization else []), *await service_groups.list_matching(ports(), caller, filter_)]
    return await _list_response(groups[start - 1 : start - 1 + count], len(groups), start, projection)


async def _list_response(page: list[ScimGroup], total: int, start: int, projection: Projection) -> Response:
    """Return a part of the list of groups. The organization is streamed, because it can have many members."""
    caller = acting_directory()
    if not page or page[0].id != caller.org_id:
        return json_response(list_body([_resource(group, projection) for group in page], total, start))
    envelope = json.dumps({**list_body([{}] * len(page), total, start), "Resources": []})
    others = "".join(f", {json.dumps(_resource(group, projection))}" for group in page[1:])
    return await _group_response(page[0], projection, (envelope[:-2], others + envelope[-2:]))


@routes.get("/scim/v2/Groups/<group_id>")
@scim_client
@refuses(400)
@describes_group({200: "The group with all members."})
async def get(group_id: UUID) -> Response:
    """Get the group with all its members.

    Users that your directory deactivated are no members. `excludedAttributes=members` leaves the
    members out.
    """
    caller = acting_directory()
    group = await (scim_groups if group_id == caller.org_id else service_groups).find(ports(), caller, group_id)
    return await _group_response(group, Projection(GROUP))


@routes.post("/scim/v2/Groups")
@scim_client
@refuses(501)
@describes({})
async def create() -> Response:
    """Not supported.

    The groups are the organization and its applications.
    """
    raise GroupCreationUnsupported


@routes.put("/scim/v2/Groups/<group_id>")
@scim_client
@describes_group({200: "The group with all members."}, request_schema=GROUP_REQUEST)
async def replace(group_id: UUID) -> Response:
    """Replace the members of the group.

    Members that are not named lose their membership; the owner and platform owners stay. New
    members must be users that your directory knows. The `externalId` changes, too; the name of the
    group does not.
    """
    return await _change(group_id, _parse_group)


@routes.patch("/scim/v2/Groups/<group_id>")
@scim_client
@describes_group({200: "The group with all members."}, request_schema=PATCH_REQUEST)
async def patch(group_id: UUID) -> Response:
    """Add members to the group, or remove members from it.

    Either all operations are applied, or none. New members must be users that your directory knows.
    A removal of `members` that names no member removes only members that your directory provisioned.
    `externalId` changes too. Other attributes of the group do not change.
    """
    return await _change(group_id, lambda body: parse_group_patch(GROUP, parse_operations(body)))


@routes.delete("/scim/v2/Groups/<group_id>")
@scim_client
@describes({})
async def delete(group_id: UUID) -> Response:
    """Not allowed.

    The group is the organization. An owner can delete the organization.
    """
    raise GroupDeletionForbidden


def _parse_group(body: dict[str, Any]) -> GroupChanges:
    """Return the changes of a whole group. Raises: GroupEmpty, BodyInvalid, SchemaMissing."""
    if not body:
        raise GroupEmpty
    return parse_group(GROUP, check_body(body, GROUP_URN))


async def _change(group_id: UUID, parse: Callable[[dict[str, Any]], GroupChanges]) -> Response:
    caller = acting_directory()
    is_organization = group_id == caller.org_id
    if not is_organization:
        await service_groups.find(ports(), caller, group_id)  # an unknown id is 404, whatever the body is
    projection = Projection(GROUP)
    changes = await read_in_thread(parse)
    return await _group_response(
        await (scim_groups if is_organization else service_groups).change(ports(), caller, group_id, changes), projection
    )


def _resource(group: ScimGroup, projection: Projection) -> dict[str, Any]:
    return projection.apply(
        {
            "schemas": [GROUP_URN],
            "id": str(group.id),
            "meta": meta(GROUP, group.id, group.created_at, group.updated_at),
            "externalId": group.external_id,
            "displayName": group.name,
        }
    )


async def _group_response(group: ScimGroup, projection: Projection, around: tuple[str, str] = ("", "")) -> Response:
    resource, caller = _resource(group, projection), acting_directory()
    if not projection.includes("members"):
        text = f"{around[0]}{json.dumps(resource)}{around[1]}"
        return Response(text.encode(), content_type=SCIM_JSON)
    users_url = location(USER.endpoint)

    def to_member(user_id: UUID) -> dict[str, Any]:
        members = projection.apply({"members": [{"value": str(user_id), "$ref": f"{users_url}/{user_id}", "type": "User"}]})
        return dict(members["members"][0])

    is_organization = group.id == caller.org_id
    ids = scim_groups.list_member_ids(ports(), caller) if is_organization else service_groups.list_member_ids(ports(), caller, group.id)
    return await stream_with_list(resource, "members", ids, to_member, around)
