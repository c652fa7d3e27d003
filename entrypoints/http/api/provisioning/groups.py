"""SCIM: groups, of which there is one, the organization (identity.md section 4.6; RFC 7643 section 4.2)."""

import json
from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from quart import Blueprint, Response

from core.kernel.errors import Forbidden
from core.provisioning import filters as scim_filters
from core.provisioning import groups as scim_groups
from core.provisioning import groups_rules as scim_groups_rules
from core.provisioning.groups_rules import GroupCreationUnsupported, ScimGroup
from core.provisioning.patches import MemberChanges, parse_member_changes, parse_member_replacement
from core.provisioning.schemas import GROUP, GROUP_URN, USER
from entrypoints.http.api.provisioning.protocol import (
    LISTED,
    PAGING,
    PATCH_SCHEMA,
    PROJECTION,
    Projection,
    answer,
    checked,
    listing,
    location,
    meta,
    operations,
    schemas,
    shape,
    streamed,
    wanted_filter,
    wanted_part,
)
from entrypoints.http.edge.access import scim_client
from entrypoints.http.edge.bodies import read_in_thread
from entrypoints.http.edge.context import acting_directory, ports
from entrypoints.http.edge.error_body import SCIM_JSON
from entrypoints.http.edge.openapi import describes, refuses
from entrypoints.http.edge.queries import path_id

routes = Blueprint("scim_groups", __name__)

SHOWN: Final = shape("schemas", "id", "meta", "displayName", lists="members")

GROUP_SCHEMA: Final = {
    "type": "object",
    "properties": {
        **schemas(GROUP_URN),
        "displayName": {"type": "string"},
        "members": {
            "type": "array",
            "items": {"type": "object", "required": ["value"], "properties": {"value": {"type": "string", "format": "uuid"}}},
        },
    },
}


class GroupNotDeleted(Forbidden):
    """A group is not deleted here: it is the organization, which is deleted through the organizations interface."""


@routes.get("/scim/v2/Groups")
@scim_client
@refuses(400)
@describes(
    {200: "A list response of groups."},
    content_type=SCIM_JSON,
    shows=LISTED,
    optional={
        "filter": 'Which groups: `displayName eq "Acme"`, `members eq "<user id>"`, or any other filter of RFC 7644 over what they have.',
        **PAGING,
    },
)
async def listed() -> Response:
    """List the groups: the one that there is. With `excludedAttributes=members` that is the same effort however large it is."""
    (start, count), found = wanted_part(), wanted_filter(scim_filters.parse_group_filter)
    group = await scim_groups.listed(ports(), acting_directory(), found)
    if group is None or start > 1 or count == 0:
        return answer(listing([], 0 if group is None else 1, start))
    around = json.dumps({**listing([{}], 1, start), "Resources": []})
    return await _shown(group, (around[:-2], around[-2:]))


@routes.get("/scim/v2/Groups/<group_id>")
@scim_client
@describes({200: "The group, with all members."}, content_type=SCIM_JSON, shows=SHOWN, optional=PROJECTION)
async def group(group_id: str) -> Response:
    """The group, with all its members unless they are excluded."""
    return await _shown(await scim_groups.find(ports(), acting_directory(), path_id(group_id)))


@routes.post("/scim/v2/Groups")
@scim_client
@refuses(501)
@describes({})
async def create() -> Response:
    """Not supported: an organization is made through the organizations interface."""
    raise GroupCreationUnsupported


@routes.put("/scim/v2/Groups/<group_id>")
@scim_client
@describes({200: "The group, with all members."}, content_type=SCIM_JSON, shows=SHOWN, optional=PROJECTION, body=GROUP_SCHEMA)
async def replace(group_id: str) -> Response:
    """Replace the members; owners stay, and so does the name."""
    return await _changed(group_id, lambda body: parse_member_replacement(GROUP, checked(body, GROUP_URN, required=False)))


@routes.patch("/scim/v2/Groups/<group_id>")
@scim_client
@describes({200: "The group, with all members."}, content_type=SCIM_JSON, shows=SHOWN, optional=PROJECTION, body=PATCH_SCHEMA)
async def patch(group_id: str) -> Response:
    """Add or remove members; all operations are done, or none is."""
    return await _changed(group_id, lambda body: parse_member_changes(GROUP, operations(body)))


@routes.delete("/scim/v2/Groups/<group_id>")
@scim_client
@describes({})
async def delete(group_id: str) -> Response:
    """Not allowed: an organization is deleted through the organizations interface."""
    raise GroupNotDeleted


async def _changed(group_id: str, wanted: Callable[[dict[str, Any]], MemberChanges]) -> Response:
    caller, wanted_id = acting_directory(), path_id(group_id)
    scim_groups_rules.check(caller, wanted_id)  # what is not there is not there, whatever shall become of it
    changes = await read_in_thread(wanted)
    return await _shown(await scim_groups.change(ports(), caller, wanted_id, changes))


async def _shown(found: ScimGroup, around: tuple[str, str] = ("", "")) -> Response:
    projection = Projection(GROUP)
    resource = projection.of(
        {
            "schemas": [GROUP_URN],
            "id": str(found.id),
            "meta": meta(GROUP, found.id, found.created_at, found.updated_at),
            "displayName": found.name,
        }
    )
    if not projection.has("members"):
        text = f"{around[0]}{json.dumps(resource)}{around[1]}"
        return Response(text.encode(), content_type=SCIM_JSON)
    users = location(USER.endpoint)

    def show(user_id: UUID) -> dict[str, Any]:
        shown = projection.of({"members": [{"value": str(user_id), "$ref": f"{users}/{user_id}", "type": "User"}]})
        return dict(shown["members"][0])

    return await streamed(resource, "members", scim_groups.member_list(ports(), acting_directory()), show, around)
