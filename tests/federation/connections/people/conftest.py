"""An organization with a proved domain and an active connection, and people who come through it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit
from uuid import UUID

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.federation.connections.model.connections import OrganizationConnection
from core.federation.connections.model.settings import ClaimMapping, OidcSettings
from core.kernel.causes import SYSTEM
from ports import Ports
from tests.fakes.openid_issuers import CLIENT_ID, SECRET, FakeIssuer, OpenIdIssuers
from tests.fakes.outside import FakeClock
from tests.support.browser import FakeBrowser
from tests.support.builders import Answer, add_organization, run_sql, with_loopback_sender
from tests.support.connections import add_connection

DOMAIN = "insert into domains (org_id, domain, challenge, verified_at, created_at) values (%s, %s, 'x', now(), now())"


@dataclass(slots=True)
class House:
    """The organization Acme with the domain example.com, and its identity provider."""

    ports: Ports
    app: QuartTrio
    pool: Pool
    issuer: FakeIssuer
    connection: OrganizationConnection

    @property
    def org(self) -> UUID:
        return self.connection.org_id

    async def arrive(self, browser: FakeBrowser | None = None, subject: str = "4711", **claims: Any) -> Answer:
        """Sign in at the identity provider in this browser, or in a new browser.

        Return the answer from the callback, or from the next step.
        """
        browser = browser or FakeBrowser(self.app)
        start = f"/auth/connections/{self.connection.id}"
        answer = await browser.open(f"{start}/start?{urlencode({'next': '/app'})}")
        assert answer.status == 302, answer.text
        self.issuer.subject, self.issuer.claims = subject, {"email_verified": True, **claims}
        returned = self.issuer.authorize(answer.headers["Location"])
        assert urlsplit(answer.headers["Location"]).path.endswith("/authorize")
        return await browser.open(f"{start}/callback?{urlencode(returned)}")

    async def known(self) -> list[tuple[str, str]]:
        """Return the subjects that the connection knows, with the addresses of their accounts."""
        sql = "select i.subject, u.email from connection_identities i join users u on u.id = i.user_id order by 1, 2"
        return [(subject, email) for subject, email in await run_sql(self.pool, sql)]

    async def set(self, sql: str, *values: object) -> None:
        await run_sql(self.pool, sql, *values)


@pytest.fixture
def ports(ports: Ports) -> Ports:
    """Ports that also reach the test identity provider."""
    return with_loopback_sender(ports)


@pytest.fixture
def server(clock: FakeClock) -> Iterator[OpenIdIssuers]:
    with OpenIdIssuers(now=lambda: clock.now().timestamp()) as server:
        yield server


@pytest.fixture
async def house(app: QuartTrio, ports: Ports, pool: Pool, server: OpenIdIssuers) -> House:
    issuer, org = server.add("okta"), await add_organization(pool, "acme")
    await run_sql(pool, DOMAIN, org, "example.com")
    settings = OidcSettings(issuer=issuer.url, client_id=CLIENT_ID, trusts_second_factor=True)
    connection = await add_connection(ports.storage, org, settings=settings, mapping=ClaimMapping(groups="groups"))
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.connections.save_client_secret(org, connection.id, SECRET, ports.clock.now())
    return House(ports, app, pool, issuer, connection)
