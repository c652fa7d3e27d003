"""Clients and pages that link accounts."""

import re
from dataclasses import dataclass
from datetime import timedelta
from html import unescape
from urllib.parse import urlsplit

from quart_trio import QuartTrio

from tests.federation.provider_sign_in import ProviderSignIn
from tests.support.browser import FakeBrowser
from tests.support.builders import EMAIL, Answer, Api

PAGE = "/app/account/identities"
TOKEN_LIFETIME = timedelta(minutes=4)  # the lifetime of the provider's tokens; ours live longer


@dataclass(slots=True)
class ApiClient:
    """An API client with an access token of the user, which links accounts."""

    api: Api
    token: str
    name: str

    async def start_link(self) -> str:
        """Start linking. Return the path to open in a browser."""
        answer = await self.api.post(f"/api/user/identities/{self.name}/link", token=self.token)
        assert answer.status == 200, answer.text
        address = urlsplit(answer.json["authorization_url"])
        return f"{address.path}?{address.query}"

    async def list_subjects(self) -> list[str]:
        answer = await self.api.get("/api/user/identities", token=self.token)
        return [identity["provider_user_id"] for identity in answer.json]

    async def unlink(self) -> Answer:
        return await self.api.delete(f"/api/user/identities/{self.name}", token=self.token)

    async def get_token(self) -> Answer:
        return await self.api.get(f"/api/provider-token/{self.name}", token=self.token)


async def open_ticket(provider_sign_in: ProviderSignIn, path: str) -> str:
    """Open the path of a ticket and visit the provider. Return the path of the callback."""
    page = await provider_sign_in.browser.open(path)
    address = page.headers["Location"] if page.status == 302 else link_target(page)  # a signed-in user is redirected immediately
    return provider_sign_in.provider.visit(address).removeprefix("http://gatehouse.test")


def link_target(page: Answer) -> str:
    """Return the URL of the button on the page that asks whether to link."""
    assert page.status == 200, page.text
    assert EMAIL in page.text
    [address] = re.findall(r'<a class="button" href="([^"]*)"', page.text)
    return unescape(address)


SHOP, DESK = {"org": "acme", "service": "shop"}, {"org": "twin", "service": "desk"}


def other_browser(provider_sign_in: ProviderSignIn, app: QuartTrio) -> ProviderSignIn:
    return ProviderSignIn(FakeBrowser(app), provider_sign_in.provider, provider_sign_in.pool)
