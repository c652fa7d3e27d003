"""SCIM groups: the organization, its services with the policy `assigned`, and directory groups (RFC 7643 section 4.2)."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

import structlog
from quart import Blueprint, Response, request

from core.provisioning import directory_groups
from core.provisioning import group_kinds as scim_groups
from core.provisioning.model import filters as scim_filters
from core.provisioning.model import schemas
from core.provisioning.model.groups import GroupChanges, GroupKind, ScimGroup, parse_group, parse_group_patch
from entrypoints.http import kit
from entrypoints.http.api.provisioning import models, protocol
from entrypoints.http.base import context

routes = Blueprint("scim_groups", __name__)
log = structlog.get_logger("scim")
describes_group = partial(kit.describes, content_type=kit.SCIM_JSON, response_schema=models.GROUP_RESPONSE, optional=models.PROJECTION)


class GroupEmpty(kit.BodyInvalid):
    """The body has no attribute of a group. Send displayName and members."""


@routes.get("/scim/v2/Groups")
@kit.scim_client
@kit.refuses(400)
@kit.describes(
    {200: "A list response with the groups."},
    content_type=kit.SCIM_JSON,
    response_schema=models.GROUP_LIST_RESPONSE,
    optional={
        "filter": 'A filter of RFC 7644 section 3.4.2.2, such as `displayName eq "Acme"` or `members eq "<user id>"`.',
        **models.PAGING,
    },
)
async def list_groups() -> Response:
    """List the groups.

    The first group is the organization. Every application with the access policy `assigned` is a group, too: its members are the users that
    your directory assigned. With *directory groups*, the groups that your directory created follow. In this list, only the organization has
    its members. With `excludedAttributes=members`, the response is small and fast for any number of members.
    """
    (start, count), filter_ = protocol.read_page(), protocol.read_filter(scim_filters.parse_group_filter)
    projection = protocol.Projection(schemas.GROUP)
    groups = await scim_groups.list_matching(kit.ports(), kit.acting_directory(), filter_)
    return await _list_response(groups[start - 1 : start - 1 + count], len(groups), start, projection)


async def _list_response(page: list[ScimGroup], total: int, start: int, projection: protocol.Projection) -> Response:
    """Return a part of the group list. The organization is streamed, because it can have many members."""
    if not page or page[0].kind is not GroupKind.ORGANIZATION:
        return protocol.json_response(protocol.list_body([_resource(group, projection) for group in page], total, start))
    envelope = json.dumps({**protocol.list_body([{}] * len(page), total, start), "Resources": []})
    others = "".join(f", {json.dumps(_resource(group, projection))}" for group in page[1:])
    return await _group_response(page[0], projection, around=(envelope[:-2], others + envelope[-2:]))


@routes.get("/scim/v2/Groups/<group_id>")
@kit.scim_client
@kit.refuses(400)
@describes_group({200: "The group with all members."})
async def get(group_id: UUID) -> Response:
    """Get the group with all its members.

    Users that your directory deactivated are members only in groups that your directory created.
    `excludedAttributes=members` leaves the members out.
    """
    group = await scim_groups.find(kit.ports(), kit.acting_directory(), group_id)
    return await _group_response(group, protocol.Projection(schemas.GROUP))


@routes.post("/scim/v2/Groups")
@kit.scim_client
@kit.refuses(409, 501)
@describes_group({201: "The created group with all members."}, request_schema=models.GROUP_REQUEST)
async def create() -> Response:
    """Create a group.

    Your token needs *directory groups*: without it, the response is 501. The name must not belong to another group, to the organization or
    to an application with the access policy `assigned`. Case does not count. 409 says what has the name.
    """
    scim_groups.require_creation(kit.acting_directory())
    projection = protocol.Projection(schemas.GROUP)
    changes = await kit.read_in_thread(lambda body: _parse_group(body, GroupKind.DIRECTORY))
    group = await directory_groups.create(kit.ports(), kit.acting_directory(), changes)
    _report_nested(group, changes)
    return await _group_response(group, projection, 201)


@routes.put("/scim/v2/Groups/<group_id>")
@kit.scim_client
@kit.refuses(409)
@describes_group({200: "The group with all members."}, request_schema=models.GROUP_REQUEST)
async def replace(group_id: UUID) -> Response:
    """Replace the group's members.

    Members that are not named leave the group; the owner and platform owners stay in the organization. New members must
    be users that your directory knows. The `externalId` changes, too, and the name if your directory created the group.
    Members that are groups are ignored there, and the request log says so.
    """
    group, changes, projection = await _read_changes(group_id, lambda body, kind: _parse_group(body, kind))
    return await _group_response(await _change(group, changes), projection)


@routes.patch("/scim/v2/Groups/<group_id>")
@kit.scim_client
@kit.refuses(409)
@describes_group(
    {200: "The group with all members.", 204: "The group that your directory created is changed."}, request_schema=models.PATCH_REQUEST
)
async def patch(group_id: UUID) -> Response:
    """Add members to the group, or remove members from it.

    Either all operations are applied, or none. New members must be users that your directory knows. If your directory
    created the group, `displayName` and `externalId` change, too. The response then has no body, unless `attributes` or
    `excludedAttributes` asks for a body. In all other groups, only `externalId` changes. There, removing `members`
    without naming a member removes only members that your directory provisioned.
    """
    group, changes, projection = await _read_changes(group_id, lambda body, kind: parse_group_patch(kind, protocol.parse_operations(body)))
    changed = await _change(group, changes)
    # Changing a few members must not cost more in a larger group (RFC 7644 section 3.5.2).
    if group.kind is GroupKind.DIRECTORY and not {"attributes", "excludedAttributes"} & request.args.keys():
        return context.no_content()
    return await _group_response(changed, projection)


@routes.delete("/scim/v2/Groups/<group_id>")
@kit.scim_client
@kit.describes({204: "The group is deleted."})
async def delete(group_id: UUID) -> None:
    """Delete a group that your directory created.

    Its users lose the access that only the group gave. The organization and its applications are groups that SCIM
    cannot delete: 403.
    """
    await scim_groups.delete(kit.ports(), kit.acting_directory(), group_id)


def _parse_group(body: dict[str, Any], kind: GroupKind) -> GroupChanges:
    """Return a whole group's changes."""
    if not body:
        raise GroupEmpty
    return parse_group(kind, protocol.check_body(body, schemas.GROUP_URN))


async def _read_changes(
    group_id: UUID, parse: Callable[[dict[str, Any], GroupKind], GroupChanges]
) -> tuple[ScimGroup, GroupChanges, protocol.Projection]:
    group = await scim_groups.find(kit.ports(), kit.acting_directory(), group_id)  # an unknown id is 404, whatever the body is
    projection = protocol.Projection(schemas.GROUP)
    return group, await kit.read_in_thread(lambda body: parse(body, group.kind)), projection


async def _change(group: ScimGroup, changes: GroupChanges) -> ScimGroup:
    changed = await scim_groups.change(kit.ports(), kit.acting_directory(), group, changes)
    _report_nested(changed, changes)
    return changed


def _report_nested(group: ScimGroup, changes: GroupChanges) -> None:
    """Note in the request log that members were ignored because they are groups."""
    if changes.nested:
        log.info(
            "scim_nested_groups_ignored", org_id=str(kit.acting_directory().org_id), group_id=str(group.id), groups=len(changes.nested)
        )
        if (call := context.directory_call()) is not None:
            call.error = "Members that are groups were ignored. Assign the users of these groups instead."


def _resource(group: ScimGroup, projection: protocol.Projection) -> dict[str, Any]:
    return projection.apply(
        {
            "schemas": [schemas.GROUP_URN],
            "id": str(group.id),
            "meta": protocol.meta(schemas.GROUP, group.id, group.created_at, group.updated_at),
            "externalId": group.external_id,
            "displayName": group.name,
        }
    )


async def _group_response(
    group: ScimGroup, projection: protocol.Projection, status: int = 200, *, around: tuple[str, str] = ("", "")
) -> Response:
    resource = _resource(group, projection)
    if not projection.includes("members"):
        response = Response(f"{around[0]}{json.dumps(resource)}{around[1]}".encode(), content_type=kit.SCIM_JSON)
    else:
        users_url = protocol.location(schemas.USER.endpoint)

        def to_member(user_id: UUID) -> dict[str, Any]:
            members = projection.apply({"members": [{"value": str(user_id), "$ref": f"{users_url}/{user_id}", "type": "User"}]})
            return dict(members["members"][0])

        ids = scim_groups.list_member_ids(kit.ports(), kit.acting_directory(), group)
        response = await protocol.stream_with_list(resource, "members", ids, to_member, around)
    response.status_code = status
    if status == 201:
        response.headers["Location"] = protocol.location(schemas.GROUP.endpoint, group.id)
    return response
