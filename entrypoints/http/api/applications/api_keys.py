"""A service's API keys, managed by members."""

from typing import Annotated
from uuid import UUID

from pydantic import Field, WithJsonSchema
from quart import Blueprint

from core.applications import api_keys
from core.kernel import roles
from entrypoints.http import kit
from entrypoints.http.api.applications.services import existing_service

routes = Blueprint("api_keys", __name__)

# Plain strings, because the use case refuses unknown permissions, and lists all permissions.
Permissions = Annotated[
    list[kit.Text],
    Field(max_length=100),
    WithJsonSchema(
        {
            "type": "array",
            "items": {"type": "string", "enum": [permission.value for permission in roles.Permission]},
            "minItems": 1,
            "uniqueItems": True,
        }
    ),
]


class ApiKeyRequest(kit.RequestModel):
    """A new API key."""

    name: kit.Name = Field(description="A name for the key, which lists show.", examples=["Billing backend"])
    permissions: Permissions = Field(description="The key's permissions, at least one. They cannot be changed later.")
    expires_in_days: Annotated[int, Field(ge=1, le=3650)] | None = Field(
        default=None, description="The lifetime of the key in days. Without it the key does not expire."
    )


class ApiKeyDetails(kit.ResponseModel):
    """The fields that all responses about an API key share."""

    id: UUID = Field(description="The id of the key.")
    service_id: UUID = Field(description="The id of the service that the key belongs to.")
    name: str = Field(description="The name of the key.")
    prefix: str = Field(description="The first characters of the key, to recognize it.", examples=["sk_k3v7q2"])
    permissions: list[roles.Permission] = Field(description="The permissions of the key.")
    expires_at: kit.Timestamp | None = Field(description="The time at which the key expires, in UTC, or null if it does not expire.")
    created_at: kit.Timestamp = Field(description="The time at which the key was created, in UTC.")
    created_by: UUID = Field(description="The id of the member who created the key.")


class CreatedApiKeyResponse(ApiKeyDetails):
    """A new API key with its secret. Only this response contains the secret."""

    key: str = Field(description="The secret to send in the `X-Api-Key` header. It is returned only once.")


class ApiKeyResponse(ApiKeyDetails):
    """An API key without its secret."""

    last_used_at: kit.Timestamp | None = Field(
        description="The last use, in UTC, or null if the key was never used. It can be up to one minute too early."
    )


@routes.post("/api/organizations/<org_slug>/services/<service_slug>/api-keys")
@kit.member(roles.Capability.API_KEYS_MANAGE, kit.GIVES)
@existing_service
@kit.returns(201)
async def create(org_slug: str, service_slug: str, data: ApiKeyRequest) -> CreatedApiKeyResponse:
    """Create an API key.

    Programs send the key in the `X-Api-Key` header to the service API (`/api/service/...`). The secret is returned only
    once: store it safely. The caller needs the rights for every permission, such as `service_roles.assign` for
    `write:roles`: otherwise the answer is 403.
    """
    key, secret = await api_keys.create(kit.ports(), kit.acting(), service_slug, data.name, data.permissions, data.expires_in_days)
    return CreatedApiKeyResponse.of(key, key=secret)


class ApiKeyListResponse(kit.ResponseModel):
    """A part of a service's API keys."""

    api_keys: list[ApiKeyResponse] = Field(description="The keys, newest first, including expired keys.")
    total: int = Field(description="How many keys the service has.")


@routes.get("/api/organizations/<org_slug>/services/<service_slug>/api-keys")
@kit.member(roles.Capability.API_KEYS_VIEW)
@existing_service
async def list_keys(org_slug: str, service_slug: str, query_args: kit.PartQuery) -> ApiKeyListResponse:
    """List API keys.

    Returns the service's keys without their secrets, newest first, including expired keys.
    """
    page = await api_keys.list_keys(kit.ports(), kit.acting(), service_slug, query_args.limit, query_args.offset)
    return ApiKeyListResponse(api_keys=[ApiKeyResponse.of(key) for key in page.items], total=page.total)


@routes.get("/api/organizations/<org_slug>/services/<service_slug>/api-keys/<api_key_id>")
@kit.member(roles.Capability.API_KEYS_VIEW)
async def get(org_slug: str, service_slug: str, api_key_id: UUID) -> ApiKeyResponse:
    """Get an API key.

    The secret is not returned.
    """
    return ApiKeyResponse.of(await api_keys.find(kit.ports(), kit.acting(), service_slug, api_key_id))


@routes.delete("/api/organizations/<org_slug>/services/<service_slug>/api-keys/<api_key_id>")
@kit.member(roles.Capability.API_KEYS_MANAGE, kit.GIVES)
@kit.describes({204: "The key is deleted."})
async def delete(org_slug: str, service_slug: str, api_key_id: UUID) -> None:
    """Delete an API key.

    Requests with this key are refused immediately. This cannot be undone.
    """
    await api_keys.delete(kit.ports(), kit.acting(), service_slug, api_key_id)
