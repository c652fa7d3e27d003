"""An OAuth application for the tests of codes and tokens."""

from base64 import b64encode
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl, quote_plus, urlencode, urlsplit
from uuid import UUID

import jwt

from adapters.postgres.authentication.sign_in_proofs import columns_of
from core.accounts.model.accounts import Account
from core.authentication.model.openid import Scope
from core.federation.oauth.model.authorization import s256_challenge
from core.kernel.causes import SYSTEM
from core.kernel.proofs import Method, Proof, first_proof
from core.kernel.values import digest, new_id, new_secret
from tests.support.browser import FakeBrowser, leads_to
from tests.support.builders import BASE_URL, Answer, Api, run_sql
from tests.support.services import add_service, add_service_user, service_context
from tests.support.tenants import Tenant

AUTHORIZE, TOKEN, REVOKE = "/auth/authorize", "/auth/token", "/auth/revoke"
SECRET: Final = "a client: secret + more %"
VERIFIER: Final = "the-verifier-that-only-this-program-knows-0123456789"
PKCE: Final = {"code_challenge": s256_challenge(VERIFIER), "code_challenge_method": "S256"}
FORM: Final = {"Content-Type": "application/x-www-form-urlencoded"}


def basic(client_id: object, secret: str) -> dict[str, str]:
    """Return the Authorization header from RFC 6749 section 2.3.1."""
    return {"Authorization": "Basic " + b64encode(f"{quote_plus(str(client_id))}:{quote_plus(secret)}".encode()).decode()}


def redirect_parts(answer: Answer) -> tuple[str, dict[str, str]]:
    """Return a redirect's URL without its query, and the fields in its query."""
    target = leads_to(answer)
    parts = urlsplit(target)
    fields = dict(parse_qsl(parts.query, strict_parsing=True))
    return target.partition("?")[0], fields


@dataclass(slots=True)
class RelyingParty:
    """An application with its credentials, and a user's browser."""

    tenant: Tenant
    browser: FakeBrowser
    service: UUID
    slug: str
    client_id: UUID
    redirect_uri: str
    secret: str | None

    @property
    def api(self) -> Api:
        return self.tenant.api

    def request(self, **changes: str | None) -> str:
        """Return its authorization request's path and query.

        Omit fields with the value None.
        """
        fields: dict[str, str | None] = {
            "org": self.tenant.slug,
            "service": self.slug,
            "redirect_uri": self.redirect_uri,
            "state": "af0ifjsldkj",
            **({} if self.secret else PKCE),
            **changes,
        }
        return f"{AUTHORIZE}?{urlencode({name: value for name, value in fields.items() if value is not None})}"

    async def open_request(self, **changes: str | None) -> Answer:
        return await self.browser.open(self.request(**changes))

    async def code(self, **changes: str | None) -> str:
        """Return a code for the user who is signed in in the browser."""
        url, fields = redirect_parts(await self.open_request(**changes))
        assert url == self.redirect_uri
        assert (fields["state"], fields["iss"]) == ("af0ifjsldkj", BASE_URL)
        return fields["code"]

    async def post(self, path: str, headers: dict[str, str] | None = None, /, **fields: str | None) -> Answer:
        raw = urlencode({name: value for name, value in fields.items() if value is not None}).encode()
        return await self.api.call("POST", path, raw=raw, headers={**FORM, **(headers or {})})

    async def exchange(self, code: str, **changes: str | None) -> Answer:
        """Exchange a code with all required fields. Omit fields with the value None."""
        fields: dict[str, str | None] = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.redirect_uri,
            "client_id": str(self.client_id),
            "client_secret": self.secret,
            "code_verifier": None if self.secret else VERIFIER,
        }
        return await self.post(TOKEN, **{**fields, **changes})

    async def tokens(self) -> dict[str, Any]:
        answer = await self.exchange(await self.code())
        assert answer.status == 200, answer.text
        tokens: dict[str, Any] = answer.json
        return tokens

    async def refresh(self, refresh_token: str, **changes: str | None) -> Answer:
        fields = {"grant_type": "refresh_token", "refresh_token": refresh_token, "client_id": str(self.client_id)}
        return await self.post(TOKEN, **{**fields, "client_secret": self.secret, **changes})

    async def is_live(self, tokens: dict[str, Any]) -> bool:
        return (await self.api.get("/api/user", token=tokens["access_token"])).status == 200

    async def set_redirect_uris(self, *uris: str) -> None:
        await run_sql(self.tenant.pool, "update services set redirect_uris = %s where id = %s", list(uris), self.service)


def claims(tokens: dict[str, Any]) -> dict[str, Any]:
    decoded: dict[str, Any] = jwt.decode(tokens["access_token"], options={"verify_signature": False})
    return decoded


async def add_relying_party(tenant: Tenant, browser: FakeBrowser, slug: str = "shop", service_type: str = "web") -> RelyingParty:
    """Add an application to the organization, with one redirect URI."""
    service = await add_service(tenant.pool, tenant.org, slug, service_type, secret=SECRET)
    context = await service_context(tenant.pool, service)
    secret = None if context.is_public else SECRET
    return RelyingParty(tenant, browser, service, slug, context.client_id, f"https://{slug}.example.com/callback", secret)


async def sign_in_browser(
    relying_party: RelyingParty,
    account: Account,
    *,
    provider: str | None = "websuite",
    is_known: bool = True,
    second_factor: bool = False,
) -> UUID:
    """Sign the account in in the application's browser, without hashing. Return the session id.

    Unless `is_known` is false, the account already uses the service.
    """
    ports, cookie = relying_party.tenant.ports, new_secret()
    now, session_id = ports.clock.now(), new_id()
    first = Proof(None, now) if provider is None else first_proof(provider, now)
    columns = columns_of((first, Proof(Method.TOTP, now)) if second_factor else (first,))
    await run_sql(
        relying_party.tenant.pool,
        f"""
        insert into sessions (id, user_id, created_at, expires_at, ends_at, address, agent, browser_hash, {", ".join(columns)})
        values (%s, %s, %s, %s, %s, '198.51.100.7', 'her browser', %s, {", ".join(["%s"] * len(columns))})""",  # noqa: S608  (columns)
        session_id,
        account.id,
        now,
        now + ports.policy.refresh_token_ttl,
        now + ports.policy.session_absolute_ttl,
        digest(cookie),
        *columns.values(),
    )
    relying_party.browser.cookies["gatehouse-session"] = cookie
    if is_known:
        await add_service_user(ports, relying_party.service, account.id, signed_in=False)
    return session_id


# OpenID Connect


def path_of(application: RelyingParty, **changes: str | None) -> str:
    """Return an authorization request's path and query with the scope `openid`."""
    return application.request(**{"response_type": "code", "scope": "openid", **changes})


async def give_consent(application: RelyingParty, account: Account, *scope: Scope) -> None:
    """Store the user's consent to these scopes for the application, by default to all scopes."""
    tenant = application.tenant
    async with tenant.ports.storage.transaction(by=SYSTEM) as tx:
        await tx.consents.add(tenant.org, application.service, account.id, scope or tuple(Scope), tenant.ports.clock.now())


def answer_fields(answer: Answer) -> dict[str, str]:
    """Return the fields in a redirect to the application."""
    return redirect_parts(answer)[1]


async def authorize(application: RelyingParty, **changes: str | None) -> dict[str, str]:
    """Send a request with `openid`, agree if a page asks, and return the response to the application."""
    path = path_of(application, **changes)
    answer = await application.browser.open(path)
    if answer.status == 200:
        answer = await application.browser.answer(answer, "continue")
    return answer_fields(answer)


async def openid_tokens(application: RelyingParty, **changes: str | None) -> dict[str, Any]:
    """Return the tokens that the application gets with `openid`. The user agrees if a page asks."""
    answer = await application.exchange((await authorize(application, **changes))["code"])
    assert answer.status == 200, answer.text
    tokens: dict[str, Any] = answer.json
    return tokens
