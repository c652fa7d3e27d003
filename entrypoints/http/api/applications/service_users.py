"""Service API: the service that an API key belongs to, and its users."""

from uuid import UUID

from pydantic import Field
from quart import Blueprint

from core.applications import service_users
from core.kernel import values
from core.kernel.roles import Permission
from entrypoints.http import kit
from entrypoints.http.api.applications import services

routes = Blueprint("service_users", __name__)


class ServiceUserResponse(kit.ResponseModel):
    """A user of the service."""

    id: UUID = Field(description="The id of the user.")
    email: str = Field(description="The email address of the user.")
    created_at: kit.Timestamp = Field(description="The time at which the account was created, in UTC.")


class ServiceUserListResponse(kit.ResponseModel):
    """A part of the service's users."""

    users: list[ServiceUserResponse] = Field(description="The users. The earliest users of the service come first.")
    total: int = Field(description="How many users the service has.")


@routes.get("/api/service/users")
@kit.service_key(Permission.READ_USERS)
async def list_users(query_args: kit.PartQuery) -> ServiceUserListResponse:
    """List the service's users.

    The service's users have signed in to it, or its API keys created them.
    """
    page = await service_users.list_users(kit.ports(), kit.acting_key(), query_args.limit, query_args.offset)
    return ServiceUserListResponse(users=ServiceUserResponse.list_of(page.items), total=page.total)


class ServiceUserRequest(kit.RequestModel):
    """The user to create."""

    email: kit.EmailAddress = Field(description="The email address of the user.", examples=["user@example.com"])


@routes.post("/api/service/users")
@kit.service_key(Permission.WRITE_USERS)
async def create(data: ServiceUserRequest) -> ServiceUserResponse:
    """Create a user.

    If an account with this email address exists, it is returned unchanged. Its user becomes a user
    of the service only when they sign in to it. Under the policy `assigned`, they are not admitted
    until an admin assigns them. A new account is assigned to the service. It has no password, and
    no email is sent: the user sets a password with `POST /api/auth/forgot-password`.
    """
    return ServiceUserResponse.of(await service_users.find_or_create(kit.ports(), kit.acting_key(), values.Email(data.email)))


@kit.before_body
async def existing_service_user(user_id: UUID) -> None:
    """Answer 404 if `<user_id>` is not a user of the service."""
    await service_users.find(kit.ports(), kit.acting_key(), user_id)


@routes.get("/api/service/users/<user_id>")
@kit.service_key(Permission.READ_USERS)
async def get(user_id: UUID) -> ServiceUserResponse:
    """Get a user of the service.

    Accounts that do not use the service are not found.
    """
    return ServiceUserResponse.of(await service_users.find(kit.ports(), kit.acting_key(), user_id))


class ServiceUserUpdateRequest(kit.RequestModel):
    """The user's fields to change."""

    email: kit.EmailAddress = kit.optional(description="The new email address. Without it nothing changes.")


@routes.patch("/api/service/users/<user_id>")
@kit.service_key(Permission.WRITE_USERS)
@existing_service_user
async def update(user_id: UUID, data: ServiceUserUpdateRequest) -> ServiceUserResponse:
    """Change a user's email address.

    This is allowed only for accounts that your organization created and manages alone. The new address is unverified,
    and all the user's sessions end. For a member of the organization, the key's creator must now have every right that
    the member has.
    """
    value: object = data.email
    email = values.Email(value) if isinstance(value, str) else values.KEEP
    return ServiceUserResponse.of(await service_users.change_email(kit.ports(), kit.acting_key(), user_id, email))


@routes.delete("/api/service/users/<user_id>")
@kit.service_key(Permission.DELETE_USERS)
@kit.describes({204: "The account is deleted, or the user is removed from the service."})
async def delete(user_id: UUID) -> None:
    """Delete a user.

    The account is deleted permanently if your organization created it and no other organization uses it. For a member
    of the organization, the key's creator must also be allowed to remove them now. Otherwise only the user's data at
    this service is deleted, and the account stays.
    """
    await service_users.delete(kit.ports(), kit.acting_key(), user_id)


@routes.get("/api/service/info")
@kit.service_key(Permission.READ_SERVICE)
async def get_service() -> services.ServiceResponse:
    """Get the API key's service.

    Client secrets are never returned.
    """
    return services.to_service_response(await service_users.find_service(kit.ports(), kit.acting_key()))


class ServiceInfoUpdateRequest(kit.RequestModel):
    """The service's fields to change, at least one field. Arrays replace the previous values."""

    model_config = kit.AT_LEAST_ONE_FIELD

    name: kit.Name = kit.optional(description="The name of the service.")
    codehost_scopes: kit.Texts | None = kit.optional(description="The scopes requested at `codehost`; null for the platform's defaults.")
    websuite_scopes: kit.Texts | None = kit.optional(description="The scopes requested at `websuite`; null for the platform's defaults.")
    officesuite_scopes: kit.Texts | None = kit.optional(
        description="The scopes requested at `officesuite`; null for the platform's defaults."
    )
    redirect_uris: kit.Texts | None = kit.optional(description="The allowed redirect URIs; null removes all.")
    device_activation_uri: kit.Text | None = kit.optional(
        description="The page where users enter the code of a device; null for the platform's own page."
    )


@routes.patch("/api/service/info")
@kit.service_key(Permission.WRITE_SERVICE)
@kit.refuses(409)
async def update_service(data: ServiceInfoUpdateRequest) -> services.ServiceResponse:
    """Change the API key's service.

    The slug, the type and the client id cannot be changed.
    """
    return services.to_service_response(await service_users.update_service(kit.ports(), kit.acting_key(), dict(data)))
