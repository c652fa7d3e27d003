"""The API for people that connections know, and for the groups that they get."""

from uuid import UUID

from pydantic import Field
from quart import Blueprint

from core.federation.connections import links, mapped_groups
from core.federation.connections.model.connections import MappedGroup
from core.kernel.roles import Capability
from entrypoints.http import kit
from entrypoints.http.api.federation.connections.connections import CONNECTION

routes = Blueprint("connection_people", __name__)

OWN = "/api/user/connections"


class ConnectionPersonResponse(kit.ResponseModel):
    """A user that a connection knows."""

    user_id: UUID = Field(description="The id of the user.")
    email: str = Field(description="The email address of the account.")
    subject: str = Field(description="The id of the user at the identity provider.")
    provider_email: str | None = Field(description="The email address that the identity provider sent last, or null.")
    linked_at: kit.Timestamp = Field(description="When the account was linked.")
    last_used_at: kit.Timestamp = Field(description="When the user last signed in through the connection.")


class ConnectionPeopleResponse(kit.ResponseModel):
    """A page of the users that a connection knows."""

    people: list[ConnectionPersonResponse] = Field(description="The users on this page, the newest link first.")
    pagination: kit.Pagination = Field(description="The position of this page in the list.")


class ConnectionPeopleQuery(kit.PageQuery):
    """A filter for the users."""

    search: kit.Text | None = Field(default=None, description="Return only users with this text in their email address.")


class OwnConnectionLinkResponse(kit.ResponseModel):
    """An organization's connection that your account is linked with."""

    connection_id: UUID = Field(description="The id of the connection.")
    connection: str = Field(description="The name of the connection.", examples=["Okta"])
    organization: str = Field(description="The name of its organization.", examples=["Acme"])
    linked_at: kit.Timestamp = Field(description="When the account was linked.")
    last_used_at: kit.Timestamp = Field(description="When you last signed in through the connection.")


@routes.get(f"{CONNECTION}/people")
@kit.member(Capability.INTEGRATIONS_MANAGE)
async def list_people(org_slug: str, connection_slug: str, query_args: ConnectionPeopleQuery) -> ConnectionPeopleResponse:
    """List the users that a connection knows.

    They are known by the subject, whatever their address is.
    """
    found = await links.list_page(kit.ports(), kit.acting(), connection_slug, query_args.page_request(), search=query_args.search)
    return ConnectionPeopleResponse(people=ConnectionPersonResponse.list_of(found.items), pagination=query_args.pagination(found.total))


@routes.delete(f"{CONNECTION}/people/<user_id>")
@kit.member(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@kit.describes({204: "The user is unlinked."})
async def unlink_person(org_slug: str, connection_slug: str, user_id: UUID) -> None:
    """Unlink a user from a connection.

    Their sign-ins through it end. The user stays a member. Their next sign-in through the connection is like a first sign-in. The caller
    needs all of the member's rights.
    """
    await links.remove(kit.ports(), kit.acting(), connection_slug, user_id)


class ConnectionGroupRequest(kit.RequestModel):
    """A group that the connection gives."""

    group_id: kit.Id = Field(description="The group's id. Admins must manage the group.")
    value: kit.Text | None = Field(None, description="The value of the claim with the groups, or null for all users.", min_length=1)


class ConnectionGroupResponse(kit.ResponseModel):
    """A group that a connection gives."""

    id: UUID = Field(description="The id of the mapping.")
    value: str | None = Field(description="The value of the claim with the groups, or null for all users.")
    group_id: UUID = Field(description="The id of the group.")
    group_name: str = Field(description="The name of the group.")
    mapped_by: UUID = Field(description="The id of the member who added the mapping. It adds users while they may fill the group.")
    mapped_at: kit.Timestamp = Field(description="When the mapping was added.")


class ConnectionGroupListResponse(kit.ResponseModel):
    """The groups that a connection gives."""

    groups: list[ConnectionGroupResponse] = Field(description="The mappings: first the mappings for all users, then by value.")


def _to_group(mapped: MappedGroup) -> ConnectionGroupResponse:
    return ConnectionGroupResponse.of(mapped.mapping, group_name=mapped.group_name)


@routes.get(f"{CONNECTION}/groups")
@kit.member(Capability.INTEGRATIONS_MANAGE)
async def list_groups(org_slug: str, connection_slug: str) -> ConnectionGroupListResponse:
    """List the groups that a connection gives.

    Users get them at every sign-in, by the values in the groups claim.
    """
    mapped = await mapped_groups.list_all(kit.ports(), kit.acting(), connection_slug)
    return ConnectionGroupListResponse(groups=[_to_group(each) for each in mapped])


@routes.post(f"{CONNECTION}/groups")
@kit.member(Capability.INTEGRATIONS_MANAGE, kit.BY_PEOPLE)
@kit.refuses(409)
@kit.returns(201)
async def add_group(org_slug: str, connection_slug: str, data: ConnectionGroupRequest) -> ConnectionGroupResponse:
    """Add a connection's users to a group, by a claim's value.

    You must be a member who could add any user to the group. The directory's users get no groups from a connection.
    """
    return _to_group(await mapped_groups.add(kit.ports(), kit.acting_member(), connection_slug, data.value, data.group_id))


@routes.delete(f"{CONNECTION}/groups/<mapping_id>")
@kit.member(Capability.INTEGRATIONS_MANAGE, kit.BY_PEOPLE)
@kit.refuses(409)
@kit.describes({204: "The mapping is removed."})
async def remove_group(org_slug: str, connection_slug: str, mapping_id: UUID) -> None:
    """Let a connection give a group no longer.

    Users who have it by the connection lose it at their next sign-in.
    """
    await mapped_groups.remove(kit.ports(), kit.acting_member(), connection_slug, mapping_id)


@routes.get(OWN)
@kit.person
async def list_own_links() -> list[OwnConnectionLinkResponse]:
    """List the connections that your account is linked with.

    A connection signs you in to its organization only.
    """
    return OwnConnectionLinkResponse.list_of(await links.list_own(kit.ports(), kit.signed_in()))


@routes.delete(f"{OWN}/<connection_id>")
@kit.person(kit.ACTS_ON_ME)
@kit.refuses(400, 404)
@kit.describes({204: "Your account is unlinked."})
async def unlink_own(connection_id: UUID) -> None:
    """Unlink your account from an organization's connection.

    Your sign-ins through it end. You stay a member of the organization. The link stays if it is the reason why you have to
    sign in through the connection, also if that follows from undoing an address change. Then only an admin removes it, or
    you leave the organization. If you are no member, and use its applications, they block you then.
    """
    await links.remove_own(kit.ports(), kit.signed_in(), connection_id)
