"""Clients and pages that link accounts."""

from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

from quart_trio import QuartTrio

from tests.federation.provider_sign_in import ProviderSignIn
from tests.support.browser import SIGN_IN, FakeBrowser, leads_to
from tests.support.builders import EMAIL, Answer, Api

PAGE = "/app/account/identities"
TOKEN_LIFETIME = timedelta(minutes=4)  # the lifetime of the provider's tokens; ours live longer


@dataclass(slots=True)
class ApiClient:
    """An API client with the user's access token, which links accounts."""

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
    """Open a ticket's path, sign in for it if asked, and visit the provider. Return the callback's path."""
    page = await provider_sign_in.browser.open(path)
    if page.headers["Location"].startswith(SIGN_IN):
        assert parse_qs(urlsplit(page.headers["Location"]).query) == {"next": [path]}
        assert leads_to(await provider_sign_in.browser.sign_in(EMAIL, after=path)) == path
        page = await provider_sign_in.browser.open(path)
    assert page.status == 302, page.text
    return provider_sign_in.provider.authorize(page.headers["Location"]).removeprefix("http://gatehouse.test")


SHOP, DESK = {"org": "acme", "service": "shop"}, {"org": "twin", "service": "desk"}


def other_browser(provider_sign_in: ProviderSignIn, app: QuartTrio) -> ProviderSignIn:
    return ProviderSignIn(FakeBrowser(app), provider_sign_in.provider, provider_sign_in.pool)
