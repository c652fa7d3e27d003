"""The users that an organization's directory blocks."""

from uuid import UUID

from pydantic import Field
from quart import Blueprint

from core.kernel.roles import Capability
from core.provisioning import blocks
from entrypoints.http import kit

routes = Blueprint("directory_blocks", __name__)


class DirectoryBlockResponse(kit.ResponseModel):
    """A user that the organization's directory blocks."""

    user_id: UUID = Field(description="The user's id.")
    email: str | None = Field(description="The address that the user had when they left, or null if the directory forgot the user.")
    since: kit.Timestamp = Field(description="The time when the directory deactivated or deleted the user.")


class DirectoryBlockListResponse(kit.ResponseModel):
    """A page of the users that the organization's directory blocks."""

    blocks: list[DirectoryBlockResponse] = Field(description="The blocked users, the newest block first.")
    pagination: kit.Pagination


@routes.get("/api/organizations/<org_slug>/directory-blocks")
@kit.member(Capability.MEMBERS_MANAGE)
async def list_blocks(org_slug: str, query_args: kit.PageQuery) -> DirectoryBlockListResponse:
    """List the users that the organization's directory blocks.

    Your directory blocks a user by deactivating or deleting them over SCIM. A blocked user has no
    membership in the organization, and cannot use its services.
    """
    listed = await blocks.list_page(kit.ports(), kit.acting(), query_args.page_request())
    return DirectoryBlockListResponse(blocks=DirectoryBlockResponse.list_of(listed.items), pagination=query_args.pagination(listed.total))


@routes.delete("/api/organizations/<org_slug>/directory-blocks/<user_id>")
@kit.member(Capability.MEMBERS_MANAGE, kit.GIVES)
@kit.describes({204: "The block is removed."})
async def remove_block(org_slug: str, user_id: UUID) -> None:
    """Remove the block on a user.

    The user can be invited again, and can use services again. They do not become a member.
    """
    await blocks.remove(kit.ports(), kit.acting(), user_id)
