"""SCIM: users (identity.md section 4.6; RFC 7643 section 4.1, RFC 7644 section 3)."""

from typing import Any, Final

from quart import Blueprint, Response

from core.provisioning import filters as scim_filters
from core.provisioning import users as scim_users
from core.provisioning.patches import Resource, apply_operations
from core.provisioning.schemas import USER, USER_URN
from core.provisioning.users_rules import ScimUser, ScimUserData, parse_user, to_resource
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
    wanted_filter,
    wanted_part,
)
from entrypoints.http.edge.access import scim_client
from entrypoints.http.edge.bodies import read_in_thread
from entrypoints.http.edge.context import acting_directory, no_content, ports
from entrypoints.http.edge.error_body import SCIM_JSON
from entrypoints.http.edge.openapi import describes, refuses
from entrypoints.http.edge.queries import path_id

routes = Blueprint("scim_users", __name__)

SHOWN: Final = shape("schemas", "id", "externalId", "meta", "userName", "name", "displayName", "active", lists="emails")

USER_SCHEMA: Final = {
    "type": "object",
    "required": ["schemas", "userName"],
    "properties": {
        **schemas(USER_URN),
        "userName": {"type": "string", "format": "email"},
        "externalId": {"type": ["string", "null"]},
        "name": {"type": "object", "properties": {part: {"type": "string"} for part in ("formatted", "familyName", "givenName")}},
        "displayName": {"type": ["string", "null"]},
        "emails": {"type": "array", "items": {"type": "object"}},
        "active": {"type": "boolean"},
    },
}


def show(user: ScimUser) -> dict[str, Any]:
    return {
        "schemas": [USER_URN],
        "id": str(user.id),
        "meta": meta(USER, user.id, user.created_at, user.updated_at),
        **to_resource(user),
    }


@routes.get("/scim/v2/Users")
@scim_client
@refuses(400)
@describes(
    {200: "A list response of users."},
    content_type=SCIM_JSON,
    shows=LISTED,
    optional={
        "filter": 'Which users: `userName eq "ada@example.com"`, or any other filter of RFC 7644 over the attributes that there are.',
        **PAGING,
    },
)
async def listed() -> Response:
    """List the people whom your directory knows: the members, and those whom it has deactivated."""
    (start, count), found = wanted_part(), wanted_filter(scim_filters.parse_user_filter)
    shown = Projection(USER)
    page = await scim_users.listed(ports(), acting_directory(), found, start, count)
    return answer(listing([shown.of(show(user)) for user in page.items], page.total, start))


@routes.get("/scim/v2/Users/<user_id>")
@scim_client
@describes({200: "The user."}, content_type=SCIM_JSON, shows=SHOWN, optional=PROJECTION)
async def user(user_id: str) -> Response:
    """One of them."""
    return _answer(await scim_users.find(ports(), acting_directory(), path_id(user_id)))


@routes.post("/scim/v2/Users")
@scim_client
@refuses(409)
@describes({201: "The user, who is a member now."}, content_type=SCIM_JSON, shows=SHOWN, optional=PROJECTION, body=USER_SCHEMA)
async def create() -> Response:
    """Make an account, which is a member of the organization. A mail welcomes its holder. An address that has an account is refused."""
    made = await scim_users.create(ports(), acting_directory(), await read_in_thread(_wanted))
    return _answer(made, 201)


@routes.put("/scim/v2/Users/<user_id>")
@scim_client
@refuses(409)
@describes({200: "The user."}, content_type=SCIM_JSON, shows=SHOWN, optional=PROJECTION, body=USER_SCHEMA)
async def replace(user_id: str) -> Response:
    """Replace all that can be changed of a user; whether they are active stays if the body does not say."""
    # Who is not there is not, whatever they shall become.
    found = await scim_users.find(ports(), acting_directory(), path_id(user_id))
    return _answer(await scim_users.replace(ports(), acting_directory(), found.id, await read_in_thread(_wanted)))


@routes.patch("/scim/v2/Users/<user_id>")
@scim_client
@refuses(409)
@describes({200: "The user."}, content_type=SCIM_JSON, shows=SHOWN, optional=PROJECTION, body=PATCH_SCHEMA)
async def patch(user_id: str) -> Response:
    """Change a user; all operations are done, or none is. `active` false blocks the person's sign-in."""

    async def changed(before: Resource) -> Resource:
        return await read_in_thread(lambda body: apply_operations(USER, before, operations(body)))

    return _answer(await scim_users.patch(ports(), acting_directory(), path_id(user_id), changed))


@routes.delete("/scim/v2/Users/<user_id>")
@scim_client
@describes({204: "The user is gone."})
async def delete(user_id: str) -> Response:
    """Delete a user for good; of an account that is others', too, the membership."""
    await scim_users.delete(ports(), acting_directory(), path_id(user_id))
    return no_content()


def _wanted(body: dict[str, Any]) -> ScimUserData:
    return parse_user(checked(body, USER_URN))


def _answer(found: ScimUser, status: int = 200) -> Response:
    headers = {"Location": location(USER.endpoint, found.id)} if status == 201 else None
    return answer(Projection(USER).of(show(found)), status, headers)
