"""The API for user attributes that an organization declares, and for their values on members and groups."""

from collections.abc import Mapping
from typing import Annotated, Any, Final
from uuid import UUID

from pydantic import Field
from quart import Blueprint

from core.kernel.roles import Capability
from core.tenancy import attributes
from core.tenancy.model.attributes import MAX_ATTRIBUTES, Attribute, AttributeKind, AttributeMerge, AttributeValues, AttributeWriter
from entrypoints.http import kit
from entrypoints.http.api.tenancy.groups import existing_group
from entrypoints.http.api.tenancy.members import existing_member

routes = Blueprint("attributes", __name__)

ATTRIBUTES: Final = "/api/organizations/<org_slug>/attributes"
NAME: Final = "The name of the attribute. It never changes."
LABEL: Final = "The label of the attribute on pages."
KIND: Final = "The kind of the values. A date is a text such as `2026-12-31`, and a list has texts. It never changes."
WRITERS: Final = "The parties that may change the values: `user`, `admin`, `directory` with a SCIM token, `application` with an API key."
MERGE: Final = (
    "The rule for a user who has no own value, and is in several groups with one. `first`: the value of the first group by name. "
    "`union`: all items of the lists. `least`, `greatest`: this number or date."
)
VALUES: Final = "The new values by name. null removes a value. Other values stay."
Writer = Annotated[AttributeWriter, Field(strict=False)]
Merge = Annotated[AttributeMerge, Field(strict=False)]
Value = bool | int | float | kit.Text | list[kit.Text] | None


class AttributeRequest(kit.RequestModel):
    """The attribute to declare."""

    name: kit.Text = Field(description=NAME, examples=["cost_center"])
    label: kit.Text = Field(description=LABEL, examples=["Cost center"])
    kind: Annotated[AttributeKind, Field(strict=False)] = Field(description=KIND)
    writers: list[Writer] = Field(default_factory=lambda: [AttributeWriter.ADMIN], max_length=4, description=WRITERS)
    merge: Merge = Field(default=AttributeMerge.FIRST, description=MERGE)


class AttributeUpdateRequest(kit.RequestModel):
    """The attribute's fields to change, at least one field."""

    model_config = kit.AT_LEAST_ONE_FIELD

    label: kit.Text = kit.optional(description=LABEL)
    writers: list[Writer] = kit.optional(max_length=4, description=WRITERS)
    merge: Merge = kit.optional(description=MERGE)
    position: int = kit.optional(ge=0, le=10_000, description="The position in lists.")


class AttributeResponse(kit.ResponseModel):
    """An attribute that an organization's users have."""

    name: str = Field(description=NAME)
    label: str = Field(description=LABEL)
    kind: AttributeKind = Field(description=KIND)
    writers: list[AttributeWriter] = Field(description=WRITERS)
    merge: AttributeMerge = Field(description=MERGE)
    position: int = Field(description="The position in lists.")
    created_at: kit.Timestamp = Field(description="When the attribute was declared, in UTC.")


class AttributeListResponse(kit.ResponseModel):
    """The attributes that an organization's users have."""

    attributes: list[AttributeResponse] = Field(description=f"The attributes by position. There are at most {MAX_ATTRIBUTES}.")


class AttributeValuesRequest(kit.RequestModel):
    """The values to change."""

    values: dict[kit.Text, Value] = Field(min_length=1, max_length=MAX_ATTRIBUTES, description=VALUES, examples=[{"cost_center": "4711"}])


class AttributeValuesResponse(kit.ResponseModel):
    """A user's values."""

    values: dict[str, Any] = Field(
        description="The user's own value for every attribute, by the attribute's name. null: the user has none."
    )
    effective: dict[str, Any] = Field(
        description="The values that applications get: the user's own values, and other values from the user's groups. null: there is none."
    )


class GroupAttributeValuesResponse(kit.ResponseModel):
    """A group's values."""

    values: dict[str, Any] = Field(description="The value of every attribute, by its name. null: the group has none.")


def to_attribute(data: AttributeRequest) -> Attribute:
    """Return the attribute in a request, in the caller's organization."""
    return Attribute(
        org_id=kit.acting().acts_in.id,
        name=data.name,
        label=data.label.strip(),
        kind=data.kind,
        writers=tuple(dict.fromkeys(data.writers)),
        merge=data.merge,
        created_at=kit.ports().clock.now(),
    )


def to_changes_of(data: AttributeUpdateRequest) -> dict[str, Any]:
    """Return a request's fields that change."""
    changes = data.model_dump(exclude_unset=True)
    if "writers" in changes:
        changes["writers"] = tuple(dict.fromkeys(data.writers))
    if "label" in changes:
        changes["label"] = data.label.strip()
    return changes


def to_values(values: AttributeValues) -> AttributeValuesResponse:
    """Return the response with a user's values."""
    return AttributeValuesResponse(values=_by_name(values, values.values), effective=_by_name(values, values.effective))


def _by_name(declared: AttributeValues, values: Mapping[str, Any]) -> dict[str, Any]:
    return {each.name: values.get(each.name) for each in declared.attributes}


@routes.get(ATTRIBUTES)
@kit.member(Capability.MEMBERS_VIEW)
async def list_attributes(org_slug: str) -> AttributeListResponse:
    """List the attributes for the organization's users.

    They are ordered by position. A separate request returns a user's values.
    """
    return AttributeListResponse(attributes=AttributeResponse.list_of(await attributes.list_declared(kit.ports(), kit.acting())))


@routes.post(ATTRIBUTES)
@kit.member(Capability.ORGANIZATION_MANAGE, kit.GIVES)
@kit.refuses(409)
@kit.returns(201)
async def create(org_slug: str, data: AttributeRequest) -> AttributeResponse:
    """Declare an attribute for the organization's users.

    Applications' claims and SAML attributes can have its values.
    """
    return AttributeResponse.of(await attributes.create(kit.ports(), kit.acting(), to_attribute(data)))


@kit.before_body
async def existing_attribute(attribute_name: str, **_: object) -> None:
    """Answer 404 if there is no attribute `<attribute_name>`."""
    await attributes.find(kit.ports(), kit.acting(), attribute_name)


@routes.patch(f"{ATTRIBUTES}/<attribute_name>")
@kit.member(Capability.ORGANIZATION_MANAGE, kit.GIVES)
@existing_attribute
async def update(org_slug: str, attribute_name: str, data: AttributeUpdateRequest) -> AttributeResponse:
    """Change an attribute.

    Its name and its kind stay, and so do the values. 400 if the body has none of the fields.
    """
    return AttributeResponse.of(await attributes.update(kit.ports(), kit.acting(), attribute_name, to_changes_of(data)))


@routes.delete(f"{ATTRIBUTES}/<attribute_name>")
@kit.member(Capability.ORGANIZATION_MANAGE, kit.GIVES)
@kit.refuses(409)
@kit.describes({204: "The attribute is deleted."})
async def delete(org_slug: str, attribute_name: str) -> None:
    """Delete an attribute with all its values.

    409 if an application uses it in its claims or SAML attributes.
    """
    await attributes.delete(kit.ports(), kit.acting(), attribute_name)


@routes.get("/api/organizations/<org_slug>/members/<user_id>/attributes")
@kit.member(Capability.MEMBERS_MANAGE)
async def get_of_member(org_slug: str, user_id: UUID) -> AttributeValuesResponse:
    """Get a member's attributes.

    An attribute without a value is null.
    """
    return to_values(await attributes.of_member(kit.ports(), kit.acting(), user_id))


@routes.patch("/api/organizations/<org_slug>/members/<user_id>/attributes")
@kit.member(Capability.MEMBERS_MANAGE, kit.GIVES)
@existing_member
async def change_of_member(org_slug: str, user_id: UUID, data: AttributeValuesRequest) -> AttributeValuesResponse:
    """Change a member's attributes.

    An admin may change attributes with the writer `admin`. Tokens have the new values after the next refresh. A caller
    who may not read values gets the values that the request sets.
    """
    return to_values(await attributes.change_of_member(kit.ports(), kit.acting(), user_id, data.values))


@routes.get("/api/organizations/<org_slug>/groups/<group_id>/attributes")
@kit.member(Capability.GROUPS_MANAGE)
async def get_of_group(org_slug: str, group_id: UUID) -> GroupAttributeValuesResponse:
    """Get a group's attributes.

    A user in the group without an own value has the group's value.
    """
    _, values = await attributes.of_group(kit.ports(), kit.acting(), group_id)
    return GroupAttributeValuesResponse(values=_by_name(values, values.values))


@routes.patch("/api/organizations/<org_slug>/groups/<group_id>/attributes")
@kit.member(Capability.GROUPS_MANAGE, kit.GIVES)
@existing_group
async def change_of_group(org_slug: str, group_id: UUID, data: AttributeValuesRequest) -> GroupAttributeValuesResponse:
    """Change a group's attributes.

    A directory can manage the group. Only attributes with the writer `admin` change. Tokens have the new values after the next refresh. A
    caller who may not read values gets the values that the request sets.
    """
    values = await attributes.change_of_group(kit.ports(), kit.acting(), group_id, data.values)
    return GroupAttributeValuesResponse(values=_by_name(values, values.values))
