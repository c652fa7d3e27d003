"""An organization's registration tokens."""

from typing import Annotated
from uuid import UUID

from pydantic import Field
from quart import Blueprint

from core.kernel.roles import Capability
from core.programs import registration_tokens
from core.programs.model.registration_tokens import MAX_USES
from entrypoints.http import kit

routes = Blueprint("registration_tokens", __name__)


class RegistrationTokenRequest(kit.RequestModel):
    """A new registration token."""

    name: kit.Name = Field(description="The name of the token.", examples=["Build agents"])
    uses: Annotated[int, Field(ge=1, le=MAX_USES)] = Field(default=1, description="The number of applications that can register with it.")
    expires_at: kit.DateTime | None = Field(default=None, description="The time when the token expires. Without it, it does not expire.")


class RegistrationTokenResponse(kit.ResponseModel):
    """A registration token without its secret."""

    id: UUID = Field(description="The id of the token.")
    name: str = Field(description="The name of the token.", examples=["Build agents"])
    prefix: str = Field(description="The first characters of the secret, to recognize the token.", examples=["gthr_k2V7qA"])
    uses_left: int = Field(description="The number of applications that can still register with it.")
    expires_at: kit.Timestamp | None = Field(description="The time when the token expires, in UTC, or null if it does not expire.")
    created_at: kit.Timestamp = Field(description="The time when the token was created, in UTC.")
    created_by: UUID = Field(description="The id of the member or the service account that created the token.")
    last_used_at: kit.Timestamp | None = Field(description="The time of the last registration, in UTC, or null if there was none.")


class CreatedRegistrationTokenResponse(RegistrationTokenResponse):
    """A new registration token with its secret. Only this response contains the secret."""

    token: str = Field(description="The secret, to send as Bearer token to `POST /auth/register`. It is returned only once.")


class RegistrationTokenListResponse(kit.ResponseModel):
    """All registration tokens in an organization."""

    tokens: list[RegistrationTokenResponse] = Field(description="The tokens, oldest first, also tokens that no longer work.")
    total: int = Field(description="The number of tokens.")


@routes.post("/api/organizations/<org_slug>/registration-tokens")
@kit.member(Capability.SERVICES_CREATE, kit.GIVES)
@kit.returns(201)
async def create(org_slug: str, data: RegistrationTokenRequest) -> CreatedRegistrationTokenResponse:
    """Create a registration token.

    A program that has it can register as the organization's application (RFC 7591). The secret is returned only once. The token works while
    its creator may create applications.
    """
    token, secret = await registration_tokens.create(kit.ports(), kit.acting(), data.name, data.uses, data.expires_at)
    return CreatedRegistrationTokenResponse.of(token, token=secret)


@routes.get("/api/organizations/<org_slug>/registration-tokens")
@kit.member(Capability.SERVICES_CREATE)
async def list_tokens(org_slug: str) -> RegistrationTokenListResponse:
    """List the registration tokens.

    Their secrets are not returned.
    """
    tokens = await registration_tokens.list_tokens(kit.ports(), kit.acting())
    return RegistrationTokenListResponse(tokens=RegistrationTokenResponse.list_of(tokens), total=len(tokens))


@routes.delete("/api/organizations/<org_slug>/registration-tokens/<registration_token_id>")
@kit.member(Capability.SERVICES_CREATE, kit.GIVES)
@kit.describes({204: "The token is deleted."})
async def delete(org_slug: str, registration_token_id: UUID) -> None:
    """Delete a registration token.

    No further application can register with it. Applications that did so stay.
    """
    await registration_tokens.delete(kit.ports(), kit.acting(), registration_token_id)
