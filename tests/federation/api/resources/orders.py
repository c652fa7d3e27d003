"""An application that asks for its organization's API resource."""

from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit
from uuid import UUID

from tests.federation.api.relying import RelyingParty, answer_fields, claims
from tests.support.browser import leads_to
from tests.support.builders import Answer, run_sql

ORDERS: Final = "https://api.example.com/"
READ, WRITE = "orders:read", "orders:write"


@dataclass(slots=True)
class OrdersClient:
    """A relying party that asks for the API in every request."""

    party: RelyingParty
    resource: UUID

    def path(self, **changes: str | None) -> str:
        """Return an authorization request's path and query. Omit fields with the value None."""
        return self.party.request(**{"response_type": "code", "scope": READ, "resource": ORDERS, **changes})

    async def open(self, **changes: str | None) -> Answer:
        return await self.party.browser.open(self.path(**changes))

    async def authorize(self, **changes: str | None) -> dict[str, str]:
        """Send a request, agree if a page asks, and return the response to the application."""
        answer = await self.open(**changes)
        if answer.status == 200:
            answer = await self.party.browser.answer(answer, "continue")
        return answer_fields(answer)

    async def code(self, **changes: str | None) -> str:
        fields = await self.authorize(**changes)
        assert "code" in fields, fields
        return fields["code"]

    async def tokens(self, **changes: str | None) -> dict[str, Any]:
        answer = await self.party.exchange(await self.code(**changes))
        assert answer.status == 200, answer.text
        tokens: dict[str, Any] = answer.json
        return tokens

    async def refresh(self, tokens: dict[str, Any], **changes: str | None) -> Answer:
        return await self.party.refresh(tokens["refresh_token"], **changes)

    async def refreshed(self, tokens: dict[str, Any], **changes: str | None) -> dict[str, Any]:
        answer = await self.refresh(tokens, **changes)
        assert answer.status == 200, answer.text
        pair: dict[str, Any] = answer.json
        return pair

    async def change(self, sql: str) -> None:
        """Run a statement about the API resource. Its id is the parameter."""
        await run_sql(self.party.tenant.pool, sql, self.resource)


def seen(tokens: dict[str, Any]) -> tuple[Any, ...]:
    """Return the access token's audience and scope, and the response's scope and lifetime."""
    token = claims(tokens)
    return token["aud"], token.get("scope"), tokens.get("scope"), token["exp"] - token["iat"]


def error(answer: Answer) -> str:
    """Return the error in a redirect or from the token endpoint."""
    if answer.status == 303:
        return dict(parse_qsl(urlsplit(leads_to(answer)).query))["error"]
    assert answer.status in (400, 401, 403), answer.text
    return str(answer.json["error"])
