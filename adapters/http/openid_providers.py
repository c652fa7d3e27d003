"""HTTP client of the OpenID providers of organizations.

An organization chooses the issuer, and its metadata choose the other URLs. So all requests go through the guard (security W-1, W-2).
Sources: OpenID Connect Core, OpenID Connect Discovery, RFC 6749, RFC 7523, RFC 9207.
"""

import base64
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Hashable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, Final, NoReturn
from urllib.parse import quote_plus, urlencode
from uuid import UUID

import trio

from adapters.crypto import IdTokenInvalid, is_usable_key, read_id_token, read_logout_token, sign_assertion
from adapters.http.provider_keys import CACHE_TTL, OUR_REQUEST, Caches, Keys, ProviderKeys
from adapters.http.upstream import PLACE_WITHIN, UpstreamFailed, parse_json
from core.federation.connections.model.answers import names_received
from core.federation.connections.model.openid import (
    MAX_ANSWER_SIZE,
    MAX_HEADER_TOKEN,
    CodeRequest,
    OpenIdAnswer,
    OpenIdAnswerRefused,
    OpenIdClient,
    OpenIdFault,
    OpenIdProviderMetadata,
    OpenIdProviderUnreachable,
    ProviderKey,
    ProviderLogout,
    add_userinfo,
    check_authentication_time,
    claim_names,
    is_provider_url,
    parse_logout,
    parse_metadata,
)
from core.federation.connections.model.settings import ProviderAuthentication
from core.kernel.outbound import Reply, SendFailed, SendFailure
from core.kernel.shares import FairPlaces, current_share
from core.kernel.values import is_printable, new_id
from ports.observe import Clock
from ports.outside import HttpSender

DEADLINE: Final = 10.0  # seconds for all requests about one user
FETCH_WITHIN: Final = 5.0  # seconds for metadata or keys
OURS, STRANGERS = "ours", "strangers"  # who causes a request: anyone can begin a sign-in, or send a logout token
MAX_CONCURRENT: Final = {OURS: 300, STRANGERS: 100}  # at the same time, each with a socket
MAX_OF_ORGANIZATION: Final = 6
MAX_OF_CONNECTION: Final = 3  # so that one slow provider leaves places for other connections of its organization
MAX_KEYS: Final = 50
MAX_KEY_ID: Final = 255
MAX_LOGOUT_TOKEN: Final = 16 * 1024  # any client can send one
FAILURE_PAUSE: Final = timedelta(seconds=5)  # after metadata could not be fetched: anyone can begin a sign-in
OWN_ALGORITHMS: Final = ("RS256",)  # of tokens that we have signed
ASSERTION_TTL: Final = timedelta(seconds=60)
ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"  # RFC 7523 section 2.2
DISCOVERY_PATH: Final = "/.well-known/openid-configuration"
# The members of a published key that verify signatures. The others could fill the memory.
_KEY_MEMBERS: Final = ("kty", "kid", "use", "alg", "n", "e", "crv", "x", "y")
_WRONG_CODE: Final = "no-code-of-yours"


class HttpOpenIdProviders:
    """Implements `ports.outside.OpenIdProviders`."""

    def __init__(self, sender: HttpSender, clock: Clock, *, deadline: float = DEADLINE) -> None:
        self._sender = sender
        self._clock = clock
        self._deadline = deadline
        limits = {"of_group": MAX_OF_ORGANIZATION, "of_share": MAX_OF_CONNECTION}
        self._places = {by: FairPlaces(trio.Event, total, **limits) for by, total in MAX_CONCURRENT.items()}
        self._providers: Caches[tuple[UUID, str], _Provider] = Caches(clock, _Provider)

    async def discover(self, client: OpenIdClient, *, refresh: bool = False) -> OpenIdProviderMetadata:
        cached = None if refresh else self._provider(client).metadata.cached()
        if cached is not None:
            return cached

        async def fetch() -> OpenIdProviderMetadata:  # only the request that fetches has a place
            async with self._connect(client, OURS if refresh else STRANGERS):
                return await self._fetch_metadata(client)

        return await self._provider(client).metadata.get(fetch, refresh=refresh)

    async def exchange(
        self, client: OpenIdClient, metadata: OpenIdProviderMetadata, request: CodeRequest, code: str, needed: Collection[str]
    ) -> OpenIdAnswer:
        async with self._connect(client) as provider:
            answer = await self._request_tokens(client, metadata, request, code)
            id_token = _token(answer.get("id_token"))

            claims = await self._verify(provider, metadata, lambda keys: self._read(client, request, id_token, keys, metadata.algorithms))
            with names_received(claim_names(claims)):
                if request.fresh_since is not None and not request.accepts_silent:
                    check_authentication_time(claims, request.fresh_since, self._clock.now())
                if metadata.userinfo_endpoint is not None and not claims.keys() >= set(needed):
                    access_token = _token(answer.get("access_token"))
                    claims = add_userinfo(claims, await self._request_userinfo(metadata.userinfo_endpoint, access_token))
            return OpenIdAnswer(claims, id_token, metadata.end_session_endpoint)

    def read_token(self, client: OpenIdClient, request: CodeRequest, id_token: str, keys: Sequence[Mapping[str, str]]) -> Mapping[str, Any]:
        try:
            return self._read(client, request, id_token, keys, OWN_ALGORITHMS)
        except IdTokenInvalid as invalid:
            raise OpenIdAnswerRefused(invalid.fault) from None

    def _read(self, client: OpenIdClient, request: CodeRequest, id_token: str, keys: Keys, algorithms: Collection[str]) -> dict[str, Any]:
        now = self._clock.now()
        return read_id_token(
            id_token, keys, issuer=client.issuer, client_id=client.client_id, nonce=request.nonce, now=now, algorithms=algorithms
        )

    async def check_client(self, client: OpenIdClient, metadata: OpenIdProviderMetadata, redirect_uri: str) -> None:
        request = CodeRequest(redirect_uri=redirect_uri, state="", nonce="", code_verifier=_WRONG_CODE)
        async with self._connect(client):
            try:
                await self._request_tokens(client, metadata, request, _WRONG_CODE)
            except OpenIdAnswerRefused as refusal:
                if refusal.fault is not OpenIdFault.CODE:
                    raise

    async def keys(self, client: OpenIdClient, metadata: OpenIdProviderMetadata) -> Sequence[ProviderKey]:
        async with self._connect(client):
            keys = await self._fetch_keys(metadata)
        return [ProviderKey(_text(key.get("kid")), _text(key.get("kty")), is_usable_key(key, metadata.algorithms)) for key in keys]

    async def read_logout(self, client: OpenIdClient, metadata: OpenIdProviderMetadata, token: str) -> ProviderLogout:
        def verify(keys: Keys) -> dict[str, Any]:
            return read_logout_token(
                _token(token), keys, issuer=metadata.issuer, client_id=client.client_id, algorithms=metadata.algorithms
            )

        if len(token) > MAX_LOGOUT_TOKEN:
            raise OpenIdAnswerRefused(OpenIdFault.LOGOUT)
        async with self._connect(client, STRANGERS) as provider:
            return parse_logout(await self._verify(provider, metadata, verify, current_share.get()), self._clock.now())

    @asynccontextmanager
    async def _connect(self, client: OpenIdClient, by: str = OURS) -> AsyncIterator["_Provider"]:
        """Wait for a place of the connection, and limit the time of all requests from then on.

        Client addresses take turns, because a stranger can send codes that only the provider refuses (security N-11).

        Raises: OpenIdProviderUnreachable without a place, or after the deadline; Limited.
        """
        provider, share = self._provider(client), (client.org_id or client.connection_id, client.connection_id)
        try:
            with ExitStack() as taken:
                with trio.fail_after(min(PLACE_WITHIN, self._deadline)):
                    taken.enter_context(await provider.turns[by].take())
                    taken.enter_context(await self._places[by].take(share))
                with trio.fail_after(self._deadline):
                    yield provider
        except trio.TooSlowError:
            raise OpenIdProviderUnreachable(SendFailure.TIMED_OUT) from None

    def _provider(self, client: OpenIdClient) -> "_Provider":
        # Connections never share keys: the owner of one could make its provider publish another's keys under other ids.
        return self._providers.of((client.connection_id, client.issuer))

    # Requests

    async def _fetch_metadata(self, client: OpenIdClient) -> OpenIdProviderMetadata:
        if not is_provider_url(client.issuer, client.issuer):
            raise OpenIdAnswerRefused(OpenIdFault.METADATA_ISSUER)
        # OpenID Connect Discovery section 4.1: without the slash at the end of the issuer
        url = f"{client.issuer.removesuffix('/')}{DISCOVERY_PATH}"
        return parse_metadata(client.issuer, _parse(await self._get(url)))

    async def _fetch_keys(self, metadata: OpenIdProviderMetadata) -> Keys:
        keys = _parse(await self._get(metadata.jwks_uri)).get("keys")
        if not isinstance(keys, list) or not all(isinstance(key, dict) for key in keys):
            raise OpenIdAnswerRefused(OpenIdFault.JWKS)
        signing = [key for key in keys if key.get("kty") in ("RSA", "EC") and key.get("use", "sig") == "sig"]
        return [{name: key[name] for name in _KEY_MEMBERS if name in key} for key in signing[:MAX_KEYS]]

    async def _verify(
        self,
        provider: "_Provider",
        metadata: OpenIdProviderMetadata,
        verify: Callable[[Keys], dict[str, Any]],
        cause: Hashable = OUR_REQUEST,
    ) -> dict[str, Any]:
        """Return the claims of a token. If none of the cached keys verifies it, the provider may have replaced them."""
        try:
            return await provider.keys.verify(lambda: self._fetch_keys(metadata), verify, cause)
        except IdTokenInvalid as invalid:
            with names_received(claim_names(invalid.claims)):
                raise OpenIdAnswerRefused(invalid.fault) from None

    async def _request_tokens(
        self, client: OpenIdClient, metadata: OpenIdProviderMetadata, request: CodeRequest, code: str
    ) -> Mapping[str, Any]:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": request.redirect_uri,
            "code_verifier": request.code_verifier,
        }
        credentials, headers = self._authenticate(client, metadata)
        body = urlencode({**form, **credentials}).encode()
        headers = {"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded", **headers}
        reply = await self._receive(self._sender.post(metadata.token_endpoint, body, headers, self._deadline, at_most=MAX_ANSWER_SIZE))
        answer = _parse(reply, statuses=(200, 400, 401, 403))
        if reply.status != 200 or "error" in answer:
            _refuse_tokens(reply.status, answer.get("error"))
        type_ = answer.get("token_type")
        if not isinstance(type_, str) or type_.lower() != "bearer":
            raise OpenIdAnswerRefused(OpenIdFault.TOKENS)
        return answer

    def _authenticate(self, client: OpenIdClient, metadata: OpenIdProviderMetadata) -> tuple[dict[str, str], dict[str, str]]:
        """Return our credentials for the token endpoint: the fields and the headers. Raises: OpenIdAnswerRefused without any."""
        match client.authentication:
            case ProviderAuthentication.PRIVATE_KEY_JWT if client.key is not None:
                now = self._clock.now()
                claims = {
                    "iss": client.client_id,
                    "sub": client.client_id,
                    # Each connection has a key of its own, so no other provider accepts the assertion. Okta and Entra ID want this
                    # audience.
                    "aud": metadata.token_endpoint,
                    "jti": str(new_id()),
                    "iat": int(now.timestamp()),
                    "exp": int((now + ASSERTION_TTL).timestamp()),
                }
                assertion = sign_assertion(client.key, claims)
                return {"client_id": client.client_id, "client_assertion_type": ASSERTION_TYPE, "client_assertion": assertion}, {}
            case ProviderAuthentication.POST if client.client_secret is not None:
                return {"client_id": client.client_id, "client_secret": client.client_secret}, {}
            case ProviderAuthentication.BASIC if client.client_secret is not None:
                both = f"{quote_plus(client.client_id)}:{quote_plus(client.client_secret)}"  # RFC 6749 section 2.3.1
                return {}, {"Authorization": f"Basic {base64.b64encode(both.encode()).decode()}"}
        raise OpenIdAnswerRefused(OpenIdFault.CLIENT)

    async def _request_userinfo(self, url: str, access_token: str) -> Mapping[str, Any]:
        reply = await self._get(url, headers={"Authorization": f"Bearer {access_token}"})
        try:
            return _parse(reply)
        except OpenIdAnswerRefused as refusal:
            if refusal.fault is OpenIdFault.TOO_LARGE:
                raise
            is_long = refusal.fault is OpenIdFault.STATUS and len(access_token) > MAX_HEADER_TOKEN
            raise OpenIdAnswerRefused(OpenIdFault.LONG_ACCESS_TOKEN if is_long else OpenIdFault.USERINFO) from None

    async def _get(self, url: str, *, headers: Mapping[str, str] | None = None) -> Reply:
        headers = {"Accept": "application/json", **(headers or {})}
        return await self._receive(self._sender.get(url, min(FETCH_WITHIN, self._deadline), headers=headers, at_most=MAX_ANSWER_SIZE))

    async def _receive(self, request: Awaitable[Reply]) -> Reply:
        try:
            return await request
        except SendFailed as failure:
            raise OpenIdProviderUnreachable(failure.reason) from None


class _Provider:
    """The cached metadata and keys of one provider."""

    def __init__(self, clock: Clock) -> None:
        self.metadata = _CachedMetadata(clock)
        self.keys = ProviderKeys(clock)
        self.turns = {by: FairPlaces(trio.Event, MAX_OF_CONNECTION, of_share=MAX_OF_CONNECTION) for by in MAX_CONCURRENT}


class _CachedMetadata:
    """The metadata of one provider. Concurrent requests share one fetch, and a failure for a few seconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = trio.Lock()
        self._metadata: OpenIdProviderMetadata | None = None
        self._fetched_at: datetime | None = None
        self._failure: OpenIdAnswerRefused | OpenIdProviderUnreachable | None = None

    def cached(self) -> OpenIdProviderMetadata | None:
        """Return the metadata that were fetched less than CACHE_TTL ago, or None. Raises: the failure of the last seconds."""
        now = self._clock.now()
        if self._fetched_at is None:
            return None
        if self._failure is not None and now < self._fetched_at + FAILURE_PAUSE:
            raise self._failure.with_traceback(None) from None
        return self._metadata if self._failure is None and now < self._fetched_at + CACHE_TTL else None

    async def get(self, fetch: Callable[[], Awaitable[OpenIdProviderMetadata]], *, refresh: bool) -> OpenIdProviderMetadata:
        """Return the metadata. Raises: OpenIdAnswerRefused, OpenIdProviderUnreachable."""
        async with self._lock:
            cached = None if refresh else self.cached()
            if cached is not None:
                return cached
            try:
                metadata = await fetch()
            except (OpenIdAnswerRefused, OpenIdProviderUnreachable) as failure:
                self._failure, self._fetched_at = failure, self._clock.now()
                raise
            self._metadata, self._failure, self._fetched_at = metadata, None, self._clock.now()
            return metadata


def _parse(reply: Reply, statuses: Collection[int] = (200,)) -> Mapping[str, Any]:
    """Return the JSON object in a response. Raises: OpenIdAnswerRefused."""
    if reply.status not in statuses:
        raise OpenIdAnswerRefused(OpenIdFault.STATUS)
    if len(reply.body) >= MAX_ANSWER_SIZE:
        raise OpenIdAnswerRefused(OpenIdFault.TOO_LARGE)
    try:
        answer = parse_json(reply.body)
    except UpstreamFailed:
        answer = None
    if not isinstance(answer, dict):
        raise OpenIdAnswerRefused(OpenIdFault.MALFORMED)
    return answer


def _refuse_tokens(status: int, error: object) -> NoReturn:
    """Raise the reason for which the token endpoint refused (RFC 6749 section 5.2)."""
    if error in ("invalid_client", "unauthorized_client") or status == 401:
        raise OpenIdAnswerRefused(OpenIdFault.CLIENT)
    raise OpenIdAnswerRefused(OpenIdFault.CODE if error == "invalid_grant" else OpenIdFault.REQUEST)


def _token(value: object) -> str:
    if not isinstance(value, str) or not value or not value.isascii() or not value.isprintable():
        raise OpenIdAnswerRefused(OpenIdFault.TOKENS)
    return value


def _text(value: object) -> str | None:
    """Return a member of a key that pages may show, or None."""
    return value if isinstance(value, str) and 0 < len(value) <= MAX_KEY_ID and is_printable(value) else None
