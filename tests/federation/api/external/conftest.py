"""An API resource that admits all external clients, and a user who is signed in and has agreed to nothing."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from quart_trio import QuartTrio

from adapters.http.client_keys import HttpClientDocuments, HttpClientKeys
from core.accounts.model.accounts import Account
from entrypoints.http.base.context import app_context
from ports import Ports
from tests.fakes.client_documents import ClientServer
from tests.federation.api.external.external import ExternalParty
from tests.federation.api.relying import add_relying_party, sign_in_browser
from tests.support.browser import FakeBrowser
from tests.support.direct import change_ports
from tests.support.services import add_api_resource, verify_domain
from tests.support.tenants import Tenant


@pytest.fixture
def server(tmp_path: Path, app: QuartTrio, ports: Ports) -> Iterator[ClientServer]:
    """The clients' server, which the application reaches instead of the internet."""
    with ClientServer(tmp_path) as server:
        policy, sender = replace(ports.policy, key_ports=frozenset({443, server.port})), server.sender()
        change_ports(
            app,
            policy=policy,
            client_documents=HttpClientDocuments(sender, ports.clock, policy),
            client_keys=HttpClientKeys(sender, ports.clock, policy.key_ports),
        )
        yield server


@pytest.fixture
async def client(acme: Tenant, browser: FakeBrowser, user: Account, server: ClientServer) -> ExternalParty:
    await verify_domain(acme.pool, acme.org)
    await add_api_resource(acme.pool, acme.org)
    party = ExternalParty(acme, browser, server, server.publish(), "https://client.example/callback")
    await party.set_policy()
    await sign_in_browser(await add_relying_party(acme, browser), user, provider="password", is_known=False)
    return party


@pytest.fixture
async def open_client(app: QuartTrio, client: ExternalParty) -> ExternalParty:
    """The client, at a platform that lets clients register themselves."""
    change_ports(app, policy=replace(app_context(app).ports.policy, client_registration=True))
    return client


@pytest.fixture
async def registered(open_client: ExternalParty) -> ExternalParty:
    """A client that has registered itself, at an API resource that admits such clients."""
    await open_client.set_policy("listed", ("other.example",), registration=True)
    await open_client.become_registered()
    return open_client
