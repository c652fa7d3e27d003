"""The models for users and groups that are assigned to services, API resources, service roles and groups."""

from collections.abc import Iterable
from uuid import UUID

from pydantic import Field

from core.tenancy.model.groups import AssignedGroup
from entrypoints.http import kit


class AssignmentsQuery(kit.PageQuery):
    """A filter for the users in the list."""

    search: kit.Text | None = Field(default=None, description="Return only users with this text in their email address. Case is ignored.")


class AssignmentRequest(kit.RequestModel):
    """The user to assign."""

    email: kit.EmailAddress = Field(description="The email address of an end user or a confirmed member of the organization.")


class AssignedUserResponse(kit.ResponseModel):
    """The user that is now assigned."""

    user_id: UUID = Field(description="The id of the user.")


class AssignedGroupResponse(kit.ResponseModel):
    """A group that is assigned to the service or the API resource, or has the role."""

    group_id: UUID = Field(description="The id of the group.")
    name: str = Field(description="The name of the group.", examples=["Engineering"])
    member_count: int = Field(description="The number of users in the group.")
    assigned_at: kit.Timestamp = Field(description="The time of the assignment, in UTC.")


class AssignedGroupListResponse(kit.ResponseModel):
    """The groups that are assigned to the service or the API resource, or have the role."""

    groups: list[AssignedGroupResponse] = Field(description="The groups, by name. The list has no pages.")
    total: int = Field(description="The number of groups.")


def to_group_list(groups: Iterable[AssignedGroup]) -> AssignedGroupListResponse:
    """Return the response with these groups."""
    listed = AssignedGroupResponse.list_of(groups)
    return AssignedGroupListResponse(groups=listed, total=len(listed))
