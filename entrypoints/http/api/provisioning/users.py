"""SCIM users (RFC 7643 section 4.1, RFC 7644 section 3)."""

from collections.abc import Sequence
from functools import partial
from typing import Any
from uuid import UUID

import structlog
from quart import Blueprint, Response

from core.provisioning import users as scim_users
from core.provisioning.model import filters as scim_filters
from core.provisioning.model import schemas
from core.provisioning.model.resources import SkippedParts
from core.provisioning.model.users import GroupOfUser, ScimUser, ScimUserData, UserReplacement, parse_replacement, parse_user, to_response
from entrypoints.http import kit
from entrypoints.http.api.provisioning import models, protocol

routes = Blueprint("scim_users", __name__)
log = structlog.get_logger("scim")
describes_user = partial(kit.describes, content_type=kit.SCIM_JSON, response_schema=models.USER_RESPONSE, optional=models.PROJECTION)

MAX_LOGGED_NAMES = 20


async def _to_json(users: Sequence[ScimUser], projection: protocol.Projection) -> list[dict[str, Any]]:
    wanted = [user.id for user in users] if projection.includes("groups") else []
    groups = await scim_users.list_groups(kit.ports(), kit.acting_directory(), wanted)
    return [projection.apply(_user_to_json(user, projection.schema, groups.get(user.id, ()))) for user in users]


def _user_to_json(user: ScimUser, schema: schemas.ScimSchema, groups: Sequence[GroupOfUser]) -> dict[str, Any]:
    body = {"id": str(user.id), "meta": protocol.meta(schema, user.id, user.created_at, user.updated_at), **to_response(user, schema)}
    if groups:
        body["groups"] = [
            {"value": str(group.id), "$ref": protocol.location(schemas.GROUP.endpoint, group.id), "display": group.name, "type": "direct"}
            for group in groups
        ]
    return body


async def _user_response(user: ScimUser, projection: protocol.Projection, status: int = 200) -> Response:
    headers = {"Location": protocol.location(schemas.USER.endpoint, user.id)} if status == 201 else None
    [body] = await _to_json([user], projection)
    return protocol.json_response(body, status, headers)


async def _projection() -> protocol.Projection:
    """Return the attributes to return, in the schema for the directory's organization."""
    return protocol.Projection(await scim_users.schema_of(kit.ports(), kit.acting_directory()))


def _parse_body(schema: schemas.ScimSchema, body: dict[str, Any]) -> ScimUserData:
    return parse_user(protocol.check_body(body, schemas.USER_URN), schema)


def _parse_replacement(schema: schemas.ScimSchema, body: dict[str, Any]) -> UserReplacement:
    replacement = parse_replacement(body, schema)
    if (error := protocol.schema_error(body, schemas.USER_URN)) is not None:
        replacement.skipped.refuse("schemas", error)
    return replacement


def _log_skipped(user: ScimUser, skipped: SkippedParts) -> None:
    if skipped.ignored or skipped.refused:
        org_id = str(kit.acting_directory().org_id)
        ignored, refused = [*skipped.ignored][:MAX_LOGGED_NAMES], [*skipped.refused][:MAX_LOGGED_NAMES]
        log.info("scim_attributes_skipped", org_id=org_id, user_id=str(user.id), ignored=ignored, refused=refused)


@routes.get("/scim/v2/Users")
@kit.scim_client
@kit.refuses(400)
@kit.describes(
    {200: "A list response of users."},
    content_type=kit.SCIM_JSON,
    response_schema=models.USER_LIST_RESPONSE,
    optional={
        "filter": 'A filter of RFC 7644 section 3.4.2.2, such as `userName eq "ada@example.com"`. The guide on SCIM lists the attributes.',
        **models.PAGING,
    },
)
async def list_users() -> Response:
    """List the users that your directory knows.

    These are the organization's members, users that your directory deactivated, and users that it provisioned and
    removed from the group. They are sorted by time, oldest first.
    """
    (start, count), filter_ = protocol.read_page(), protocol.read_filter(scim_filters.parse_user_filter)
    projection = await _projection()
    page = await scim_users.list_users(kit.ports(), kit.acting_directory(), filter_, start, count)
    return protocol.json_response(protocol.list_body(await _to_json(page.items, projection), page.total, start))


@routes.get("/scim/v2/Users/<user_id>")
@kit.scim_client
@kit.refuses(400)
@describes_user({200: "The user."})
async def get(user_id: UUID) -> Response:
    """Get a user that your directory knows.

    A former member has the email address they had when they left.
    """
    user = await scim_users.find(kit.ports(), kit.acting_directory(), user_id)
    return await _user_response(user, await _projection())


@routes.post("/scim/v2/Users")
@kit.scim_client
@kit.refuses(409)
@describes_user({201: "The created user, who is a member."}, request_schema=models.USER_REQUEST)
async def create() -> Response:
    """Create a user who is a member of the organization.

    This creates an account and sends a welcome email. If there already is an account with this
    email address, the request is refused with 409: invite the user instead. An existing account is
    taken over, and gets the new data, in two cases: your directory blocks its user, or you have verified
    the domain, and another organization created the account or its address was never verified.
    """
    projection = await _projection()
    data = await kit.read_in_thread(partial(_parse_body, projection.schema))
    user = await scim_users.create(kit.ports(), kit.acting_directory(), data)
    return await _user_response(user, projection, 201)


@routes.put("/scim/v2/Users/<user_id>")
@kit.scim_client
@kit.refuses(409)
@describes_user({200: "The changed user."}, request_schema=models.USER_REQUEST)
async def replace(user_id: UUID) -> Response:
    """Replace a user's attributes.

    Attributes that are missing are removed; only a missing `active` stays as it is. A body with `active` false is
    applied as far as possible, even if other values are refused.
    """
    user = await scim_users.find_to_change(kit.ports(), kit.acting_directory(), user_id)  # an unknown id is 404, whatever the body is
    projection = await _projection()
    replacement = await kit.read_in_thread(partial(_parse_replacement, projection.schema))
    changed, skipped = await scim_users.replace(kit.ports(), kit.acting_directory(), user, replacement, projection.schema)
    _log_skipped(changed, skipped)
    return await _user_response(changed, projection)


@routes.patch("/scim/v2/Users/<user_id>")
@kit.scim_client
@kit.refuses(409)
@describes_user({200: "The changed user."}, request_schema=models.PATCH_REQUEST)
async def patch(user_id: UUID) -> Response:
    """Change a user.

    Either all operations are applied, or none. Only a patch that sets `active` to false is applied as far as it can be:
    the user cannot use the organization's services afterwards, and cannot sign in at all if only this organization uses
    the account. Attributes from RFC 7643 that are not kept are ignored.
    """
    user = await scim_users.find_to_change(kit.ports(), kit.acting_directory(), user_id)
    projection = await _projection()
    changed, skipped = await scim_users.patch(
        kit.ports(), kit.acting_directory(), user, await protocol.read_user_patch(), projection.schema
    )
    _log_skipped(changed, skipped)
    return await _user_response(changed, projection)


@routes.delete("/scim/v2/Users/<user_id>")
@kit.scim_client
@kit.describes({204: "The user is deleted."})
async def delete(user_id: UUID) -> None:
    """Delete a user.

    This deletes the account permanently if your organization created it and no other organization uses
    it. Otherwise it ends the membership, and blocks the user until your directory creates them again or
    an admin removes the block.
    """
    await scim_users.delete(kit.ports(), kit.acting_directory(), user_id)
