"""Credentials of service accounts and API resources: requests and responses, and the routes of API resources."""

from typing import Annotated, Any
from uuid import UUID

from pydantic import Field
from quart import Blueprint

from core.kernel.roles import Capability
from core.programs import credentials as programs_credentials
from core.programs.model.credentials import Credential, CredentialKind, NewCredential, PipelineTrust, parse_trust
from entrypoints.http import kit
from entrypoints.http.api.programs.api_resources import existing_resource


class CredentialRequest(kit.RequestModel):
    """A new credential for a service account or an API resource."""

    kind: Annotated[CredentialKind, Field(strict=False)] = Field(
        description="`secret`: we create a client secret. `key`: the program signs assertions with a private key (private_key_jwt). "
        "`federated`: the program presents the token that its pipeline gets from its own provider."
    )
    name: kit.Name = Field(description="A name that tells the credentials apart.", examples=["Production 2026"])
    public_key: dict[str, Any] | None = Field(
        default=None, description="With `key`: the public key as a JWK (RFC 7517): RSA with 2048 to 8192 bits, P-256 or Ed25519."
    )
    issuer: kit.Text | None = Field(
        default=None,
        description="With `federated`: the issuer of the pipeline's tokens.",
        examples=["https://token.actions.githubusercontent.com"],
    )
    audience: kit.Text | None = Field(
        default=None, description="With `federated`: the `aud` that the pipeline's tokens must have. By default our issuer, the base URL."
    )
    subject: kit.Text | None = Field(
        default=None,
        description="With `federated`: the `sub` that the pipeline's tokens must have. Use `*` for a whole part between `:` or `/`. "
        "The first two parts cannot be `*`.",
        examples=["repo:acme/shop:ref:refs/heads/main"],
    )
    expires_at: kit.DateTime | None = Field(default=None, description="When the credential expires. Without it, it does not expire.")


class CredentialResponse(kit.ResponseModel):
    """A credential without its secret."""

    id: UUID = Field(description="The id of the credential.")
    kind: CredentialKind = Field(description="How the program authenticates with it.")
    name: str = Field(description="The name of the credential.")
    hint: str | None = Field(description="The start of the secret, or the key's thumbprint (RFC 7638). Null for a pipeline.")
    issuer: str | None = Field(description="The issuer of the pipeline's tokens, or null.")
    audience: str | None = Field(description="The `aud` of the pipeline's tokens, or null.")
    subject: str | None = Field(description="The pattern for the `sub` of the pipeline's tokens, or null.")
    expires_at: kit.Timestamp | None = Field(description="When the credential expires, in UTC. Null if it does not expire.")
    created_by: UUID = Field(description="The id of the user who created it.")
    created_at: kit.Timestamp = Field(description="The time at which it was created, in UTC.")
    last_used_at: kit.Timestamp | None = Field(
        description="The last use, in UTC, or null if it was never used. It can be up to one minute too early."
    )


class CreatedCredentialResponse(CredentialResponse):
    """A new credential. Only this response contains the secret."""

    secret: str | None = kit.absent_if_none("With the kind `secret`: the client secret. It is returned only once.")


class CredentialListResponse(kit.ResponseModel):
    """A service account's or an API resource's credentials."""

    credentials: list[CredentialResponse] = Field(description="The credentials, newest first, including expired credentials for 30 days.")


def to_credential_request(data: CredentialRequest) -> NewCredential:
    """Return the request for the use case."""
    base_url = kit.app_context().base_url
    has_trust = not (data.issuer is data.audience is data.subject is None)
    trust = parse_trust(data.issuer or "", data.audience or base_url, data.subject or "", base_url) if has_trust else None
    return NewCredential(data.kind, data.name, public_key=data.public_key, trust=trust, expires_at=data.expires_at)


def to_credential_response(credential: Credential) -> CredentialResponse:
    """Return the response for a credential."""
    return CredentialResponse.of(credential, **_trust_fields(credential.trust))


def to_created_response(credential: Credential, secret: str | None) -> CreatedCredentialResponse:
    """Return the response for a new credential, with its secret if it has a secret."""
    return CreatedCredentialResponse.of(credential, **_trust_fields(credential.trust), secret=secret)


def _trust_fields(trust: PipelineTrust | None) -> dict[str, str | None]:
    if trust is None:
        return {"issuer": None, "audience": None, "subject": None}
    return {"issuer": trust.issuer, "audience": trust.audience, "subject": trust.subject}


routes = Blueprint("resource_credentials", __name__)


@routes.get("/api/organizations/<org_slug>/api-resources/<resource_id>/credentials")
@kit.member(Capability.RESOURCES_VIEW)
async def list_credentials(org_slug: str, resource_id: UUID) -> CredentialListResponse:
    """List an API resource's credentials.

    The API introspects tokens with them. Expired credentials are listed for 30 days. Secrets are not returned.
    """
    credentials = await programs_credentials.list_of_resource(kit.ports(), kit.acting(), resource_id)
    return CredentialListResponse(credentials=[to_credential_response(credential) for credential in credentials])


@routes.post("/api/organizations/<org_slug>/api-resources/<resource_id>/credentials")
@kit.member(Capability.RESOURCES_MANAGE, kit.GIVES)
@existing_resource
@kit.returns(201)
async def create_credential(org_slug: str, resource_id: UUID, data: CredentialRequest) -> CreatedCredentialResponse:
    """Create a credential for an API resource.

    With it, the API asks at the introspection endpoint about the access tokens that it receives, and sees only its own
    tokens. At most two secrets and keys work at a time. An API resource does not trust pipelines.
    """
    credential, secret = await programs_credentials.create_for_resource(kit.ports(), kit.acting(), resource_id, to_credential_request(data))
    return to_created_response(credential, secret)


@routes.delete("/api/organizations/<org_slug>/api-resources/<resource_id>/credentials/<credential_id>")
@kit.member(Capability.RESOURCES_MANAGE, kit.GIVES)
@kit.describes({204: "The credential is revoked."})
async def revoke_credential(org_slug: str, resource_id: UUID, credential_id: UUID) -> None:
    """Revoke an API resource's credential. Its next request is refused."""
    await programs_credentials.revoke_of_resource(kit.ports(), kit.acting(), resource_id, credential_id)
