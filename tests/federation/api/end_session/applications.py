"""Applications that sign users in with OpenID Connect, and sign them out again."""

from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlencode
from uuid import UUID

from core.authentication.model.openid import LogoutToken
from core.eventing.model.webhooks import LOGOUT_TOKEN_TTL
from core.kernel.values import new_id
from tests.federation.api import relying
from tests.federation.api.relying import RelyingParty, claims
from tests.support.browser import FakeBrowser
from tests.support.builders import Answer, run_sql

END_SESSION: Final = "/auth/end-session"
BYE: Final = "https://shop.example.com/bye?from=gatehouse"
CROSS_SITE: Final = (b"sec-fetch-site", b"cross-site")


def end_session_path(**fields: object) -> str:
    sent = {name: str(value) for name, value in fields.items() if value is not None}
    return f"{END_SESSION}?{urlencode(sent)}" if sent else END_SESSION


async def openid_tokens(application: RelyingParty, browser: FakeBrowser | None = None, scope: str = "openid") -> dict[str, Any]:
    """Return the tokens for the user of this browser, by default the application's. The user agrees if a page asks."""
    prompt = "consent" if "offline_access" in scope else None
    tokens = await relying.openid_tokens(replace(application, browser=browser or application.browser), scope=scope, prompt=prompt)
    assert tokens["scope"] == scope
    return tokens


def logout_token(application: RelyingParty, tokens: dict[str, Any]) -> str:
    """Return a logout token for the session of these tokens, as the application gets it."""
    ports, session = application.tenant.ports, claims(tokens)
    now = ports.clock.now()
    token = LogoutToken(
        id=new_id(),
        client_id=str(application.client_id),
        user_id=UUID(session["sub"]),
        session_id=UUID(session["sid"]),
        issued_at=now,
        expires_at=now + LOGOUT_TOKEN_TTL,
    )
    return ports.tokens.sign_logout_token(token)


async def is_usable(application: RelyingParty, tokens: dict[str, Any]) -> bool:
    """Return whether the session still answers. The refresh token is not used up."""
    header = {"Authorization": f"Bearer {tokens['access_token']}"}
    answer: Answer = await application.api.call("GET", "/auth/userinfo", headers=header)
    assert answer.status in (200, 401), answer.text
    return answer.status == 200


async def register_return(application: RelyingParty, *uris: str) -> None:
    statement = "update services set post_logout_redirect_uris = %s where id = %s"
    await run_sql(application.tenant.pool, statement, list(uris) or [BYE], application.service)
