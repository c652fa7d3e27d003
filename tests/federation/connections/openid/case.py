"""The adapter with a server for several OpenID providers, and sign-ins through it."""

import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final
from uuid import UUID

from adapters.http.guard import AllowedTarget, Guard
from adapters.http.openid_providers import HttpOpenIdProviders
from adapters.http.sender import GuardedSender
from core.federation.connections.model.openid import (
    CodeRequest,
    OpenIdAnswer,
    OpenIdAnswerRefused,
    OpenIdClient,
    OpenIdProviderUnreachable,
    authorization_url,
    check_response_issuer,
)
from core.federation.connections.model.settings import ProviderAuthentication
from core.kernel.values import new_id, new_secret
from tests.fakes.http_server import TRAP
from tests.fakes.openid_issuers import CLIENT_ID, SECRET, FakeIssuer, OpenIdIssuers
from tests.fakes.outside import FakeClock

LOOPBACK: Final = AllowedTarget.parse("127.0.0.0/8")
REDIRECT_URI: Final = "https://id.example.com/auth/connections/1/callback"
Lookup = Callable[..., Sequence[Any]]


def make_request(**changes: Any) -> CodeRequest:
    request = CodeRequest(redirect_uri=REDIRECT_URI, state=new_secret(), nonce=new_secret(), code_verifier=new_secret())
    return replace(request, **changes)


@dataclass(slots=True)
class Case:
    """A provider, our client there, and the adapter."""

    server: OpenIdIssuers
    clock: FakeClock
    issuer: FakeIssuer
    providers: HttpOpenIdProviders
    connection_id: UUID = field(default_factory=new_id)
    client_changes: dict[str, Any] = field(default_factory=dict)
    needed: tuple[str, ...] = ("email",)
    wanted: tuple[str, ...] = ()
    wants_fresh: bool = False
    received: tuple[str, ...] = ()  # the names in an answer that was refused

    def use(self, *, deadline: float = 10.0, lookup: Lookup = socket.getaddrinfo) -> None:
        """Give the adapter another deadline, or another resolver."""
        self.providers = make_adapter(self.clock, deadline=deadline, lookup=lookup)

    @property
    def client(self) -> OpenIdClient:
        client = OpenIdClient(
            connection_id=self.connection_id,
            issuer=self.issuer.url,
            client_id=CLIENT_ID,
            authentication=ProviderAuthentication.BASIC,
            client_secret=SECRET,
        )
        return replace(client, **self.client_changes)

    async def authorize(self, request: CodeRequest) -> dict[str, str]:
        """Send the user to the provider. Return its answer's parameters."""
        metadata = await self.providers.discover(self.client)
        answer = self.issuer.authorize(authorization_url(self.client, metadata, request))
        assert answer["state"] == request.state
        return answer

    async def sign_in(self) -> OpenIdAnswer:
        request = make_request(fresh_since=self.clock.now() if self.wants_fresh else None)
        answer = await self.authorize(request)
        metadata = await self.providers.discover(self.client)
        check_response_issuer(metadata, answer.get("iss"))
        return await self.providers.exchange(self.client, metadata, request, answer["code"], self.needed, self.wanted)

    async def fault(self) -> str:
        """Return the sign-in's fault, or `accepted`."""
        try:
            await self.sign_in()
        except (OpenIdAnswerRefused, OpenIdProviderUnreachable) as refusal:
            self.received = () if isinstance(refusal, OpenIdProviderUnreachable) else refusal.received
            return "a text of the provider" if TRAP in refusal.message else refusal.fault
        return "accepted"


def make_adapter(clock: FakeClock, *, deadline: float = 10.0, lookup: Lookup = socket.getaddrinfo) -> HttpOpenIdProviders:
    return HttpOpenIdProviders(GuardedSender(Guard([LOOPBACK], lookup=lookup), authorities()), clock, deadline=deadline)


@cache
def authorities() -> ssl.SSLContext:
    """Return the system's certificate authorities, which take longer to load than a sign-in."""
    return ssl.create_default_context()
