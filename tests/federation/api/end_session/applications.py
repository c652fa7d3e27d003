"""Applications that sign users in with OpenID Connect, and sign them out again."""

from typing import Any, Final
from urllib.parse import urlencode

from tests.federation.api.relying import RelyingParty, redirect_parts
from tests.support.browser import FakeBrowser, form_token
from tests.support.builders import Answer, run_sql

END_SESSION: Final = "/auth/end-session"
BYE: Final = "https://shop.example.com/bye?from=gatehouse"
CROSS_SITE: Final = (b"sec-fetch-site", b"cross-site")


def end_session_path(**fields: object) -> str:
    sent = {name: str(value) for name, value in fields.items() if value is not None}
    return f"{END_SESSION}?{urlencode(sent)}" if sent else END_SESSION


async def openid_tokens(application: RelyingParty, browser: FakeBrowser | None = None, scope: str = "openid") -> dict[str, Any]:
    """Return the tokens for the user of this browser, by default the application's. The user agrees if a page asks."""
    browser = browser or application.browser
    prompt = "consent" if "offline_access" in scope else None
    path = application.request(scope=scope, response_type="code", prompt=prompt)
    answer = await browser.open(path)
    if answer.status == 200:
        answer = await browser.send(path, form_token=form_token(answer), answer="continue")
    place, fields = redirect_parts(answer)
    assert place == application.redirect_uri, (place, fields)
    tokens = await application.exchange(fields["code"])
    assert tokens.status == 200, tokens.text
    granted: dict[str, Any] = tokens.json
    assert granted["scope"] == scope
    return granted


async def is_usable(application: RelyingParty, tokens: dict[str, Any]) -> bool:
    """Return whether the session still answers. The refresh token is not used up."""
    header = {"Authorization": f"Bearer {tokens['access_token']}"}
    answer: Answer = await application.api.call("GET", "/auth/userinfo", headers=header)
    assert answer.status in (200, 401), answer.text
    return answer.status == 200


async def register_return(application: RelyingParty, *uris: str) -> None:
    statement = "update services set post_logout_redirect_uris = %s where id = %s"
    await run_sql(application.tenant.pool, statement, list(uris) or [BYE], application.service)
