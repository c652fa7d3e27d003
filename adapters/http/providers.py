"""HTTP clients of the external identity providers, which speak plain OAuth or OpenID Connect.

Only the URLs in the operator's settings are called (security O-8, W-2). Errors and log lines
contain only our own words, none of the provider's. Sources: RFC 6749, RFC 7636, RFC 9207, OpenID
Connect Core.
"""

import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NoReturn
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import structlog
import trio

from adapters.crypto import IdTokenInvalid, read_id_token
from adapters.http.provider_keys import Keys, ProviderKeys
from adapters.http.upstream import UpstreamFailed, UpstreamHttp, parse_json, read_body
from core.federation.oauth.model.authorization import s256_challenge
from core.kernel.connections import Connection, ConnectionProtocol, ConnectionSlug
from core.kernel.errors import ProviderFailed
from core.kernel.providers import AuthenticationRequest, FederatedIdentity, ProviderClient, ProviderTokens, ReauthenticationNotConfirmed
from core.kernel.shares import FairPlaces
from core.kernel.values import Email, EmailInvalid
from ports.observe import Clock

if TYPE_CHECKING:
    import httpx

log = structlog.get_logger("providers")

DEADLINE: Final = 10.0  # seconds for all requests about one user
MAX_CONCURRENT: Final = 500  # users at the same time
MAX_OF_PROVIDER: Final = 50  # so that a slow provider does not pile up sockets, nor stop other providers
MAX_TOKEN_LENGTH: Final = 16 * 1024
CLOCK_SKEW: Final = timedelta(minutes=1)  # tolerated difference between a provider's clock and ours
MAX_TOKEN_SECONDS: Final = 10 * 365 * 86400  # longer lifetimes are cut, because the result could exceed the range of datetime
_SCOPE: Final = re.compile(r"[!#-\[\]-~]{1,255}")  # RFC 6749 section 3.3; other scopes are ignored
# The scopes that identify the user, and give access to nothing else.
IDENTIFYING_SCOPES: Final[Mapping[ConnectionProtocol, tuple[str, ...]]] = {
    ConnectionProtocol.OAUTH: ("read:user", "user:email"),
    ConnectionProtocol.OIDC: ("openid", "email"),
}


class HttpProviders:
    """Implements `ports.outside.IdentityProviders`."""

    def __init__(self, connections: Iterable[Connection], clock: Clock, *, deadline: float = DEADLINE) -> None:
        self.connections = {connection.slug: connection for connection in connections}
        self._clock = clock
        self._http = UpstreamHttp(deadline, FairPlaces(trio.Event, MAX_CONCURRENT, of_share=MAX_OF_PROVIDER))
        self._keys = {slug: ProviderKeys(clock) for slug in self.connections}

    def authorization_url(self, provider: ConnectionSlug, request: AuthenticationRequest) -> str:
        connection = self.connections[provider]
        settings = connection.settings
        scopes = settings.scopes if request.scopes is None else tuple(request.scopes)
        fields = {
            "response_type": "code",
            "client_id": request.client.client_id,
            "redirect_uri": request.redirect_uri,
            "scope": " ".join(dict.fromkeys((*IDENTIFYING_SCOPES[connection.protocol], *scopes))),
            "state": request.state,
            "code_challenge": s256_challenge(request.code_verifier),
            "code_challenge_method": "S256",
        }
        if connection.protocol is ConnectionProtocol.OIDC:
            fields["nonce"] = request.nonce
        parts = urlsplit(settings.authorize_url)
        configured = parts.query.split("&")
        if request.fresh_since is not None and connection.can_reauthenticate:
            fields |= {"prompt": "login", "max_age": "0"}
            configured = [field for field in configured if field.partition("=")[0] not in ("prompt", "max_age")]
        return urlunsplit(parts._replace(query="&".join(filter(None, (*configured, urlencode(fields))))))

    async def identify(self, provider: ConnectionSlug, request: AuthenticationRequest, code: str) -> FederatedIdentity:
        fields = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": request.redirect_uri,
            "code_verifier": request.code_verifier,
        }
        async with self._connect(provider) as requests:
            answer = await requests.request_tokens(request.client, fields)
            tokens = self._tokens(requests.connection, answer, request.scopes)
            if requests.connection.protocol is ConnectionProtocol.OIDC:
                return await self._identify_by_id_token(requests, request, answer, tokens)
            return await self._identify_by_profile(requests, tokens)

    async def refresh(self, provider: ConnectionSlug, client: ProviderClient, refresh_token: str) -> ProviderTokens:
        async with self._connect(provider) as requests:
            answer = await requests.request_tokens(client, {"grant_type": "refresh_token", "refresh_token": refresh_token})
            return self._tokens(requests.connection, answer, (), old=refresh_token)

    @asynccontextmanager
    async def _connect(self, provider: ConnectionSlug) -> AsyncIterator["_Requests"]:
        """Open the way for all requests about one user, within the deadline. Failures are logged and raised as ProviderFailed."""
        try:
            connection = self.connections.get(provider) or _fail("it is not configured")
            async with self._http.connect(("provider", provider)) as client:
                yield _Requests(client, connection)
        except (UpstreamFailed, ProviderFailed) as failure:
            log.warning("provider_failed", provider=provider, reason=str(failure))
            _fail(str(failure))

    def _tokens(
        self, connection: Connection, answer: Mapping[str, Any], requested: Sequence[str] | None, old: str | None = None
    ) -> ProviderTokens:
        """Read the answer of the token endpoint. `requested` are the scopes of the request, `old` is the refresh token to keep."""
        type_ = answer.get("token_type", "bearer")
        if not isinstance(type_, str) or type_.lower() != "bearer":
            _fail("the token endpoint returned a token of an unknown type")
        refresh_token = answer.get("refresh_token") or old
        scopes = answer.get("scope")
        if isinstance(scopes, str):  # codehost separates them by commas, the standard by spaces (RFC 6749 section 3.3)
            granted = tuple(scope for scope in scopes.replace(",", " ").split() if _SCOPE.fullmatch(scope))
        else:  # without the field, they are the requested ones (RFC 6749 section 5.1)
            optional = connection.settings.scopes if requested is None else tuple(requested)
            granted = () if old is not None else tuple(dict.fromkeys((*IDENTIFYING_SCOPES[connection.protocol], *optional)))
        return ProviderTokens(
            access_token=_token(answer.get("access_token"), "the token endpoint returned no access token"),
            refresh_token=None if refresh_token is None else _token(refresh_token, "the token endpoint returned no usable refresh token"),
            expires_at=self._expiry(answer.get("expires_in")),
            scopes=granted,
        )

    def _expiry(self, seconds: object) -> datetime | None:
        if isinstance(seconds, str) and seconds.isascii() and seconds.isdigit() and len(seconds) <= 10:
            seconds = int(seconds)  # form-encoded answers contain strings
        if not isinstance(seconds, int) or isinstance(seconds, bool) or seconds <= 0:
            return None
        return self._clock.now() + timedelta(seconds=min(seconds, MAX_TOKEN_SECONDS))

    async def _identify_by_id_token(
        self, requests: "_Requests", request: AuthenticationRequest, answer: Mapping[str, Any], tokens: ProviderTokens
    ) -> FederatedIdentity:
        settings = requests.connection.settings
        id_token = _token(answer.get("id_token"), "the token endpoint returned no ID token")
        claims = await self._verify_id_token(requests, id_token, request)
        if request.fresh_since is not None and not _is_fresh(claims, request.fresh_since, self._clock.now()):
            log.warning("provider_did_not_ask_again", provider=requests.connection.slug)
            raise ReauthenticationNotConfirmed
        subject, email, verified = claims["sub"], claims.get("email"), claims.get("email_verified")
        if email is None:
            profile = await requests.get(settings.userinfo_url, tokens.access_token)
            # Without this check the answer could describe another user (OpenID Connect Core section
            # 5.3.2).
            if not isinstance(profile, dict) or profile.get("sub") != subject:
                _fail("the user info endpoint returned another user")
            email, verified = profile.get("email"), profile.get("email_verified")
        address = _email(email)
        email_verified = settings.verifies_emails and verified is True and address is not None
        return FederatedIdentity(settings.issuer, subject, address, email_verified, tokens, is_fresh=request.fresh_since is not None)

    async def _verify_id_token(self, requests: "_Requests", token: str, request: AuthenticationRequest) -> dict[str, Any]:
        """Verify an ID token and return its claims. If none of the cached keys verifies it, the provider may have replaced them."""
        settings, cache = requests.connection.settings, self._keys[requests.connection.slug]

        async def fetch() -> Keys:
            jwks = await requests.get(settings.jwks_url)
            keys = jwks.get("keys") if isinstance(jwks, dict) else None
            if not isinstance(keys, list) or not all(isinstance(key, dict) for key in keys):
                _fail("the keys of the provider cannot be read")
            return keys

        def verify(keys: Keys) -> dict[str, Any]:
            return read_id_token(
                token, keys, issuer=settings.issuer, client_id=request.client.client_id, nonce=request.nonce, now=self._clock.now()
            )

        try:
            return await cache.verify(fetch, verify)
        except IdTokenInvalid as invalid:
            _fail(str(invalid))

    async def _identify_by_profile(self, requests: "_Requests", tokens: ProviderTokens) -> FederatedIdentity:
        settings = requests.connection.settings
        profile = await requests.get(settings.userinfo_url, tokens.access_token)
        user_id = profile.get("id") if isinstance(profile, dict) else None
        if not isinstance(user_id, int) or isinstance(user_id, bool) or user_id <= 0:
            _fail("the user endpoint returned no user id")
        emails = await requests.get(settings.emails_url, tokens.access_token)
        if not isinstance(emails, list):
            _fail("the emails endpoint returned no list")
        primary = next((entry for entry in emails if isinstance(entry, dict) and entry.get("primary") is True), {})
        address = _email(primary.get("email"))
        verified = address is not None and primary.get("verified") is True
        issuer = urlsplit(settings.userinfo_url)  # as typed: identities are stored under this name
        return FederatedIdentity(f"{issuer.scheme}://{issuer.netloc}", str(user_id), address, verified, tokens)


class _Requests:
    """The requests to one provider about one user."""

    def __init__(self, client: "httpx.AsyncClient", connection: Connection) -> None:
        self._client = client
        self.connection = connection

    async def request_tokens(self, client: ProviderClient, fields: Mapping[str, str]) -> Mapping[str, Any]:
        """Send a request to the token endpoint and return its answer. Some providers return errors with status 200."""
        # The secret is in the body, because all three providers accept it there (RFC 6749 section
        # 2.3.1).
        form = {**fields, "client_id": client.client_id, "client_secret": client.client_secret}
        async with self._client.stream("POST", self.connection.settings.token_url, data=form) as response:
            raw = await read_body(response)
        answer: object
        if response.headers.get("Content-Type", "").partition(";")[0].strip().lower() == "application/x-www-form-urlencoded":
            try:
                answer = dict(parse_qsl(raw.decode(), max_num_fields=100))
            except ValueError:
                _fail("the token endpoint's answer cannot be read")
        else:
            answer = parse_json(raw)
        if not isinstance(answer, dict):
            _fail("the token endpoint's answer cannot be read")
        if response.status_code != 200 or "error" in answer:
            _fail("the token endpoint refused" if response.status_code < 500 else "the token endpoint failed")
        return answer

    async def get(self, url: str, access_token: str | None = None) -> object:
        """Return the JSON at this URL, with the access token of a user if there is one."""
        headers = {} if access_token is None else {"Authorization": f"Bearer {access_token}"}
        async with self._client.stream("GET", url, headers=headers) as response:
            raw = await read_body(response)
        if response.status_code != 200:
            _fail("an endpoint other than the token endpoint refused or failed")
        return parse_json(raw)


def _token(value: object, problem: str) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= MAX_TOKEN_LENGTH or not value.isascii() or not value.isprintable():
        _fail(problem)
    return value


def _is_fresh(claims: Mapping[str, Any], since: datetime, now: datetime) -> bool:
    """Return whether the user authenticated after `since`, or the provider does not say when (OpenID Connect Core section 2).

    A time in the future is refused, because every application would accept it as recent.
    """
    if "auth_time" not in claims:
        return True
    auth_time = claims["auth_time"]
    return isinstance(auth_time, int | float) and (since - CLOCK_SKEW).timestamp() <= auth_time <= (now + CLOCK_SKEW).timestamp()


def _email(value: object) -> Email | None:
    try:
        return Email.parse(value) if isinstance(value, str) else None
    except EmailInvalid:
        return None


def _fail(reason: str) -> NoReturn:
    """Raise an error with a reason for the operator's log, which must contain no words of the provider."""
    raise ProviderFailed(reason) from None
