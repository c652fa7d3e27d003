"""Personal access tokens: the signed-in user's tokens, and the tokens that act in an organization."""

from uuid import UUID

from pydantic import Field
from quart import Blueprint

from core.authentication.model.tokens import DEFAULT_DAYS, MAX_DAYS, MAX_LIVE_TOKENS, NewPersonalToken, PersonalToken
from core.authentication.tokens import personal_tokens
from core.kernel.api_scopes import ApiScope
from core.kernel.roles import Capability
from entrypoints.http import kit

routes = Blueprint("personal_tokens", __name__)


class PersonalTokenRequest(kit.RequestModel):
    """A new personal access token."""

    name: kit.Name = Field(description="What the token is for.", examples=["Nightly export"])
    scopes: kit.Texts = Field(
        description="The scopes that the token needs. A token for an organization has scopes that your role can use "
        "there. A token for your own account has `account:read` or `account:write`.",
        examples=[["members:read"]],
    )
    org_slug: kit.Text | None = Field(
        default=None,
        description="The organization that the token acts in. Without it, the token acts on your own account.",
        examples=["acme"],
    )
    expires_in_days: int = Field(default=DEFAULT_DAYS, ge=1, le=MAX_DAYS, description="The lifetime in days.", examples=[30])


class TokenOrganizationResponse(kit.ResponseModel):
    """The organization that a personal access token acts in."""

    id: UUID = Field(description="The organization's id.")
    slug: str = Field(description="The organization's unique name in URLs.", examples=["acme"])
    name: str = Field(description="The organization's display name.", examples=["Acme"])


class PersonalTokenResponse(kit.ResponseModel):
    """A personal access token without its secret."""

    id: UUID = Field(description="The id of the token.")
    name: str = Field(description="What the token is for.", examples=["Nightly export"])
    prefix: str = Field(description="The first characters of the secret, to recognize the token.", examples=["gatehouse_pat_live_k2v7qa"])
    scopes: list[ApiScope] = Field(description="The scopes of the token.", examples=[["members:read"]])
    organization: TokenOrganizationResponse | None = Field(
        description="The only organization that it acts in, or null for your own account."
    )
    created_at: kit.Timestamp = Field(description="The time when the token was created.")
    expires_at: kit.Timestamp = Field(description="The time when the token expires.")
    last_used_at: kit.Timestamp | None = Field(description="The time of the last request with the token, to the minute, or null.")


class CreatedPersonalTokenResponse(PersonalTokenResponse):
    """A new personal access token with its secret. Only this response contains the secret."""

    token: str = Field(description="The secret. Programs send it as `Authorization: Bearer`.")


class PersonalTokenListResponse(kit.ResponseModel):
    """A user's personal access tokens."""

    personal_tokens: list[PersonalTokenResponse] = Field(description=f"The live tokens, newest first. There are at most {MAX_LIVE_TOKENS}.")


def to_response(token: PersonalToken) -> PersonalTokenResponse:
    organization = None
    if token.org_id is not None and token.org_slug is not None and token.org_name is not None:
        organization = TokenOrganizationResponse(id=token.org_id, slug=token.org_slug, name=token.org_name)
    return PersonalTokenResponse.of(token, organization=organization)


@routes.post("/api/user/personal-tokens")
@kit.verified_person(kit.ACTS_ON_ME)
async def create(data: PersonalTokenRequest) -> CreatedPersonalTokenResponse:
    """Create a personal access token.

    A program sends it as `Authorization: Bearer`, and acts as you, within the token's scopes, in an organization or on
    your own account. The secret is returned only once, and you get an email. You can have 50 tokens.
    """
    request = NewPersonalToken(name=data.name, scopes=tuple(data.scopes), org_slug=data.org_slug, expires_in_days=data.expires_in_days)
    token, secret = await personal_tokens.create(kit.ports(), kit.signed_in(), request)
    return CreatedPersonalTokenResponse(**dict(to_response(token)), token=secret)


@routes.get("/api/user/personal-tokens")
@kit.person_anywhere(kit.SHOWS_PEOPLE)
async def list_own() -> PersonalTokenListResponse:
    """List your personal access tokens.

    Tokens that have expired or were revoked are left out. The list is complete; it has no pages.
    """
    tokens = await personal_tokens.list_own(kit.ports(), kit.signed_in())
    return PersonalTokenListResponse(personal_tokens=[to_response(token) for token in tokens])


@routes.delete("/api/user/personal-tokens/<personal_token_id>")
@kit.person_anywhere(kit.ACTS_ON_ME)
@kit.describes({204: "The token is revoked."})
async def revoke(personal_token_id: UUID) -> None:
    """Revoke a personal access token.

    It stops working with the next request.
    """
    await personal_tokens.revoke_own(kit.ports(), kit.signed_in(), personal_token_id)


class TokenUserResponse(kit.ResponseModel):
    """The user that a personal access token acts for."""

    id: UUID = Field(description="The user's id.")
    email: str = Field(description="The user's email address.", examples=["ada@example.com"])
    name: str | None = Field(description="The user's full name, or null.", examples=["Ada Lovelace"])


class MemberPersonalTokenResponse(kit.ResponseModel):
    """A personal access token that acts in an organization, without its secret."""

    id: UUID = Field(description="The id of the token.")
    user: TokenUserResponse = Field(description="The member that it acts for.")
    name: str = Field(description="What the token is for.", examples=["Nightly export"])
    prefix: str = Field(description="The first characters of the secret, to recognize the token.", examples=["gatehouse_pat_live_k2v7qa"])
    scopes: list[ApiScope] = Field(description="The scopes of the token. The member's role can narrow them.", examples=[["members:read"]])
    created_at: kit.Timestamp = Field(description="The time when the token was created.")
    expires_at: kit.Timestamp = Field(description="The time when the token expires.")
    last_used_at: kit.Timestamp | None = Field(description="The time of the last request with the token, to the minute, or null.")


class MemberPersonalTokenListResponse(kit.ResponseModel):
    """A page of the personal access tokens that act in an organization."""

    personal_tokens: list[MemberPersonalTokenResponse] = Field(description="The live tokens on this page, newest first.")
    pagination: kit.Pagination = Field(description="The position of this page in the list.")


@routes.get("/api/organizations/<org_slug>/personal-tokens")
@kit.member(Capability.MEMBERS_MANAGE)
async def list_in_organization(org_slug: str, query_args: kit.PageQuery) -> MemberPersonalTokenListResponse:
    """List an organization's personal access tokens.

    These are the tokens with which its members' programs act in the organization. Secrets are not returned. Tokens for
    the members' own accounts or for other organizations are left out.
    """
    tokens = await personal_tokens.list_in_organization(kit.ports(), kit.acting(), query_args.page_request())
    listed = [
        MemberPersonalTokenResponse.of(item.token, user=TokenUserResponse(id=item.token.user_id, email=item.email, name=item.user_name))
        for item in tokens.items
    ]
    return MemberPersonalTokenListResponse(personal_tokens=listed, pagination=query_args.pagination(tokens.total))


@routes.delete("/api/organizations/<org_slug>/personal-tokens/<personal_token_id>")
@kit.member(Capability.MEMBERS_MANAGE, kit.PROMOTES)
@kit.describes({204: "The token is revoked."})
async def revoke_in_organization(org_slug: str, personal_token_id: UUID) -> None:
    """Revoke a member's personal access token.

    It stops working with the next request. The member can create a new token, unless the organization does not allow
    personal access tokens.
    """
    await personal_tokens.revoke_in_organization(kit.ports(), kit.acting(), personal_token_id)
