"""The API for user attributes: an end user's, the signed-in user's, and the attributes of a service's users."""

from typing import Any
from uuid import UUID

from pydantic import Field
from quart import Blueprint

from core.applications import attributes
from core.kernel import roles
from core.kernel.api_scopes import Area
from core.tenancy.model.attributes import MAX_ATTRIBUTES, AttributeKind, AttributeWriter, OwnAttributes
from entrypoints.http import kit
from entrypoints.http.api.applications.service_users import existing_service_user
from entrypoints.http.api.tenancy.attributes import (
    KIND,
    LABEL,
    NAME,
    VALUES,
    AttributeValuesRequest,
    AttributeValuesResponse,
    Value,
    to_values,
)

routes = Blueprint("user_attributes", __name__)


@kit.before_body
async def existing_end_user(org_slug: str, user_id: UUID) -> None:
    """Answer 404 if `<user_id>` is not an end user of the organization."""
    await attributes.of_end_user(kit.ports(), kit.acting(), user_id)


@routes.get("/api/organizations/<org_slug>/users/<user_id>/attributes")
@kit.member(roles.Capability.END_USERS_VIEW)
async def get_of_end_user(org_slug: str, user_id: UUID) -> AttributeValuesResponse:
    """Get an end user's attributes.

    An attribute without a value is null.
    """
    return to_values(await attributes.of_end_user(kit.ports(), kit.acting(), user_id))


@routes.patch("/api/organizations/<org_slug>/users/<user_id>/attributes")
@kit.member(roles.Capability.END_USERS_MANAGE, kit.GIVES)
@existing_end_user
async def change_of_end_user(org_slug: str, user_id: UUID, data: AttributeValuesRequest) -> AttributeValuesResponse:
    """Change an end user's attributes.

    An admin may change attributes with the writer `admin`. Tokens have the new values after the next refresh. A caller
    who may not read values gets the values that the request sets.
    """
    return to_values(await attributes.change_of_end_user(kit.ports(), kit.acting(), user_id, data.values))


@routes.get("/api/service/users/<user_id>/attributes")
@kit.service_key(roles.Permission.READ_USERS)
async def get_of_service_user(user_id: UUID) -> AttributeValuesResponse:
    """Get a service user's attributes.

    These are its organization's attributes. An attribute without a value is null.
    """
    return to_values(await attributes.of_service_user(kit.ports(), kit.acting_key(), user_id))


@routes.patch("/api/service/users/<user_id>/attributes")
@kit.service_key(roles.Permission.WRITE_USERS)
@existing_service_user
@kit.refuses(403)
async def change_of_service_user(user_id: UUID, data: AttributeValuesRequest) -> AttributeValuesResponse:
    """Change a service user's attributes.

    An API key may change attributes with the writer `application`. 403 for other attributes. Without `read:users`, the response has only
    the values that the request sets.
    """
    return to_values(await attributes.change_of_service_user(kit.ports(), kit.acting_key(), user_id, data.values))


class OwnAttributeResponse(kit.ResponseModel):
    """An attribute of the signed-in user."""

    name: str = Field(description=NAME)
    label: str = Field(description=LABEL)
    kind: AttributeKind = Field(description=KIND)
    value: Any = Field(description="The own value, or null if there is none.")
    effective: Any = Field(
        description="The value that applications get: the user's own value, or else the groups' value. null: there is none."
    )
    is_writable: bool = Field(description="Whether the user may change it.")


class OrganizationAttributesResponse(kit.ResponseModel):
    """The signed-in user's attributes in an organization."""

    organization: str = Field(description="The slug of the organization.")
    name: str = Field(description="The name of the organization.")
    attributes: list[OwnAttributeResponse] = Field(description="The attributes, by position.")


class OwnAttributesResponse(kit.ResponseModel):
    """The signed-in user's attributes."""

    organizations: list[OrganizationAttributesResponse] = Field(
        description="The organizations that have attributes, and have the user as a confirmed member or as a user of their applications."
    )


class OwnAttributeValuesRequest(kit.RequestModel):
    """The organization, and the values to change there."""

    organization: kit.Text = Field(description="The slug of the organization.", examples=["acme"])
    values: dict[kit.Text, Value] = Field(min_length=1, max_length=MAX_ATTRIBUTES, description=VALUES, examples=[{"nickname": "Ada"}])


def _to_own(own: OwnAttributes) -> OrganizationAttributesResponse:
    values, effective = own.values.values, own.values.effective
    return OrganizationAttributesResponse(
        organization=own.org_slug,
        name=own.organization,
        attributes=[
            OwnAttributeResponse(
                name=each.name,
                label=each.label,
                kind=each.kind,
                value=values.get(each.name),
                effective=effective.get(each.name),
                is_writable=AttributeWriter.USER in each.writers,
            )
            for each in own.values.attributes
        ],
    )


@routes.get("/api/user/attributes")
@kit.person(area=Area.ACCOUNT)
async def list_own() -> OwnAttributesResponse:
    """List your attributes in the organizations that you belong to.

    Every attribute says whether you may change it.
    """
    return OwnAttributesResponse(organizations=[_to_own(each) for each in await attributes.list_own(kit.ports(), kit.signed_in())])


@routes.patch("/api/user/attributes")
@kit.person(kit.MINE, area=Area.ACCOUNT)
@kit.refuses(403, 404)
async def change_own(data: OwnAttributeValuesRequest) -> AttributeValuesResponse:
    """Change your attributes in an organization.

    You may change attributes that the organization lets you write. 404 if you do not belong to the organization, or it has no attributes.
    """
    return to_values(await attributes.change_own(kit.ports(), kit.signed_in(), data.organization, data.values))
