"""HTTP client for identity providers. They speak OpenID Connect, and the operator's providers can speak plain OAuth instead.

An organization chooses the issuer, and the issuer's metadata choose the URLs. So all requests about the organization's users go through
the guard. For a platform provider, only the URLs in the operator's settings are called (security O-8, W-1, W-2).
Sources: OpenID Connect Core, OpenID Connect Discovery, RFC 6749, RFC 7523, RFC 9207.
"""

import base64
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Hashable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import quote_plus, urlencode
from uuid import UUID

import structlog
import trio

from adapters import crypto
from adapters.http import provider_answers, provider_keys
from adapters.http.upstream import PLACE_WITHIN
from core.federation.connections.model import openid
from core.federation.connections.model.answers import names_received
from core.federation.connections.model.platform import to_client
from core.federation.connections.model.settings import ProviderAuthentication
from core.kernel import connections, outbound, shares
from core.kernel.errors import ProviderFailed
from core.kernel.values import new_id
from ports.observe import Clock
from ports.outside import HttpSender

DEADLINE: Final = 10.0  # seconds for all requests about a user
FETCH_WITHIN: Final = 5.0  # seconds for a GET to an organization's provider
OURS, STRANGERS = "ours", "strangers"  # who causes a request: anyone can begin a sign-in, or send a logout token
PLATFORM: Final = "platform"  # all requests to platform providers
MAX_OF_ORGANIZATION: Final = 6
MAX_OF_CONNECTION: Final = 3  # so that a slow provider leaves places for its organization's other connections
MAX_OF_PLATFORM: Final = 50  # calls to a platform provider
# The most calls at the same time, with a socket for every call: in total, for an organization, for a connection.
PLACES: Final = {
    OURS: (300, MAX_OF_ORGANIZATION, MAX_OF_CONNECTION),
    STRANGERS: (100, MAX_OF_ORGANIZATION, MAX_OF_CONNECTION),
    PLATFORM: (500, MAX_OF_PLATFORM, MAX_OF_PLATFORM),
}
MAX_KEYS: Final = 50
MAX_LOGOUT_TOKEN: Final = 16 * 1024  # any client can send such a token
OPTIONAL_SHARE: Final = 0.8  # of the remaining time, for a request that a sign-in can go without
FAILURE_PAUSE: Final = timedelta(seconds=5)  # after metadata could not be fetched: anyone can begin a sign-in
OWN_ALGORITHMS: Final = ("RS256",)  # for tokens that we have signed
ASSERTION_TTL: Final = timedelta(seconds=60)
ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"  # RFC 7523 section 2.2
DISCOVERY_PATH: Final = "/.well-known/openid-configuration"
# The key members that verify signatures. All further members could fill the memory.
_KEY_MEMBERS: Final = ("kty", "kid", "use", "alg", "n", "e", "crv", "x", "y")
_WRONG_CODE: Final = "no-code-of-yours"

log = structlog.get_logger("providers")


class HttpOpenIdProviders:
    """Implements `ports.outside.OpenIdProviders`."""

    def __init__(self, sender: HttpSender, clock: Clock, *, unchecked: HttpSender | None = None, deadline: float = DEADLINE) -> None:
        """`unchecked` is the sender for the operator's URLs, which can have private addresses."""
        self._sender = sender
        self._unchecked = unchecked or sender
        self._clock = clock
        self._deadline = deadline
        self._places = {
            by: shares.FairPlaces(trio.Event, total, of_group=of_organization, of_share=of_connection)
            for by, (total, of_organization, of_connection) in PLACES.items()
        }
        self._providers: provider_keys.Caches[tuple[UUID, str], _Provider] = provider_keys.Caches(clock, _Provider)
        self._of_platform: provider_keys.Caches[tuple[UUID, str], _Provider] = provider_keys.Caches(
            clock, _Provider
        )  # organizations cannot displace these

    async def discover(self, client: openid.OpenIdClient, *, refresh: bool = False) -> openid.OpenIdProviderMetadata:
        if client.metadata is not None:
            return client.metadata
        cached = None if refresh else self._provider(client).metadata.cached()
        if cached is not None:
            return cached

        async def fetch() -> openid.OpenIdProviderMetadata:  # only the request that fetches has a place
            async with self._connect(client, OURS if refresh else STRANGERS):
                return await self._fetch_metadata(client)

        return await self._provider(client).metadata.get(fetch, refresh=refresh)

    async def exchange(
        self,
        client: openid.OpenIdClient,
        metadata: openid.OpenIdProviderMetadata,
        request: openid.CodeRequest,
        code: str,
        needed: Collection[str],
        wanted: Collection[str] = (),
    ) -> openid.OpenIdAnswer:
        async with self._connect(client) as provider:
            answer = await self._request_tokens(client, metadata, _to_fields(request, code))
            is_kept = client.provider is not None
            tokens = provider_answers.to_tokens(answer, openid.requested_scopes(metadata, request), self._clock.now()) if is_kept else None
            if not metadata.is_openid:
                return openid.OpenIdAnswer(
                    await self._request_profile(client, metadata, provider_answers.require_token(answer.get("access_token"))),
                    "",
                    None,
                    tokens,
                )
            id_token = provider_answers.require_token(answer.get("id_token"))

            def read(keys: provider_keys.Keys) -> dict[str, Any]:
                return self._read(client, request, id_token, keys, metadata.algorithms)

            claims = await self._verify(provider, client, metadata, read)
            with names_received(openid.claim_names(claims)):
                if request.fresh_since is not None and not request.accepts_silent:
                    openid.check_authentication_time(claims, request.fresh_since, self._clock.now(), client.clock_skew)
                missing = [name for name in (*needed, *wanted) if claims.get(name) is None]
                if metadata.userinfo_endpoint is not None and missing:
                    is_needed = not set(missing).isdisjoint(needed)
                    ask = self._require_userinfo if is_needed else self._try_userinfo
                    userinfo = await ask(client, metadata.userinfo_endpoint, answer.get("access_token"))
                    claims = claims if userinfo is None else openid.add_userinfo(claims, userinfo)
            return openid.OpenIdAnswer(claims, id_token, metadata.end_session_endpoint, tokens)

    async def refresh(
        self, connection: connections.Connection, client: connections.ProviderClient, refresh_token: str
    ) -> connections.ProviderTokens:
        own = to_client(connection, client)
        async with self._connect(own):
            fields = {"grant_type": "refresh_token", "refresh_token": refresh_token}
            answer = await self._request_tokens(own, await self.discover(own), fields)
            return provider_answers.to_tokens(answer, (), self._clock.now(), old=refresh_token)

    def read_token(
        self, client: openid.OpenIdClient, request: openid.CodeRequest, id_token: str, keys: Sequence[Mapping[str, str]]
    ) -> Mapping[str, Any]:
        try:
            return self._read(client, request, id_token, keys, OWN_ALGORITHMS)
        except crypto.IdTokenInvalid as invalid:
            raise openid.OpenIdAnswerRefused(invalid.fault, invalid.seconds_off) from None

    def _read(
        self, client: openid.OpenIdClient, request: openid.CodeRequest, id_token: str, keys: provider_keys.Keys, algorithms: Collection[str]
    ) -> dict[str, Any]:
        now = self._clock.now()
        return crypto.read_id_token(
            id_token,
            keys,
            issuer=client.issuer,
            client_id=client.client_id,
            nonce=request.nonce,
            now=now,
            algorithms=algorithms,
            skew=client.clock_skew,
        )

    async def check_client(self, client: openid.OpenIdClient, metadata: openid.OpenIdProviderMetadata, redirect_uri: str) -> None:
        request = openid.CodeRequest(redirect_uri=redirect_uri, state="", nonce="", code_verifier=_WRONG_CODE)
        async with self._connect(client):
            try:
                await self._request_tokens(client, metadata, _to_fields(request, _WRONG_CODE))
            except openid.OpenIdAnswerRefused as refusal:
                if refusal.fault is not openid.OpenIdFault.CODE:
                    raise

    async def keys(self, client: openid.OpenIdClient, metadata: openid.OpenIdProviderMetadata) -> Sequence[openid.ProviderKey]:
        async with self._connect(client):
            keys = await self._fetch_keys(client, metadata)
        return [
            openid.ProviderKey(
                provider_answers.key_text(key.get("kid")),
                provider_answers.key_text(key.get("kty")),
                crypto.is_usable_key(key, metadata.algorithms),
            )
            for key in keys
        ]

    async def read_logout(self, client: openid.OpenIdClient, metadata: openid.OpenIdProviderMetadata, token: str) -> openid.ProviderLogout:
        def verify(keys: provider_keys.Keys) -> dict[str, Any]:
            return crypto.read_logout_token(
                provider_answers.require_token(token),
                keys,
                issuer=metadata.issuer,
                client_id=client.client_id,
                algorithms=metadata.algorithms,
            )

        if len(token) > MAX_LOGOUT_TOKEN:
            raise openid.OpenIdAnswerRefused(openid.OpenIdFault.LOGOUT)
        async with self._connect(client, STRANGERS) as provider:
            return openid.parse_logout(
                await self._verify(provider, client, metadata, verify, shares.current_share.get()), self._clock.now()
            )

    @asynccontextmanager
    async def _connect(self, client: openid.OpenIdClient, by: str = OURS) -> AsyncIterator["_Provider"]:
        """Wait for a place for the connection, and limit the time for all requests from then on.

        Client addresses take turns, because a stranger can send codes that only the provider refuses (security N-11).

        Raises: OpenIdProviderUnreachable without a place, or after the deadline; Limited. For a platform provider, ProviderFailed replaces
        OpenIdProviderUnreachable and OpenIdAnswerRefused.
        """
        provider, share = self._provider(client), (client.org_id or client.connection_id, client.connection_id)
        by = by if client.provider is None else PLATFORM
        failure: openid.OpenIdAnswerRefused | openid.OpenIdProviderUnreachable
        try:
            with ExitStack() as taken:
                with trio.fail_after(min(PLACE_WITHIN, self._deadline)):
                    taken.enter_context(await provider.turns[by].take())
                    taken.enter_context(await self._places[by].take(share))
                with trio.fail_after(self._deadline):
                    yield provider
                return
        except trio.TooSlowError:
            failure = openid.OpenIdProviderUnreachable(outbound.SendFailure.TIMED_OUT)
        except (openid.OpenIdAnswerRefused, openid.OpenIdProviderUnreachable) as refusal:
            failure = refusal
        if client.provider is None:
            raise failure from None
        log.warning("provider_failed", provider=client.provider, reason=failure.reason)
        raise ProviderFailed(failure.reason)

    def _provider(self, client: openid.OpenIdClient) -> "_Provider":
        # Connections never share keys: a connection's owner could make its provider publish foreign keys under
        # different ids.
        caches = self._providers if client.provider is None else self._of_platform
        return caches.of((client.connection_id, client.issuer))

    # Requests

    async def _fetch_metadata(self, client: openid.OpenIdClient) -> openid.OpenIdProviderMetadata:
        if not openid.is_provider_url(client.issuer, client.issuer):
            raise openid.OpenIdAnswerRefused(openid.OpenIdFault.METADATA_ISSUER)
        # OpenID Connect Discovery section 4.1: without the slash at the issuer's end
        url = f"{client.issuer.removesuffix('/')}{DISCOVERY_PATH}"
        return openid.parse_metadata(client.issuer, await self._get(client, url))

    async def _fetch_keys(self, client: openid.OpenIdClient, metadata: openid.OpenIdProviderMetadata) -> provider_keys.Keys:
        keys = (await self._get(client, metadata.jwks_uri)).get("keys") if metadata.jwks_uri else None
        if not isinstance(keys, list) or not all(isinstance(key, dict) for key in keys):
            raise openid.OpenIdAnswerRefused(openid.OpenIdFault.JWKS)
        signing = [key for key in keys if key.get("kty") in ("RSA", "EC") and key.get("use", "sig") == "sig"]
        return [{name: key[name] for name in _KEY_MEMBERS if name in key} for key in signing[:MAX_KEYS]]

    async def _verify(
        self,
        provider: "_Provider",
        client: openid.OpenIdClient,
        metadata: openid.OpenIdProviderMetadata,
        verify: Callable[[provider_keys.Keys], dict[str, Any]],
        cause: Hashable = provider_keys.OUR_REQUEST,
    ) -> dict[str, Any]:
        """Return a token's claims. If no cached key verifies the token, the provider may have replaced its keys."""
        try:
            return await provider.keys.verify(lambda: self._fetch_keys(client, metadata), verify, cause)
        except crypto.IdTokenInvalid as invalid:
            with names_received(openid.claim_names(invalid.claims)):
                raise openid.OpenIdAnswerRefused(invalid.fault, invalid.seconds_off) from None

    async def _request_tokens(
        self, client: openid.OpenIdClient, metadata: openid.OpenIdProviderMetadata, fields: Mapping[str, str]
    ) -> Mapping[str, Any]:
        credentials, headers = self._authenticate(client, metadata)
        body = urlencode({**fields, **credentials}).encode()
        headers = {"Accept": "application/json", "Content-Type": provider_answers.FORM, **headers}
        sender, at_most = self._way_to(client)
        reply = await _receive(sender.post(metadata.token_endpoint, body, headers, self._deadline, at_most=at_most))
        answer = provider_answers.parse_reply(reply, at_most, (200, 400, 401, 403), may_be_form=client.provider is not None)
        if reply.status != 200 or "error" in answer:  # codehost returns errors with status 200
            provider_answers.refuse_tokens(reply.status, answer.get("error"))
        type_ = answer.get("token_type", None if client.provider is None else "bearer")
        if not isinstance(type_, str) or type_.lower() != "bearer":
            raise openid.OpenIdAnswerRefused(openid.OpenIdFault.TOKENS)
        return answer

    def _authenticate(self, client: openid.OpenIdClient, metadata: openid.OpenIdProviderMetadata) -> tuple[dict[str, str], dict[str, str]]:
        """Return our credentials for the token endpoint: the fields and the headers. Raises: OpenIdAnswerRefused without any."""
        match client.authentication:
            case ProviderAuthentication.PRIVATE_KEY_JWT if client.key is not None:
                now = self._clock.now()
                claims = {
                    "iss": client.client_id,
                    "sub": client.client_id,
                    # Every connection has its own key, so no second provider accepts the assertion. Okta and Entra ID want this audience.
                    "aud": metadata.token_endpoint,
                    "jti": str(new_id()),
                    "iat": int(now.timestamp()),
                    "exp": int((now + ASSERTION_TTL).timestamp()),
                }
                assertion = crypto.sign_assertion(client.key, claims)
                return {"client_id": client.client_id, "client_assertion_type": ASSERTION_TYPE, "client_assertion": assertion}, {}
            case ProviderAuthentication.POST if client.client_secret is not None:
                return {"client_id": client.client_id, "client_secret": client.client_secret}, {}
            case ProviderAuthentication.BASIC if client.client_secret is not None:
                both = f"{quote_plus(client.client_id)}:{quote_plus(client.client_secret)}"  # RFC 6749 section 2.3.1
                return {}, {"Authorization": f"Basic {base64.b64encode(both.encode()).decode()}"}
        raise openid.OpenIdAnswerRefused(openid.OpenIdFault.CLIENT)

    async def _request_profile(
        self, client: openid.OpenIdClient, metadata: openid.OpenIdProviderMetadata, access_token: str
    ) -> dict[str, Any]:
        """Return the claims about a user from the profile and email endpoints of a plain OAuth provider."""
        user_id = (await self._get(client, metadata.userinfo_endpoint or "", access_token)).get("id")
        if not isinstance(user_id, int) or isinstance(user_id, bool) or user_id <= 0:
            raise openid.OpenIdAnswerRefused(openid.OpenIdFault.SUBJECT)
        reply, at_most = await self._fetch(client, metadata.emails_endpoint, access_token)
        return {"sub": str(user_id), **provider_answers.parse_primary_email(reply, at_most)}

    async def _try_userinfo(self, client: openid.OpenIdClient, url: str, access_token: object) -> Mapping[str, Any] | None:
        """Return the claims of the userinfo endpoint, or None if it fails."""
        # Ends before the deadline of all requests, which would end the sign-in.
        within = (trio.current_effective_deadline() - trio.current_time()) * OPTIONAL_SHARE
        reason: str = openid.OpenIdFault.UNREACHABLE
        with trio.move_on_after(within):
            try:
                return await self._require_userinfo(client, url, access_token)
            except (openid.OpenIdAnswerRefused, openid.OpenIdProviderUnreachable) as failure:
                reason = failure.reason
        log.warning("userinfo_left_out", connection_id=str(client.connection_id), reason=reason)
        return None

    async def _require_userinfo(self, client: openid.OpenIdClient, url: str, token: object) -> Mapping[str, Any]:
        access_token = provider_answers.require_token(token)
        reply, at_most = await self._fetch(client, url, access_token)
        try:
            return provider_answers.parse_reply(reply, at_most)
        except openid.OpenIdAnswerRefused as refusal:
            if refusal.fault is openid.OpenIdFault.TOO_LARGE:
                raise
            is_long = refusal.fault is openid.OpenIdFault.STATUS and len(access_token) > openid.MAX_HEADER_TOKEN
            raise openid.OpenIdAnswerRefused(openid.OpenIdFault.LONG_ACCESS_TOKEN if is_long else openid.OpenIdFault.USERINFO) from None

    async def _get(self, client: openid.OpenIdClient, url: str, access_token: str | None = None) -> Mapping[str, Any]:
        return provider_answers.parse_reply(*await self._fetch(client, url, access_token))

    async def _fetch(self, client: openid.OpenIdClient, url: str, access_token: str | None = None) -> tuple[outbound.Reply, int]:
        """Return a provider's response, and the largest accepted size in bytes."""
        sender, at_most = self._way_to(client)
        within = min(FETCH_WITHIN, self._deadline) if client.provider is None else self._deadline
        headers = {"Accept": "application/json", **({} if access_token is None else {"Authorization": f"Bearer {access_token}"})}
        return await _receive(sender.get(url, within, headers=headers, at_most=at_most)), at_most

    def _way_to(self, client: openid.OpenIdClient) -> tuple[HttpSender, int]:
        """Return the sender for requests to a provider, and the largest accepted response in bytes."""
        return (self._sender, openid.MAX_ANSWER_SIZE) if client.provider is None else (self._unchecked, outbound.MAX_REPLY_SIZE)


def _to_fields(request: openid.CodeRequest, code: str) -> dict[str, str]:
    """Return the form fields that redeem a code."""
    return {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": request.redirect_uri,
        "code_verifier": request.code_verifier,
    }


async def _receive(request: Awaitable[outbound.Reply]) -> outbound.Reply:
    try:
        return await request
    except outbound.SendFailed as failure:
        raise openid.OpenIdProviderUnreachable(failure.reason) from None


class _Provider:
    """A provider's cached metadata and keys."""

    def __init__(self, clock: Clock) -> None:
        self.metadata = _CachedMetadata(clock)
        self.keys = provider_keys.ProviderKeys(clock)
        self.turns = {
            by: shares.FairPlaces(trio.Event, of_connection, of_share=of_connection) for by, (_, _, of_connection) in PLACES.items()
        }


class _CachedMetadata:
    """A provider's metadata. Concurrent requests share a fetch, and a failure for a few seconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = trio.Lock()
        self._metadata: openid.OpenIdProviderMetadata | None = None
        self._fetched_at: datetime | None = None
        self._failure: openid.OpenIdAnswerRefused | openid.OpenIdProviderUnreachable | None = None

    def cached(self) -> openid.OpenIdProviderMetadata | None:
        """Return the metadata that were fetched less than CACHE_TTL ago, or None. Raises: the failure in the last seconds."""
        now = self._clock.now()
        if self._fetched_at is None:
            return None
        if self._failure is not None and now < self._fetched_at + FAILURE_PAUSE:
            raise self._failure.with_traceback(None) from None
        return self._metadata if self._failure is None and now < self._fetched_at + provider_keys.CACHE_TTL else None

    async def get(self, fetch: Callable[[], Awaitable[openid.OpenIdProviderMetadata]], *, refresh: bool) -> openid.OpenIdProviderMetadata:
        """Return the metadata. Raises: OpenIdAnswerRefused, OpenIdProviderUnreachable."""
        async with self._lock:
            cached = None if refresh else self.cached()
            if cached is not None:
                return cached
            try:
                metadata = await fetch()
            except (openid.OpenIdAnswerRefused, openid.OpenIdProviderUnreachable) as failure:
                self._failure, self._fetched_at = failure, self._clock.now()
                raise
            self._metadata, self._failure, self._fetched_at = metadata, None, self._clock.now()
            return metadata
