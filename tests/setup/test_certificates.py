"""The certificates and metadata that a set-up link proposes, and their validity."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.federation.connections import health
from core.kernel.display import format_utc
from core.kernel.values import new_id
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.federation.connections.saml.test_renewal import Publisher
from tests.federation.connections.saml.visits import SSO_URL, connect
from tests.setup.test_links import STEPS, embedded, path_of, token_of
from tests.setup.test_testing import CERTIFICATE, VALUES, open_embedded
from tests.support.browser import FakeBrowser
from tests.support.builders import Api, run_sql, with_loopback_sender
from tests.support.direct import change_ports
from tests.support.saml import identity_provider_metadata, new_certificate, with_validity
from tests.support.saml.identity_provider import ENTITY_ID
from tests.support.tenants import Tenant
from tests.tenancy.api.groups.test_group_role_pages import browser_of


@pytest.mark.slow
async def test_a_proposed_certificate_that_is_not_valid_now_is_named_to_the_reader_and_the_admin(
    app: QuartTrio, acme: Tenant, api: Api, ports: Ports, clock: FakeClock
) -> None:
    """It can be applied all the same: the dates of a certificate refuse no sign-in."""
    await connect(ports, acme.org)
    admin, now = await browser_of(app, acme, "admin"), clock.now()
    expired, future, valid = [await new_certificate(now + timedelta(days=days)) for days in (-2000, 2, 0)]
    words = {
        "certificate_expired": f"A new certificate expired on {format_utc(expired.valid_until)}.",
        "certificate_not_yet_valid": f"A new certificate is not valid before {format_utc(future.valid_from)}.",
    }
    reader = await open_embedded(app, acme, connection="okta", parts=["certificate", "connection"])
    [link] = (await api.get(f"{acme.path}/setup-links", token=acme.token("admin"))).json["setup_links"]
    await reader.submit(f"{STEPS}/connection", STEPS, preset="okta", protocol="saml")
    values = {"entity_id": ENTITY_ID, "sso_url": SSO_URL}
    for pems, codes in (((expired, future), [*words]), ((valid,), [])):
        text = "\n".join(each.certificate for each in pems)
        for path, form in ((CERTIFICATE, {"new_certificate": text}), (VALUES, {**values, "certificate": text})):
            assert (await reader.submit(path, STEPS, **form)).status == 303
        proposals = (await api.get(f"{acme.path}/setup-links/{link['id']}", token=acme.token("admin"))).json["proposals"]
        for proposal in proposals:
            assert [each["code"] for each in proposal["problems"]] == codes, proposal["part"]
            assert all(each["message"].startswith(words[each["code"]]) for each in proposal["problems"])
        for page in (await reader.open(STEPS), await admin.open(f"/app/organizations/acme/setup-links/{link['id']}")):
            assert [page.text.count(sentence) for sentence in words.values()] == [2 * bool(codes)] * 2, "once in each of two parts"
    metadata = with_validity(identity_provider_metadata(ENTITY_ID, certificates=[expired.certificate]), "2020-02-29T12:30:00Z")
    for path, start in ((f"{CERTIFICATE}/metadata", "new_"), (f"{STEPS}/connection/metadata", "")):
        refused = await reader.submit(path, STEPS, **{f"{start}metadata": metadata, f"{start}metadata_url": ""})
        assert (refused.status, "This metadata was valid until 29 February 2020 at 12:30 UTC." in refused.text) == (400, True)


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    with Publisher() as server:
        yield server


async def test_new_metadata_replace_the_certificates_that_a_link_took_from_earlier_ones(
    app: QuartTrio, acme: Tenant, api: Api, ports: Ports, pool: Pool, clock: FakeClock, publisher: Publisher
) -> None:
    """Certificates that the reader typed, or took from a file while the metadata have an address, stay."""
    reaching, admin = with_loopback_sender(ports), acme.token("admin")
    change_ports(app, sender=reaching.sender)
    names = ("typed", "filed", "first", "second", "third")
    typed, filed, *published = [(await new_certificate(clock.now(), name)).certificate for name in names]

    async def apply(part: str, step: str, product: dict[str, str], form: dict[str, str], **values: str) -> dict[str, Any]:
        """Send forms to the steps of a part of a new link, and let an admin apply it. Return the connection."""
        link, reader = await embedded(acme, parts=[part], **values), FakeBrowser(app)
        await reader.fill(await reader.open(path_of(link)), token=token_of(link))
        for path, fields in ((f"{STEPS}/{part}", product), (f"{STEPS}/{part}{step}", form)):
            if fields:
                assert (await reader.submit(path, STEPS, **fields)).status == 303
        applied = await api.post(f"{acme.path}/setup-links/{link['id']}/parts/{part}/apply", token=admin)
        assert applied.status == 200, applied.text
        connection: dict[str, Any]
        [connection] = (await api.get(f"{acme.path}/connections", token=admin)).json["connections"]
        return connection

    async def problems(connection: dict[str, Any]) -> list[str]:
        checked = await api.post(f"{acme.path}/connections/{connection['slug']}/check", token=admin)
        return [each["code"] for each in checked.json["problems"] if each["code"] != "no_domain"]

    address = f"{publisher.address}/metadata"
    publisher.publish(published[0])
    product = {"preset": "keycloak", "protocol": "saml"}
    connection = await apply("connection", "/metadata", product, {"metadata": "", "metadata_url": address})
    assert await problems(connection) == []
    publisher.publish(published[1])
    file = identity_provider_metadata(ENTITY_ID, certificates=[filed])
    for step, form in (
        ("/metadata", {"new_metadata": "", "new_metadata_url": address}),
        ("/metadata", {"new_metadata": file, "new_metadata_url": ""}),
        ("", {"new_certificate": typed}),
    ):
        await apply("certificate", step, {}, form, connection=connection["slug"])
    publisher.publish(published[2], typed)
    assert await problems(connection) == ["metadata_changed"]
    await run_sql(pool, "update connections set state = 'active' where org_id is not null")
    await health.refresh_due(reaching, new_id())
    assert await problems(connection) == []
    rows = await run_sql(pool, "select certificate, source from connection_certificates")
    expected = {(published[2], "metadata"), (filed, "admin"), (typed, "admin")}
    assert {(pem.strip(), source) for pem, source in rows} == {(pem.strip(), source) for pem, source in expected}
