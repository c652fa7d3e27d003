"""Certificates that an identity provider renews: its metadata are read daily, and when a response has an unknown signature."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.federation.connections import health
from core.federation.connections.model.health import REFETCHED_EACH
from core.kernel.causes import SYSTEM
from core.kernel.rate_limits import METADATA_FETCH
from core.kernel.values import new_id
from ports import Ports
from tests.fakes.http_server import Answer, FakeServer, ReceivedRequest
from tests.fakes.outside import FakeClock
from tests.federation.connections.saml.saml_case import SSO_URL, SamlCase, connect
from tests.federation.connections.saml.test_acs import code_of
from tests.federation.connections.saml.test_metadata import PAST
from tests.support.browser import FakeBrowser
from tests.support.builders import run_concurrently, run_sql, with_loopback_sender
from tests.support.direct import change_ports
from tests.support.saml import identity_provider_metadata, with_validity
from tests.support.saml.identity_provider import ENTITY_ID

pytestmark = pytest.mark.slow


class Publisher(FakeServer):
    """A server that publishes an identity provider's metadata, and counts the fetches."""

    document = ""
    count = 0

    def _reply(self, request: ReceivedRequest) -> Answer:
        self.count += 1
        return Answer(200, self.document.encode())

    def publish(self, *certificates: str, entity_id: str = ENTITY_ID) -> None:
        self.document = identity_provider_metadata(entity_id, sso={"HTTP-Redirect": SSO_URL}, certificates=[*certificates])


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    with Publisher() as server:
        yield server


@pytest.fixture
async def saml_case(app: QuartTrio, owner_browser: FakeBrowser, ports: Ports, pool: Pool, publisher: Publisher) -> SamlCase:
    change_ports(app, sender=with_loopback_sender(ports).sender)
    [(org_id,)] = await run_sql(pool, "select id from organizations where slug = 'acme'")
    return await connect(ports, org_id, metadata_url=f"{publisher.address}/metadata")


def renewed(saml_case: SamlCase) -> SamlCase:
    """Return the case with an identity provider that signs with its next certificate."""
    return replace(saml_case, provider=replace(saml_case.provider, certificate=saml_case.provider.others[1]))


async def test_a_response_with_an_unknown_signature_causes_one_fetch_an_hour(
    owner_browser: FakeBrowser, saml_case: SamlCase, publisher: Publisher, clock: FakeClock
) -> None:
    new = renewed(saml_case)
    publisher.publish(saml_case.provider.certificate.certificate)
    assert code_of(await new.test(owner_browser)) == "signature_wrong"
    publisher.publish(new.provider.certificate.certificate)
    assert code_of(await new.test(owner_browser)) == "signature_wrong"
    assert publisher.count == 1, "an attacker cannot cause more"
    clock.advance(REFETCHED_EACH)
    present, publisher.document = publisher.document, with_validity(publisher.document, PAST)
    assert code_of(await new.test(owner_browser)) == "signature_wrong", "metadata that have expired change nothing"
    clock.advance(REFETCHED_EACH)
    publisher.document = present
    assert "ada@example.com" in (await new.test(owner_browser)).text
    assert "ada@example.com" in (await saml_case.test(owner_browser)).text, "the certificate of an admin stays"
    assert publisher.count == 3


async def test_twenty_claims_at_once_are_one(ports: Ports, saml_case: SamlCase, clock: FakeClock) -> None:
    connection, now = saml_case.connection, clock.now()

    async def claim(_: int) -> bool:
        async with ports.storage.transaction(by=SYSTEM) as tx:
            return await tx.connection_healths.claim_refetch(connection.org_id, connection.id, now, now - REFETCHED_EACH)

    assert sorted(await run_concurrently(20, claim)) == [*19 * [False], True]


async def test_the_daily_refresh_takes_over_metadata_of_the_same_identity_provider(
    saml_case: SamlCase, publisher: Publisher, pool: Pool, ports: Ports, clock: FakeClock
) -> None:
    """Another provider's metadata, and expired or unreadable metadata, change nothing. Many fetches by the organization delay a refresh."""
    reaching, holder, others = with_loopback_sender(ports), new_id(), [each.certificate for each in saml_case.provider.others]
    await run_sql(pool, "update connections set state = 'active' where org_id is not null")

    async def refresh() -> tuple[list[str], str | None, set[str]]:
        counts = await health.refresh_due(reaching, holder)
        [(problem,)] = await run_sql(pool, "select problem from connection_health")
        by_metadata = await run_sql(pool, "select certificate from connection_certificates where source = 'metadata'")
        clock.advance(timedelta(days=1))
        return [*(counts or {})], problem, {pem for (pem,) in by_metadata}

    publisher.publish(others[0])
    assert await refresh() == (["ok"], None, {others[0]})
    publisher.publish(others[1], entity_id="https://elsewhere.example")
    assert await refresh() == (["warning"], "metadata_of_another", {others[0]})
    publisher.document = "<nothing/>"
    assert await refresh() == (["warning"], "metadata_invalid", {others[0]})
    publisher.publish(others[1])
    publisher.document = with_validity(publisher.document, "2999-01-01T00:00:00Z", PAST)
    assert await refresh() == (["failing"], "metadata_expired", {others[0]})
    publisher.publish(others[1])
    assert await refresh() == (["ok"], None, {others[1]})
    names = await run_sql(pool, "select action from audit_log where starts_with(action, 'connection.certificate.') order by action")
    assert [name for (name,) in names] == [f"connection.certificate.{each}" for each in ("added", "added", "removed")]
    for _ in range(METADATA_FETCH.burst):
        async with ports.storage.autocommit() as statements:
            await statements.rates.take(f"metadata {saml_case.connection.org_id}", (METADATA_FETCH,), clock.now())
    assert await refresh() == (["ok"], None, {others[1]})
    assert publisher.count == 5
