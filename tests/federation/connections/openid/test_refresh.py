"""Refreshing connections: their health, and what their organization hears about it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.federation.connections import health
from core.federation.connections.model.connections import CertificateSource, OrganizationConnection, ProviderCertificate
from core.federation.connections.model.health import ANNOUNCED_DAYS, CertificateEnd, ConnectionHealth, HealthState
from core.federation.connections.model.settings import SamlSettings
from core.federation.saml.model.configuration import CertificateState
from core.kernel.causes import SYSTEM
from core.kernel.values import new_id
from ports import Ports
from tests.fakes.http_server import Answer
from tests.fakes.openid_issuers import DISCOVERY, OpenIdIssuers
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.federation.connections.openid.test_checks import API, connect
from tests.support.browser import FakeBrowser
from tests.support.builders import Api, deliver, run_concurrently, run_sql, with_loopback_sender
from tests.support.connections import add_connection
from tests.support.rows import DAY, NOW
from tests.support.saml import new_certificate
from tests.support.tenants import Tenant

HOUR = timedelta(hours=1)


def certificate(number: int, **changes: Any) -> ProviderCertificate:
    values = {"valid_from": NOW, "source": CertificateSource.ADMIN, "is_active": True, "added_at": NOW, **changes}
    return ProviderCertificate(fingerprint=f"{number:064x}", certificate="pem", **values)


async def events(pool: Pool) -> list[tuple[str, Any]]:
    """Return the events about health since the last call, with what they say."""
    rows = await run_sql(
        pool,
        """
        select action, coalesce(details ->> 'days', details ->> 'problem') from audit_log
        where action in ('connection.certificate.expires', 'connection.failing', 'connection.recovered') order by created_at, action""",
    )
    await run_sql(pool, "delete from audit_log")
    return rows


def test_a_certificate_is_announced_three_times_before_it_ends() -> None:
    """Refreshes are due at all these times, and once a day. After an outage, only the nearest announcement is made."""
    state = ConnectionHealth(org_id=new_id(), connection_id=new_id(), due_at=NOW)
    end, now, announced = CertificateEnd(NOW + 100 * DAY + HOUR, is_own=False), NOW, []
    while now <= end.at:
        state = state.refresh(None, end, now)
        if (days := state.days_to_announce(now)) is not None:
            announced.append((days, end.at - now))
            state = replace(state, announced_days=days)
        now = state.due_at
    assert announced == [(days, days * DAY) for days in ANNOUNCED_DAYS]
    assert (state.health, state.problem) == ("warning", "certificate_expired")
    late = ConnectionHealth(org_id=new_id(), connection_id=new_id(), due_at=NOW).refresh(None, end, end.at - 3 * DAY)
    assert (late.days_to_announce(end.at - 3 * DAY), late.health) == (7, "warning")


@pytest.mark.slow
async def test_a_provider_that_fails_is_reported_once_and_its_recovery_too(
    api: Api, acme: Tenant, ports: Ports, pool: Pool, server: OpenIdIssuers, clock: FakeClock, sent: FakeMailTransport
) -> None:
    """A short outage is a warning. Provider faults are retried every hour."""
    reaching, holder = with_loopback_sender(ports), new_id()
    issuer, connection = await connect(ports, acme.org, server)
    await add_connection(ports.storage, acme.org, "draft", state="draft")

    async def refresh() -> dict[str, int] | None:
        return await health.refresh_due(reaching, holder)

    async def stored() -> tuple[str, str | None]:
        async with ports.storage.reading() as read:
            [state] = (await read.connection_healths.of_org(acme.org)).values()
        return state.health, state.problem

    async def shown() -> list[dict[str, Any]]:
        details = (await api.get(f"{API}/okta", token=acme.token("admin"))).json["health"]
        [_, listed] = (await api.get(API, token=acme.token("admin"))).json["connections"]
        return [details, listed["health"]]

    assert [each["health"] for each in await shown()] == ["unknown", "unknown"]
    assert await refresh() == {"ok": 1}, "drafts are not refreshed"
    assert [(each["health"], each["refreshed_at"] is not None) for each in await shown()] == 2 * [("ok", True)]
    assert await health.refresh_due(reaching, new_id()) is None, "another process has the lease"
    assert (await refresh(), issuer.counted[DISCOVERY], await health.next_due(reaching)) == ({}, 1, clock.now() + DAY)

    issuer.answers[DISCOVERY] = Answer(500)
    assert await health.measure(ports) == ({HealthState.OK: 1}, None)
    clock.advance(DAY)
    for expected in ("warning", "warning", "failing", "failing"):
        assert await refresh() == {expected: 1}
        assert await stored() == (expected, "status")
        clock.advance(HOUR)
    assert await events(pool) == [("connection.failing", "status")]
    await deliver(ports)
    assert sorted(message.to for message in sent.emails) == ["admin@acme.example", "owner@acme.example"]
    assert {message.subject for message in sent.emails} == {"Sign-in through Okta fails - Gatehouse"}
    for part in ("answered with an error or a redirect", "/app/organizations/acme/connections/okta/health"):
        assert part in sent.emails[0].text
        assert part in sent.emails[0].html

    issuer.answers.clear()
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.connection_healths.make_due(acme.org, connection.id)
    assert (await refresh(), await stored(), await events(pool)) == ({"ok": 1}, ("ok", None), [("connection.recovered", None)])
    issuer.published.clear()
    clock.advance(DAY)
    assert (await refresh(), await stored()) == ({"warning": 1}, ("warning", "signing_key"))
    await run_sql(pool, "update organizations set status = 'suspended'")
    clock.advance(DAY)
    assert await refresh() == {"unknown": 1}, "nothing is fetched for a suspended organization"
    await deliver(ports)
    assert len(sent.emails) == 2


async def add_saml(ports: Ports, org_id: UUID, *certificates: ProviderCertificate) -> OrganizationConnection:
    connection = await add_connection(
        ports.storage, org_id, "adfs", settings=SamlSettings(entity_id="urn:adfs", sso_url="https://adfs.example")
    )
    async with ports.storage.transaction(by=SYSTEM) as tx:
        for each in certificates:
            await tx.connection_keys.add_certificate(org_id, connection.id, each)
    return connection


@pytest.mark.slow
async def test_certificates_that_end_are_announced_to_the_members_who_manage_integrations(
    app: QuartTrio, owner_browser: FakeBrowser, ports: Ports, pool: Pool, clock: FakeClock
) -> None:
    """The identity provider's last active certificate counts, or our certificate, if it ends earlier."""
    [(org_id,)] = await run_sql(pool, "select id from organizations where slug = 'acme'")
    now, holder, page = clock.now(), new_id(), "/app/organizations/acme/connections/adfs/health"
    short, long = certificate(1, valid_until=now + 5 * DAY), certificate(2, valid_until=now + 20 * DAY)
    inactive = certificate(3, valid_until=now + 900 * DAY, is_active=False)
    connection = await add_saml(ports, org_id, short, long, inactive)
    assert "is refreshed within a few minutes" in (await owner_browser.open(page)).text
    assert await health.refresh_due(ports, holder) == {"warning": 1}
    assert await events(pool) == [("connection.certificate.expires", "30")], "only the nearest"
    shown = (await owner_browser.open(page)).text
    assert "The last certificate of the identity provider expires soon" in shown
    assert await health.measure(ports) == ({HealthState.WARNING: 1}, now + 20 * DAY)
    clock.advance(13 * DAY)
    assert await health.next_due(ports) == now + DAY, "refreshed once a day"
    for _ in range(2):
        await health.refresh_due(ports, holder)
    assert await events(pool) == [("connection.certificate.expires", "7")]
    async with ports.storage.transaction(by=SYSTEM) as tx:  # the identity provider has a new certificate, and our key is old
        await tx.connection_keys.add_certificate(org_id, connection.id, certificate(4, valid_until=now + 2000 * DAY))
        own = await new_certificate(now - 1100 * DAY)
        await tx.connection_keys.add(org_id, connection.id, own, CertificateState.ACTIVE)
        await tx.connection_healths.make_due(org_id, connection.id)
    assert await health.refresh_due(ports, holder) == {"warning": 1}, "sign-ins go on"
    assert await events(pool) == []
    assert "Our certificate for this connection" in (await owner_browser.open(page)).text


async def test_a_connection_that_changes_during_its_refresh_is_refreshed_again(ports: Ports, acme: Tenant, clock: FakeClock) -> None:
    connection = await add_saml(ports, acme.org, certificate(1, valid_until=clock.now() + 900 * DAY))
    now, until = clock.now(), clock.now() + HOUR
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.connection_healths.add_new(now)
        await tx.connection_healths.add_new(now)
    claimed = []

    async def claim(_: int) -> None:
        async with ports.storage.transaction(by=SYSTEM) as tx:
            claimed.append(await tx.connection_healths.claim(now, until))

    await run_concurrently(20, claim)
    [state] = [each for each in claimed if each is not None]
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.connection_healths.make_due(acme.org, connection.id)
    async with ports.storage.transaction(by=SYSTEM) as tx:
        assert not await tx.connection_healths.save(state.refresh(None, None, now), state.due_at)
    async with ports.storage.reading() as read:
        assert (await read.connection_healths.next_due(), await read.connection_healths.of_org(acme.org)) == (
            datetime.fromtimestamp(0, UTC),
            {},
        )
