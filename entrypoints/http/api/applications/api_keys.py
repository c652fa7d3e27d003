"""API keys of a service (identity.md section 4.4)."""

from typing import Annotated
from uuid import UUID

from pydantic import Field, WithJsonSchema
from quart import Blueprint, Response
from quart_schema import validate_querystring, validate_request, validate_response

from core.applications import api_keys
from core.applications.api_keys_rules import ApiKey
from core.kernel.principals import Capability, Permission
from entrypoints.http.api.applications.services import of_a_service
from entrypoints.http.edge.access import member
from entrypoints.http.edge.bodies import Name, RequestModel, ResponseModel, Text, Timestamp
from entrypoints.http.edge.context import acting_member, no_content, ports
from entrypoints.http.edge.openapi import describes, refuses
from entrypoints.http.edge.queries import PartQuery, path_id

routes = Blueprint("api_keys", __name__)


class NewApiKey(RequestModel):
    """What the key is called, what it may do to the service, and for how many days; for ever unless that is given."""

    name: Name
    # Strings, because the use case says which permissions there are.
    permissions: Annotated[
        list[Text],
        Field(max_length=100),
        WithJsonSchema(
            {
                "type": "array",
                "items": {"type": "string", "enum": [permission.value for permission in Permission]},
                "minItems": 1,
                "uniqueItems": True,
            }
        ),
    ]
    expires_in_days: Annotated[int, Field(ge=1, le=3650)] | None = None


class ApiKeyDescribed(ResponseModel):
    """What everybody may know of a key who sees it at all."""

    id: UUID
    service_id: UUID
    name: str
    prefix: str
    permissions: list[Permission]
    expires_at: Timestamp | None
    created_at: Timestamp
    created_by: UUID


class ApiKeyCreated(ApiKeyDescribed):
    """A new key; `key` is the secret itself, which is told only here."""

    key: str


class ApiKeyShown(ApiKeyDescribed):
    """A key, without its secret."""

    last_used_at: Timestamp | None


def _described(key: ApiKey) -> ApiKeyDescribed:
    return ApiKeyDescribed(
        id=key.id,
        service_id=key.service_id,
        name=key.name,
        prefix=key.prefix,
        permissions=list(key.permissions),
        expires_at=key.expires_at,
        created_at=key.created_at,
        created_by=key.created_by,
    )


def _show(key: ApiKey) -> ApiKeyShown:
    return ApiKeyShown(**dict(_described(key)), last_used_at=key.last_used_at)


@routes.post("/api/organizations/<org_slug>/services/<service_slug>/api-keys")
@member(Capability.API_KEYS_MANAGE, impersonated=False)
@of_a_service
@validate_request(NewApiKey)
@validate_response(ApiKeyCreated, 201)
async def create(org_slug: str, service_slug: str, data: NewApiKey) -> tuple[ApiKeyCreated, int]:
    """Make a key for a program that uses the service interface. Its text is in this answer, and nowhere else."""
    key, text = await api_keys.create(ports(), acting_member(), service_slug, data.name, data.permissions, data.expires_in_days)
    return ApiKeyCreated(**dict(_described(key)), key=text), 201


class ApiKeysPage(ResponseModel):
    """Keys, the oldest first, expired ones too, and how many there are."""

    api_keys: list[ApiKeyShown]
    total: int


@routes.get("/api/organizations/<org_slug>/services/<service_slug>/api-keys")
@member(Capability.API_KEYS_VIEW)
@refuses(400)
@of_a_service
@validate_querystring(PartQuery)
@validate_response(ApiKeysPage)
async def page(org_slug: str, service_slug: str, query_args: PartQuery) -> ApiKeysPage:
    """List the keys of the service."""
    found = await api_keys.listed(ports(), acting_member(), service_slug, query_args.limit, query_args.offset)
    return ApiKeysPage(api_keys=[_show(key) for key in found.items], total=found.total)


@routes.get("/api/organizations/<org_slug>/services/<service_slug>/api-keys/<api_key_id>")
@member(Capability.API_KEYS_VIEW)
@validate_response(ApiKeyShown)
async def api_key(org_slug: str, service_slug: str, api_key_id: str) -> ApiKeyShown:
    """One key of the service."""
    return _show(await api_keys.find(ports(), acting_member(), service_slug, path_id(api_key_id)))


@routes.delete("/api/organizations/<org_slug>/services/<service_slug>/api-keys/<api_key_id>")
@member(Capability.API_KEYS_MANAGE)
@describes({204: "The key opens nothing any more."})
async def delete(org_slug: str, service_slug: str, api_key_id: str) -> Response:
    """Delete a key for good. Whoever holds it is refused from the next request on."""
    await api_keys.delete(ports(), acting_member(), service_slug, path_id(api_key_id))
    return no_content()
