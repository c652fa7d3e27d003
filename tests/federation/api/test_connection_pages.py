"""The pages for an organization's connections."""

from html import escape
from typing import Final
from uuid import UUID

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.federation.connections.model.connections import ConnectionState
from core.federation.connections.model.presets import PRESETS
from core.kernel.causes import SYSTEM
from core.kernel.connections import ConnectionProtocol
from core.kernel.roles import ADMIN
from ports import Ports
from tests.support.browser import FakeBrowser, leads_to
from tests.support.builders import PASSWORD, add_account, add_member, add_organization, run_sql
from tests.support.connections import add_connection
from tests.support.rows import NOW
from tests.support.saml import new_certificate

LIST: Final = "/app/organizations/acme/connections"
ONE: Final = f"{LIST}/okta"


@pytest.fixture
async def acme(pool: Pool) -> UUID:
    return await add_organization(pool, "acme")


@pytest.fixture
async def admin(app: QuartTrio, ports: Ports, pool: Pool, acme: UUID) -> FakeBrowser:
    await add_member(pool, acme, (await add_account(ports, "ada@example.com", PASSWORD)).id, ADMIN, confirmed=True)
    browser = FakeBrowser(app)
    await browser.sign_in("ada@example.com", PASSWORD)
    return browser


@pytest.mark.parametrize("protocol", [ConnectionProtocol.OIDC, ConnectionProtocol.SAML])
async def test_a_new_connection_shows_the_steps_of_its_product(admin: FakeBrowser, protocol: ConnectionProtocol) -> None:
    form = await admin.open(f"{LIST}/new?preset=okta")
    assert 'value="okta"' in form.text
    answer = await admin.submit(f"{LIST}/new", f"{LIST}/new?preset=okta", preset="okta", name="Okta", slug="okta", protocol=protocol)
    assert leads_to(answer) == ONE
    page = (await admin.open(ONE)).text
    for step in PRESETS["okta"].protocols[protocol].steps:
        assert escape(step, quote=False) in page
    assert "Still missing" in page
    assert ("/callback" in page, "/acs" in page) == (protocol is ConnectionProtocol.OIDC, protocol is ConnectionProtocol.SAML)
    assert "Okta" in (await admin.open(LIST)).text


async def test_settings_are_saved_and_shown_again(admin: FakeBrowser, ports: Ports, acme: UUID) -> None:
    await add_connection(ports.storage, acme, state=ConnectionState.DRAFT)
    fields = {
        "name": "Acme",
        "client_id": "other",
        "client_authentication": "client_secret_post",
        "scopes": "email groups",
        "clock_skew_seconds": "300",
    }
    answer = await admin.submit(ONE, ONE, issuer="https://okta.example", trusts_email="yes", **fields)
    assert answer.status == 303
    page = (await admin.open(ONE)).text
    for text in ('value="other"', 'value="email groups"', 'value="Acme"'):
        assert text in page
    async with ports.storage.reading() as read:
        connection = await read.connections.by_slug(acme, "okta")
    assert connection is not None
    assert (connection.settings.trusts_email, connection.settings.trusts_second_factor) == (True, False)
    assert connection.settings.clock_skew_seconds == 300
    refused = await admin.submit(ONE, ONE, issuer="https://okta.example", **{**fields, "clock_skew_seconds": "301"})
    assert (refused.status, "300" in refused.text) == (400, True)


async def test_a_refused_change_stands_beside_its_field(admin: FakeBrowser, ports: Ports, acme: UUID) -> None:
    await add_connection(ports.storage, acme)
    answer = await admin.submit(ONE, ONE, name="Acme", issuer="http://wrong.example", client_id="other")
    assert answer.status == 400
    assert 'id="issuer-error"' in answer.text
    mapping = await admin.submit(f"{ONE}/mapping", f"{ONE}/mapping", claim_email="a" * 300)
    assert (mapping.status, 'id="claim_email-error"' in mapping.text) == (400, True)
    removal = await admin.submit(f"{ONE}/remove", ONE, confirmation="Other")
    assert (removal.status, 'value="https://okta.example"' in removal.text) == (400, True)


async def test_secrets_and_keys_are_set_on_their_page(admin: FakeBrowser, ports: Ports, pool: Pool, acme: UUID) -> None:
    await add_connection(ports.storage, acme)
    keys = f"{ONE}/keys"
    saved = await admin.submit(f"{ONE}/keys/client-secret", keys, client_secret="a very secret text")
    assert (saved.status, "Your values are saved." in saved.text) == (200, True), "no request reaches okta.example"
    assert "a very secret text" not in (await admin.open(keys)).text
    with_key = {"name": "Okta", "issuer": "https://okta.example", "client_id": "gatehouse", "client_authentication": "private_key_jwt"}
    assert (await admin.submit(ONE, ONE, **with_key)).status == 400, "the connection is active, and has no key"
    for _ in range(2):
        assert (await admin.submit(keys, keys)).status == 303
    assert (await admin.submit(ONE, ONE, **with_key)).status == 200
    page = (await admin.open(keys)).text
    assert ("Active key" in page, "Next key" in page, "PRIVATE KEY" in page) == (True, True, False)
    assert (await admin.submit(f"{keys}/activate", keys)).status == 303
    assert "Previous key" in (await admin.open(keys)).text


async def test_certificates_are_added_and_removed_on_their_page(admin: FakeBrowser, pool: Pool) -> None:
    await admin.submit(f"{LIST}/new", f"{LIST}/new", name="Okta", slug="okta", protocol="saml")
    keys = f"{ONE}/keys"
    refused = await admin.submit(f"{ONE}/keys/certificates", keys, certificate="none")
    assert (refused.status, 'id="certificate-error"' in refused.text) == (400, True)
    pem = (await new_certificate(NOW)).certificate
    assert (await admin.submit(f"{ONE}/keys/certificates", keys, certificate=pem)).status == 303
    [(fingerprint,)] = await run_sql(pool, "select fingerprint from connection_certificates")
    assert fingerprint in (await admin.open(keys)).text
    removal = f"{ONE}/keys/certificates/{fingerprint}/remove"
    assert f'href="{removal}"' in (await admin.open(keys)).text
    assert (await admin.submit(removal, removal)).status == 303
    assert await run_sql(pool, "select 1 from connection_certificates") == []


async def test_a_connection_is_mapped_activated_and_removed(admin: FakeBrowser, ports: Ports, acme: UUID) -> None:
    await add_connection(ports.storage, acme)
    assert (
        await admin.submit(f"{ONE}/mapping", f"{ONE}/mapping", claim_email="mail", claim_groups="roles", claim_locale="lang")
    ).status == 303
    async with ports.storage.reading() as read:
        connection = await read.connections.by_slug(acme, "okta")
    assert connection is not None
    document = {
        "email": "mail",
        "name": None,
        "given_name": None,
        "family_name": None,
        "groups": "roles",
        "picture": None,
        "locale": "lang",
    }
    assert connection.mapping.document == document
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.connections.save_client_secret(acme, connection.id, "a very secret text", NOW)
    for action, state in (("deactivate", "Inactive"), ("activate", "Active")):
        assert leads_to(await admin.submit(f"{ONE}/{action}", ONE)) == ONE
        assert f">{state}</span>" in (await admin.open(ONE)).text
    assert (await admin.submit(f"{ONE}/remove", ONE, confirmation="Okta")).status == 303
    assert (await admin.open(ONE)).status == 404
