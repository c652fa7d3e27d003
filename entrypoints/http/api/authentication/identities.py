"""The caller's linked accounts at identity providers, and these providers' tokens."""

from typing import Final
from urllib.parse import urlencode

import trio
from pydantic import Field
from quart import Blueprint

from core.authentication import identities
from core.authentication.model import identities as identities_model
from core.authentication.model.identities import ProviderToken, RenewalInProgress
from entrypoints.http import kit
from entrypoints.http.api.authentication.connections import ProviderSlug
from entrypoints.http.base.context import app_context

routes = Blueprint("identities", __name__)

RENEWAL_POLL: Final = 0.05  # seconds


class LinkedAccountResponse(kit.ResponseModel):
    """A linked account at an identity provider."""

    provider: ProviderSlug = Field(description="The identity provider.")
    provider_user_id: str = Field(description="The id of the user at the provider.")
    email: str | None = Field(description="The email address that the provider sent, if any.")
    linked_at: kit.Timestamp = Field(description="When the account was linked.")


@routes.get("/api/user/identities")
@kit.person(applications=kit.ApplicationTokens.ALL)
@kit.refuses(404)
async def list_identities() -> list[LinkedAccountResponse]:
    """List your linked accounts at identity providers.

    With an application's token, these are the accounts that are linked in its service. With the scope `openid`,
    the addresses are null without `email`.
    """
    return LinkedAccountResponse.list_of(await identities.list_linked(kit.ports(), kit.signed_in()))


class LinkStartResponse(kit.ResponseModel):
    """The URL that starts the link."""

    authorization_url: str = Field(description="The URL to open in the user's browser. It works once, for one minute.")


@routes.post("/api/user/identities/<provider>/link")
@kit.person(kit.WAYS_IN)
@kit.refuses(400)
async def start_link(provider: str) -> LinkStartResponse:
    """Start linking an account at an identity provider.

    The browser that opens the URL completes the link. Your session must still be live then.
    """
    ticket = await identities.start_link(kit.ports(), kit.signed_in(), provider)
    return LinkStartResponse(authorization_url=f"{app_context().base_url}/auth/{provider}?{urlencode({'link': ticket})}")


@routes.delete("/api/user/identities/<provider>")
@kit.person(kit.WAYS_IN, applications=kit.ApplicationTokens.ALL)
@kit.refuses(400)
async def unlink(provider: str) -> kit.Message:
    """Unlink an account at an identity provider.

    With your own token, it is unlinked in your account and in all services. With an application's
    token, it is unlinked in its service. The last way to sign in cannot be unlinked.
    """
    await identities.unlink(kit.ports(), kit.signed_in(), provider)
    return kit.Message(message="The account at the identity provider was unlinked.")


class ProviderTokenResponse(kit.ResponseModel):
    """An identity provider's access token."""

    provider: ProviderSlug = Field(description="The identity provider.")
    access_token: str = Field(description="The access token for the provider's API.")
    expires_at: kit.Timestamp | None = Field(description="When the token expires, or null if the provider did not say.")
    scopes: list[str] = Field(description="The scopes that the provider granted.")


@routes.get("/api/provider-token/<provider>")
@kit.person(kit.MINE, applications=kit.ApplicationTokens.ALL)
async def get_provider_token(provider: str) -> ProviderTokenResponse:
    """Return your access token for an identity provider's API.

    An application can use it to call this API on behalf of the user. An expired token is renewed first, which can take a few seconds.
    """
    token = await _load_provider_token(provider)
    return ProviderTokenResponse.of(token, provider=provider)


async def _load_provider_token(provider: str) -> ProviderToken:
    """Return the token. If another request renews it, wait for the result."""
    deadline = trio.current_time() + identities_model.RENEWAL_TTL.total_seconds()
    while True:
        try:
            return await identities.load_provider_token(kit.ports(), kit.signed_in(), provider)
        except RenewalInProgress:
            if trio.current_time() > deadline:
                raise
        await trio.sleep(RENEWAL_POLL)
