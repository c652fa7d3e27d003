"""A provider that runs over HTTP, and sign-ins through the adapter."""

from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qs

import pytest

from adapters.http.providers import HttpProviders
from core.kernel.connections import Connection, ConnectionSlug
from core.kernel.errors import ProviderFailed
from core.kernel.providers import AuthenticationRequest, FederatedIdentity
from core.kernel.values import new_secret
from tests.fakes.http_server import TRAP
from tests.fakes.outside import FakeClock
from tests.fakes.provider import CLIENT, FakeProvider

REDIRECT_URI = "https://id.example.com/auth/somewhere/callback"


def make_request(**changes: Any) -> AuthenticationRequest:
    request = AuthenticationRequest(CLIENT, REDIRECT_URI, state=new_secret(), nonce=new_secret(), code_verifier=new_secret(), scopes=None)
    return replace(request, **changes)


@dataclass(slots=True)
class Case:
    """A provider, and our settings for it."""

    server: FakeProvider
    providers: HttpProviders
    clock: FakeClock

    @property
    def provider(self) -> ConnectionSlug:
        return self.server.provider

    @property
    def connection(self) -> Connection:
        """Return the connection as our adapter knows it."""
        connection = self.providers.connections.get(self.provider)
        assert connection is not None
        return connection

    def use(self, *, deadline: float = 10.0, **changes: Any) -> None:
        """Change our settings of the provider."""
        self.providers = HttpProviders([self.server.connection(**changes)], self.clock, deadline=deadline)

    def authorize(self, request: AuthenticationRequest) -> str:
        """Redirect the visitor to the provider. Return the parameters of the callback."""
        callback = self.server.visit(self.providers.authorization_url(self.provider, request))
        address, _, query = callback.partition("?")
        assert address == REDIRECT_URI
        parameters = {name: value for name, [value] in parse_qs(query).items()}
        assert parameters["state"] == request.state
        assert self.connection.is_issuer(parameters["iss"])
        return parameters["code"]

    async def identify(self, **changes: Any) -> FederatedIdentity:
        request = make_request(**changes)
        return await self.providers.identify(self.provider, request, self.authorize(request))

    async def refusal(self) -> str:
        with pytest.raises(ProviderFailed) as raised:
            await self.identify()
        assert TRAP not in str(raised.value)
        return str(raised.value)
