"""The external identity providers, over HTTP: `codehost` by plain OAuth, `websuite` and `officesuite` by OpenID Connect (security.md O-8,
W-2; RFC 6749, RFC 7636, RFC 9207, OpenID Connect Core).

Each is asked at the addresses of the operator's settings and nowhere else. What is raised and logged is one of a few sentences of ours.
"""

import re
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NoReturn
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import structlog

from adapters.crypto import IdTokenInvalid, IdTokenKeyUnknown, read_id_token
from adapters.http.upstream import UpstreamFailed, UpstreamHttp, decoded, read
from core.kernel.errors import ProviderFailed
from core.kernel.providers import (
    SUPPORTS_REAUTHENTICATION,
    AuthenticationRequest,
    FederatedIdentity,
    ReauthenticationNotConfirmed,
    Provider,
    ProviderClient,
    ProviderTokens,
)
from core.kernel.values import Email, EmailInvalid, digest
from ports.observe import Clock

if TYPE_CHECKING:
    import httpx

log = structlog.get_logger("providers")

DEADLINE: Final = 10.0  # seconds, for all that is asked of a provider about one person, and for the wait until it is one's turn
AT_ONCE: Final = 50  # so that a provider that keeps us waiting does not pile up sockets
LONGEST_TOKEN: Final = 16 * 1024
SKEW: Final = timedelta(minutes=1)  # by which a provider's clock may differ from ours
KEYS_KEPT: Final = timedelta(hours=1)
KEYS_ASKED_AGAIN: Final = timedelta(minutes=1)  # at the earliest, for a key that is not among those that are kept
LONGEST_LIFE: Final = 10 * 365 * 86400  # seconds that a token is good for at most, or the time would be past what a time can be
_SCOPE: Final = re.compile(r"[!#-\[\]-~]{1,255}")  # RFC 6749 section 3.3; what is none is passed over
# What tells who somebody is, and no more (decisions, point 102).
IDENTIFYING: Final[Mapping[Provider, tuple[str, ...]]] = {
    Provider.CODEHOST: ("read:user", "user:email"),
    Provider.WEBSUITE: ("openid", "email"),
    Provider.OFFICESUITE: ("openid", "email"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderSettings:
    """What the operator says of a provider. `client` is the platform's, None where services alone have credentials there; `scopes` are
    asked for beside those that identify the person. `emails_url` is codehost's, `issuer` and `jwks_url` are those of the others."""

    client: ProviderClient | None
    authorize_url: str
    token_url: str
    userinfo_url: str
    scopes: tuple[str, ...] = ()
    emails_url: str = ""
    issuer: str = ""
    jwks_url: str = ""


@dataclass(slots=True)
class _Kept:
    """The keys that a provider publishes."""

    keys: Sequence[Mapping[str, Any]]
    asked_at: datetime


class HttpProviders:
    """ports.outside.IdentityProviders."""

    def __init__(self, settings: Mapping[Provider, ProviderSettings], clock: Clock, *, deadline: float = DEADLINE) -> None:
        self._settings = settings
        self._clock = clock
        self._exchanges = UpstreamHttp(deadline, AT_ONCE)
        self._keys: dict[Provider, _Kept] = {}

    def knows(self, provider: Provider) -> bool:
        return provider in self._settings

    def platform_client(self, provider: Provider) -> ProviderClient | None:
        settings = self._settings.get(provider)
        return None if settings is None else settings.client

    def is_issuer(self, provider: Provider, issuer: str) -> bool:
        settings = self._settings.get(provider)
        if settings is None:
            return False
        if settings.issuer:
            return issuer == settings.issuer
        return _origin(issuer) == _origin(settings.authorize_url)  # plain OAuth has no name for it that we could know

    def address(self, provider: Provider, asking: AuthenticationRequest) -> str:
        settings = self._settings[provider]
        wanted = settings.scopes if asking.scopes is None else tuple(asking.scopes)
        fields = {
            "response_type": "code",
            "client_id": asking.client.client_id,
            "redirect_uri": asking.redirect_uri,
            "scope": " ".join(dict.fromkeys((*IDENTIFYING[provider], *wanted))),
            "state": asking.state,
            "code_challenge": _challenge(asking.code_verifier),
            "code_challenge_method": "S256",
        }
        if settings.issuer:
            fields["nonce"] = asking.nonce
        parts = urlsplit(settings.authorize_url)
        configured = parts.query.split("&")
        if asking.fresh_since is not None and provider in SUPPORTS_REAUTHENTICATION:
            fields |= {"prompt": "login", "max_age": "0"}
            configured = [each for each in configured if each.partition("=")[0] not in ("prompt", "max_age")]
        return urlunsplit(parts._replace(query="&".join(filter(None, (*configured, urlencode(fields))))))

    async def vouch(self, provider: Provider, asking: AuthenticationRequest, code: str) -> FederatedIdentity:
        fields = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": asking.redirect_uri,
            "code_verifier": asking.code_verifier,
        }
        async with self._conversation(provider) as talk:
            answer = await talk.ask_for_tokens(asking.client, fields)
            tokens = self._tokens(provider, answer, asking.scopes)
            if self._settings[provider].issuer:
                return await self._by_id_token(provider, talk, asking, answer, tokens)
            return await self._by_profile(provider, talk, tokens)

    async def refresh(self, provider: Provider, client: ProviderClient, refresh_token: str) -> ProviderTokens:
        async with self._conversation(provider) as talk:
            answer = await talk.ask_for_tokens(client, {"grant_type": "refresh_token", "refresh_token": refresh_token})
            return self._tokens(provider, answer, (), old=refresh_token)

    @asynccontextmanager
    async def _conversation(self, provider: Provider) -> AsyncIterator["_Conversation"]:
        """All that a provider is asked at once, within the deadline. What goes wrong is ProviderFailed, and told in the log."""
        try:
            settings = self._settings.get(provider) or _fail("it is not set up")
            try:
                async with self._exchanges.conversation() as client:
                    yield _Conversation(client, settings)
            except UpstreamFailed as failure:
                _fail(str(failure))
        except ProviderFailed as failure:
            log.warning("provider_failed", provider=provider.value, reason=str(failure))
            raise

    def _tokens(self, provider: Provider, answer: Mapping[str, Any], asked: Sequence[str] | None, old: str | None = None) -> ProviderTokens:
        type_ = answer.get("token_type", "bearer")
        if not isinstance(type_, str) or type_.lower() != "bearer":
            _fail("the token endpoint gave a token of a kind that is not known")
        refresh_token = answer.get("refresh_token") or old
        scopes = answer.get("scope")
        if isinstance(scopes, str):  # codehost has commas between them, the standard has spaces (RFC 6749 section 3.3)
            granted = tuple(scope for scope in scopes.replace(",", " ").split() if _SCOPE.fullmatch(scope))
        else:  # then they are those that were asked for (section 5.1)
            wanted = self._settings[provider].scopes if asked is None else tuple(asked)
            granted = () if old is not None else tuple(dict.fromkeys((*IDENTIFYING[provider], *wanted)))
        return ProviderTokens(
            access_token=_token(answer.get("access_token"), "the token endpoint gave no access token"),
            refresh_token=None if refresh_token is None else _token(refresh_token, "the token endpoint gave no usable refresh token"),
            expires_at=self._expiry(answer.get("expires_in")),
            scopes=granted,
        )

    def _expiry(self, seconds: object) -> datetime | None:
        if isinstance(seconds, str) and seconds.isascii() and seconds.isdigit() and len(seconds) <= 10:
            seconds = int(seconds)  # as forms have it
        if not isinstance(seconds, int) or isinstance(seconds, bool) or seconds <= 0:
            return None
        return self._clock.now() + timedelta(seconds=min(seconds, LONGEST_LIFE))

    async def _by_id_token(
        self, provider: Provider, talk: "_Conversation", asking: AuthenticationRequest, answer: Mapping[str, Any], tokens: ProviderTokens
    ) -> FederatedIdentity:
        settings = self._settings[provider]
        id_token = _token(answer.get("id_token"), "the token endpoint gave no ID token")
        claims = await self._read(provider, talk, id_token, asking)
        if asking.fresh_since is not None and not _is_fresh(claims, asking.fresh_since, self._clock.now()):
            log.warning("provider_did_not_ask_again", provider=provider.value)
            raise ReauthenticationNotConfirmed
        subject, email, verified = claims["sub"], claims.get("email"), claims.get("email_verified")
        if email is None:
            profile = await talk.get(settings.userinfo_url, tokens.access_token)
            # Or it could be about somebody else (OpenID Connect Core section 5.3.2).
            if not isinstance(profile, dict) or profile.get("sub") != subject:
                _fail("the user info endpoint answers about somebody else")
            email, verified = profile.get("email"), profile.get("email_verified")
        address = _email(email)
        # officesuite says of no address that it was verified, whatever its tokens hold (decisions, point 101).
        asserted = provider is not Provider.OFFICESUITE and verified is True and address is not None
        return FederatedIdentity(settings.issuer, subject, address, asserted, tokens, is_fresh=asking.fresh_since is not None)

    async def _read(self, provider: Provider, talk: "_Conversation", token: str, asking: AuthenticationRequest) -> dict[str, Any]:
        """The ID token's claims. Keys are asked for when none are kept that are young enough, and for one that is unknown once more."""
        settings, now = self._settings[provider], self._clock.now()

        def read(keys: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
            return read_id_token(
                token, keys, issuer=settings.issuer, client_id=asking.client.client_id, nonce=asking.nonce, now=self._clock.now()
            )

        try:
            kept = self._keys.get(provider)
            if kept is not None and now < kept.asked_at + KEYS_KEPT:
                try:
                    return read(kept.keys)
                except IdTokenKeyUnknown:
                    if now < kept.asked_at + KEYS_ASKED_AGAIN:
                        raise
            found = await talk.get(settings.jwks_url)
            keys = found.get("keys") if isinstance(found, dict) else None
            if not isinstance(keys, list) or not all(isinstance(key, dict) for key in keys):
                _fail("the keys of the provider cannot be read")
            self._keys[provider] = _Kept(keys, now)
            return read(keys)
        except IdTokenInvalid as invalid:
            _fail(str(invalid))

    async def _by_profile(self, provider: Provider, talk: "_Conversation", tokens: ProviderTokens) -> FederatedIdentity:
        settings = self._settings[provider]
        profile = await talk.get(settings.userinfo_url, tokens.access_token)
        number = profile.get("id") if isinstance(profile, dict) else None
        if not isinstance(number, int) or isinstance(number, bool) or number <= 0:
            _fail("the user endpoint does not say who it is about")
        listed = await talk.get(settings.emails_url, tokens.access_token)
        if not isinstance(listed, list):
            _fail("the emails endpoint gave no list")
        primary = next((each for each in listed if isinstance(each, dict) and each.get("primary") is True), {})
        address = _email(primary.get("email"))
        verified = address is not None and primary.get("verified") is True
        return FederatedIdentity(_origin(settings.userinfo_url), str(number), address, verified, tokens)


class _Conversation:
    """What is said to one provider about one person, over as few connections as it takes."""

    def __init__(self, client: "httpx.AsyncClient", settings: ProviderSettings) -> None:
        self._client = client
        self._settings = settings

    async def ask_for_tokens(self, client: ProviderClient, fields: Mapping[str, str]) -> Mapping[str, Any]:
        """What the token endpoint gives. Some answer an error with status 200."""
        # The secret goes into the body, where all three of them take it (RFC 6749 section 2.3.1).
        sent = {**fields, "client_id": client.client_id, "client_secret": client.client_secret}
        async with self._client.stream("POST", self._settings.token_url, data=sent) as response:
            raw = await read(response)
        answer: object
        if response.headers.get("Content-Type", "").partition(";")[0].strip().lower() == "application/x-www-form-urlencoded":
            try:
                answer = dict(parse_qsl(raw.decode(), max_num_fields=100))
            except ValueError:
                _fail("the token endpoint's answer cannot be read")
        else:
            answer = decoded(raw)
        if not isinstance(answer, dict):
            _fail("the token endpoint's answer cannot be read")
        if response.status_code != 200 or "error" in answer:
            _fail("the token endpoint refused" if response.status_code < 500 else "the token endpoint failed")
        return answer

    async def get(self, url: str, access_token: str | None = None) -> object:
        """What is there, in JSON, for whom the token is, if one is given."""
        headers = {} if access_token is None else {"Authorization": f"Bearer {access_token}"}
        async with self._client.stream("GET", url, headers=headers) as response:
            raw = await read(response)
        if response.status_code != 200:
            _fail("an endpoint beside the token endpoint refused, or failed")
        return decoded(raw)


def _token(value: object, problem: str) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_TOKEN or not value.isascii() or not value.isprintable():
        _fail(problem)
    return value


def _is_fresh(claims: Mapping[str, Any], since: datetime, now: datetime) -> bool:
    """Whether the person has shown who they are since then; not every provider says when (OpenID Connect Core section 2). A time that is
    still to come is none, and would be late enough for every application."""
    if "auth_time" not in claims:
        return True
    at = claims["auth_time"]
    return isinstance(at, int | float) and (since - SKEW).timestamp() <= at <= (now + SKEW).timestamp()


def _email(value: object) -> Email | None:
    try:
        return Email.parse(value) if isinstance(value, str) else None
    except EmailInvalid:
        return None


def _challenge(verifier: str) -> str:
    """RFC 7636 section 4.2."""
    return urlsafe_b64encode(digest(verifier)).rstrip(b"=").decode()


def _origin(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    return f"{parts.scheme}://{parts.netloc}"


def _fail(reason: str) -> NoReturn:
    """With a reason for the operator's log, none of whose words are the provider's."""
    raise ProviderFailed(reason) from None
