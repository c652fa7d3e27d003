"""Accounts at external identity providers that the caller has linked, and what these gave (identity.md section 4.2)."""

from typing import Final
from urllib.parse import urlencode

import trio
from quart import Blueprint
from quart_schema import validate_response

from core.authentication import identities, identities_rules
from core.authentication.identities_rules import ProviderToken, RenewalInProgress
from core.kernel.providers import Provider
from entrypoints.http.edge.access import person
from entrypoints.http.edge.bodies import Message, ResponseModel, Timestamp
from entrypoints.http.edge.context import app_context, ports, signed_in
from entrypoints.http.edge.openapi import refuses

routes = Blueprint("identities", __name__)

PAUSE: Final = 0.05  # seconds


class IdentityShown(ResponseModel):
    """An account at an external provider that is linked to the caller's; the email address is what the provider says it is."""

    provider: Provider
    provider_user_id: str
    email: str | None
    linked_at: Timestamp


@routes.get("/api/user/identities")
@person(applications=True)
@refuses(404)
@validate_response(list[IdentityShown])
async def linked() -> list[IdentityShown]:
    """List your linked accounts: those of the account itself, or with an application's token those of its service."""
    return [
        IdentityShown(
            provider=identity.provider,
            provider_user_id=identity.provider_user_id,
            email=identity.email,
            linked_at=identity.linked_at,
        )
        for identity in await identities.list_linked(ports(), signed_in())
    ]


class LinkStarted(ResponseModel):
    """Where to send the browser, within a minute, and once."""

    authorization_url: str


@routes.post("/api/user/identities/<provider>/link")
@person(impersonated=False)
@refuses(400)
@validate_response(LinkStarted)
async def link(provider: str) -> LinkStarted:
    """Start to link an account at an identity provider. It goes on in the browser that opens the address."""
    ticket = await identities.start_link(ports(), signed_in(), provider)
    return LinkStarted(authorization_url=f"{app_context().base_url}/auth/{provider}?{urlencode({'link': ticket})}")


@routes.delete("/api/user/identities/<provider>")
@person(impersonated=False, applications=True)
@refuses(400)
@validate_response(Message)
async def unlink(provider: str) -> Message:
    """Unlink an account at an identity provider, unless you could not sign in any more."""
    await identities.unlink(ports(), signed_in(), provider)
    return Message(message="The account at the identity provider was unlinked.")


class ProviderTokenShown(ResponseModel):
    """An access token that the provider gave for you. `expires_at` is null if it has not said when it expires."""

    provider: Provider
    access_token: str
    expires_at: Timestamp | None
    scopes: list[str]


@routes.get("/api/provider-token/<provider>")
@person(impersonated=False, applications=True)
@validate_response(ProviderTokenShown)
async def provider_token(provider: str) -> ProviderTokenShown:
    """The access token that you have from an identity provider, with which its own interface can be used in your name.

    One that has expired is renewed with the provider.
    """
    token = await _provider_token(provider)
    return ProviderTokenShown(
        provider=Provider(provider), access_token=token.access_token, expires_at=token.expires_at, scopes=list(token.scopes)
    )


async def _provider_token(provider: str) -> ProviderToken:
    """Of several who come at once one renews it, and the others wait for that one. Raises what identities.load_provider_token raises."""
    deadline = trio.current_time() + identities_rules.RENEWAL_TTL.total_seconds()
    while True:
        try:
            return await identities.load_provider_token(ports(), signed_in(), provider)
        except RenewalInProgress:
            if trio.current_time() > deadline:
                raise
        await trio.sleep(PAUSE)
