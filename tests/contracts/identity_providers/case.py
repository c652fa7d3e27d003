"""A provider that runs over HTTP, and sign-ins through the adapter."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import parse_qs

import pytest

from adapters.http.openid_providers import HttpOpenIdProviders
from core.authentication.flow.model import FlowTarget, ProviderRequest, new_flow
from core.federation.connections.model import platform
from core.federation.connections.model.openid import (
    CodeRequest,
    OpenIdAnswerRefused,
    OpenIdClient,
    authorization_url,
    check_response_issuer,
)
from core.kernel.connections import Connection, ConnectionSlug, FederatedIdentity, PlatformCredentials, ProviderClient
from core.kernel.errors import ProviderFailed
from core.kernel.values import new_secret
from tests.fakes.http_server import TRAP
from tests.fakes.outside import FakeClock
from tests.fakes.provider import CLIENT, FakeProvider
from tests.support.builders import unchecked_sender

BASE_URL = "https://id.example.com"


def make_providers(clock: FakeClock, deadline: float = 10.0) -> HttpOpenIdProviders:
    sender = unchecked_sender()
    return HttpOpenIdProviders(sender, clock, unchecked=sender, deadline=deadline)


@dataclass(slots=True)
class Case:
    """A provider, and our settings for it."""

    server: FakeProvider
    providers: HttpOpenIdProviders
    clock: FakeClock
    credentials: PlatformCredentials = field(init=False)

    def __post_init__(self) -> None:
        self.credentials = self.server.connection()

    @property
    def provider(self) -> ConnectionSlug:
        return self.server.provider

    @property
    def connection(self) -> Connection:
        return self.credentials.connection

    def use(self, *, deadline: float = 10.0, **changes: Any) -> None:
        """Change our settings of the provider."""
        self.credentials = self.server.connection(**changes)
        self.providers = make_providers(self.clock, deadline)

    def client(self, client: ProviderClient = CLIENT) -> OpenIdClient:
        return platform.to_client(self.connection, client)

    def make_request(self, scopes: Sequence[str] | None = None, fresh_since: datetime | None = None) -> CodeRequest:
        now = self.clock.now()
        provider_request = ProviderRequest(
            flow=new_flow(now, FlowTarget.PAGE, "/app", wants_fresh=fresh_since is not None),
            connection_id=self.connection.id,
            scopes=None if scopes is None else tuple(scopes),
            begun_at=fresh_since or now,
            expires_at=now,
        )
        return platform.make_request(self.connection, provider_request, new_secret(), "a device cookie", BASE_URL)

    def authorization_url(self, request: CodeRequest, client: ProviderClient = CLIENT) -> str:
        used = self.client(client)
        assert used.metadata is not None
        return authorization_url(used, used.metadata, request)

    def authorize(self, request: CodeRequest, client: ProviderClient = CLIENT) -> str:
        """Redirect the visitor to the provider. Return the parameters of the callback."""
        callback = self.server.authorize(self.authorization_url(request, client))
        address, _, query = callback.partition("?")
        assert address == request.redirect_uri == f"{BASE_URL}/auth/{self.provider}/callback"
        parameters = {name: value for name, [value] in parse_qs(query).items()}
        assert parameters["state"] == request.state
        assert self.accepts_issuer(parameters["iss"])
        return parameters["code"]

    def accepts_issuer(self, issuer: str) -> bool:
        """Return whether an answer with this `iss` may come from the provider."""
        metadata = self.client().metadata
        assert metadata is not None
        try:
            check_response_issuer(metadata, issuer)
        except OpenIdAnswerRefused:
            return False
        return True

    async def redeem(self, request: CodeRequest, code: str, client: ProviderClient = CLIENT) -> FederatedIdentity:
        used = self.client(client)
        answer = await self.providers.exchange(used, await self.providers.discover(used), request, code, ("email",))
        return platform.to_identity(self.connection, used.issuer, request, answer, self.clock.now())

    async def identify(self, client: ProviderClient = CLIENT, **changes: Any) -> FederatedIdentity:
        request = self.make_request(**changes)
        code = self.authorize(request, client)
        return await self.redeem(request, code, client)

    async def refusal(self) -> str:
        with pytest.raises(ProviderFailed) as raised:
            await self.identify()
        assert TRAP not in str(raised.value)
        return str(raised.value)
