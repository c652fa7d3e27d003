"""An application that asks for OpenID Connect, and its checks on an ID token."""

import re
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from joserfc import jwt
from joserfc.jwk import KeySet

from core.accounts.model.accounts import Account
from core.authentication.model.openid import Scope
from tests.federation.api.relying import FORM, RelyingParty, give_consent, path_of
from tests.support.browser import hidden_fields, leads_to
from tests.support.builders import BASE_URL, EMAIL, PASSWORD, Answer, run_sql

USERINFO: Final = "/auth/userinfo"
STATE: Final = "af0ifjsldkj"


@dataclass(slots=True)
class OpenIdClient:
    """A relying party that sends `scope` and `response_type` with every request."""

    party: RelyingParty

    def request(self, **changes: str | None) -> str:
        """Return an authorization request's path and query. Omit fields with the value None."""
        return path_of(self.party, **changes)

    async def open(self, **changes: str | None) -> Answer:
        return await self.party.browser.open(self.request(**changes))

    async def agree(self, page: Answer, **changes: str | None) -> dict[str, str]:
        """Press the first button on the page that this request shows, and return the response to the application."""
        answer = re.search(r'name="answer" value="([^"]+)"', page.text)
        assert answer, page.text
        return result(await self.party.browser.answer(page, answer[1]))

    async def authorize(self, **changes: str | None) -> dict[str, str]:
        """Send a request, agree if a page asks, and return the response to the application."""
        answer = await self.open(**changes)
        return result(answer) if answer.status == 303 else await self.agree(answer, **changes)

    async def tokens(self, **changes: str | None) -> dict[str, Any]:
        fields = await self.authorize(**changes)
        answer = await self.party.exchange(fields["code"], **{"redirect_uri": changes.get("redirect_uri", self.party.redirect_uri)})
        assert answer.status == 200, answer.text
        tokens: dict[str, Any] = answer.json
        return tokens

    async def refresh(self, tokens: dict[str, Any]) -> dict[str, Any]:
        answer = await self.party.refresh(tokens["refresh_token"])
        assert answer.status == 200, answer.text
        refreshed: dict[str, Any] = answer.json
        return refreshed

    async def id_claims(self, tokens: dict[str, Any]) -> dict[str, Any]:
        """Return the ID token's claims, after the checks in OpenID Connect Core section 3.1.3.7."""
        keys = KeySet.import_key_set((await self.party.api.get("/.well-known/jwks.json")).json)
        token = jwt.decode(tokens["id_token"], keys, algorithms=["RS256"])
        assert token.header["typ"] == "JWT"
        now = int(self.party.tenant.ports.clock.now().timestamp())
        essential = {name: {"essential": True} for name in ("sub", "exp", "iat", "auth_time", "acr", "at_hash", "sid")}
        client_id = {"essential": True, "value": str(self.party.client_id)}
        issuer = {"essential": True, "value": BASE_URL}
        jwt.JWTClaimsRegistry(now, iss=issuer, aud=client_id, azp=client_id, **essential).validate(token.claims)  # type: ignore[arg-type]
        return dict(token.claims)

    async def userinfo(self, tokens: dict[str, Any]) -> dict[str, Any]:
        answer = await self.party.api.get(USERINFO, token=tokens["access_token"])
        assert answer.status == 200, answer.text
        claims: dict[str, Any] = answer.json
        return claims

    async def post_userinfo(self, **fields: str) -> Answer:
        body = "&".join(f"{name}={value}" for name, value in fields.items()).encode()
        return await self.party.api.call("POST", USERINFO, raw=body, headers=FORM)

    async def configure(self, **columns: object) -> None:
        for column, value in columns.items():
            await run_sql(self.party.tenant.pool, f"update services set {column} = %s where id = %s", value, self.party.service)  # noqa: S608

    async def agree_before(self, account: Account, *scope: Scope) -> None:
        """Let the user agree to these scopes in the past, by default to `openid`."""
        await give_consent(self.party, account, *(scope or [Scope.OPENID]))

    async def sign_in_again(self, page: Answer, password: str = PASSWORD) -> Answer:
        """Submit the sign-in form that is shown instead of an answer."""
        assert "<h1>Sign in" in page.text, page.text
        return await self.party.browser.fill(page, email=EMAIL, password=password)


def next_of(page: Answer) -> str:
    """Return where a sign-in page continues."""
    return hidden_fields(page)["next"]


def result(answer: Answer) -> dict[str, str]:
    """Return the fields in a redirect to the application, without the issuer and the state, which it always has."""
    fields = dict(parse_qsl(urlsplit(leads_to(answer)).query, strict_parsing=True))
    assert (fields.pop("iss"), fields.pop("state")) == (BASE_URL, STATE)
    return fields


def error(answer: Answer) -> str:
    """Return the error that a redirect brings to the application, which has a description and no code."""
    fields = result(answer)
    assert fields.keys() == {"error", "error_description"}
    assert fields["error_description"]
    return fields["error"]
