"""The certificates and metadata that a set-up link proposes, and their validity."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, NoReturn
from uuid import UUID

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.federation.connections import checks, health
from core.federation.saml.model.configuration import NameIdFormat
from core.kernel.callers import SetupLinkCaller, SetupPart
from core.kernel.connections import ConnectionProtocol
from core.kernel.display import format_utc
from core.kernel.errors import Limited
from core.kernel.values import new_id
from core.setup import connection, proposals
from core.setup.connection import ANOTHER, ProviderValues
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.federation.connections.saml.saml_case import SSO_URL, connect
from tests.federation.connections.saml.test_renewal import Publisher
from tests.setup.test_links import STEPS, embedded, look, path_of, token_of
from tests.setup.test_testing import CERTIFICATE, VALUES, open_embedded
from tests.support.browser import FakeBrowser
from tests.support.builders import BASE_URL, Api, run_sql, with_loopback_sender
from tests.support.direct import change_ports
from tests.support.saml import identity_provider_metadata, new_certificate, with_validity
from tests.support.saml.identity_provider import ENTITY_ID
from tests.support.tenants import Tenant
from tests.tenancy.api.groups.test_group_role_pages import browser_of


@pytest.mark.slow
async def test_a_proposed_certificate_that_is_not_valid_now_is_named_to_the_reader_and_the_admin(
    app: QuartTrio, acme: Tenant, api: Api, ports: Ports, clock: FakeClock
) -> None:
    """It can be applied all the same: a certificate's dates refuse no sign-in."""
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
        assert "&lt;md:EntityDescriptor" in refused.text, "the text comes back"


async def test_the_end_of_a_proposed_certificate_is_named_once_and_as_of_now(
    app: QuartTrio, acme: Tenant, ports: Ports, clock: FakeClock
) -> None:
    """The reader and the admin see it. The certificate ends between two looks."""
    reader = await open_embedded(app, acme, parts=["connection"])
    [link] = (await acme.api.get(f"{acme.path}/setup-links", token=acme.token("admin"))).json["setup_links"]
    await reader.submit(f"{STEPS}/connection", STEPS, preset="okta", protocol="saml")
    end = clock.now() + timedelta(minutes=2)
    ending = await new_certificate(end.replace(year=end.year - 3))
    values = {"entity_id": ENTITY_ID, "sso_url": SSO_URL, "certificate": ending.certificate}

    async def require(shown: str, code: str) -> None:
        [proposal] = (await look(acme, link))["proposals"]
        assert [each["code"] for each in proposal["problems"]] == [code]
        assert (shown.count(proposal["problems"][0]["message"]), "found no problem" in shown) == (1, False)

    await require((await reader.submit(VALUES, STEPS, **values)).text, "certificate_expires")
    clock.advance(timedelta(minutes=3))
    await require((await reader.open(STEPS)).text, "certificate_expired")
    await require((await reader.submit(f"{STEPS}/connection/check", STEPS)).text, "certificate_expired")


async def test_the_warning_about_certificates_left_out_stays_until_others_are_saved(
    app: QuartTrio, acme: Tenant, ports: Ports, clock: FakeClock
) -> None:
    """Only the metadata show it: a check and another save with the same values keep it."""
    change_ports(app, sender=with_loopback_sender(ports).sender)
    reader = await open_embedded(app, acme, parts=["connection"])
    [link] = (await acme.api.get(f"{acme.path}/setup-links", token=acme.token("admin"))).json["setup_links"]
    await reader.submit(f"{STEPS}/connection", STEPS, preset="okta", protocol="saml")
    nine = [(await new_certificate(clock.now(), f"idp {number}")).certificate.strip() for number in range(9)]
    metadata = identity_provider_metadata(ENTITY_ID, certificates=["unusable", *nine])
    values = {"entity_id": ENTITY_ID, "sso_url": SSO_URL}
    for path, form, codes in (
        (f"{STEPS}/connection/metadata", {"metadata": metadata, "metadata_url": ""}, ["certificates_left_out"]),
        (f"{STEPS}/connection/key", {}, ["certificates_left_out"]),
        (VALUES, {**values, "certificate": "\r\n".join(nine[:8])}, ["certificates_left_out"]),
        (f"{STEPS}/connection/check", {}, ["certificates_left_out"]),
        (VALUES, {**values, "certificate": "\r\n".join(nine[:7])}, []),
    ):
        answer = await reader.submit(path, STEPS, **form)
        [proposal] = (await look(acme, link))["proposals"]
        assert [each["code"] for each in proposal["problems"]] == codes, (path, answer.status)
        assert ("only the first 8 are used" in (await reader.open(STEPS)).text) is bool(codes)


async def test_a_check_that_reads_no_metadata_keeps_the_warning_about_certificates_left_out(
    app: QuartTrio, acme: Tenant, ports: Ports, clock: FakeClock, publisher: Publisher
) -> None:
    change_ports(app, sender=with_loopback_sender(ports).sender)
    reader = await open_embedded(app, acme, parts=["connection"])
    [link] = (await acme.api.get(f"{acme.path}/setup-links", token=acme.token("admin"))).json["setup_links"]
    await reader.submit(f"{STEPS}/connection", STEPS, preset="okta", protocol="saml")
    nine = [(await new_certificate(clock.now(), f"idp {number}")).certificate for number in range(9)]
    publisher.publish(*nine)
    await reader.submit(f"{STEPS}/connection/metadata", STEPS, metadata="", metadata_url=f"{publisher.address}/metadata")
    readable = publisher.document
    expired = with_validity(readable, "2020-01-01T00:00:00Z")
    for document, code in (("<nothing/>", "metadata_unusable"), (expired, "metadata_expired"), (readable, None)):
        publisher.document = document
        await reader.submit(f"{STEPS}/connection/check", STEPS)
        [proposal] = (await look(acme, link))["proposals"]
        codes = [each["code"] for each in proposal["problems"]]
        assert codes == [each for each in (code, "certificates_left_out") if each is not None]
    publisher.publish(*nine[:8])
    await reader.submit(f"{STEPS}/connection/check", STEPS)
    assert (await look(acme, link))["proposals"][0]["problems"] == []


@pytest.mark.parametrize("step", ["import", "check"])
async def test_the_problems_of_values_are_never_stored_with_their_successors(
    acme: Tenant, ports: Ports, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Another window saves different values right after an import was stored, or while a check runs that is refused."""
    link = await embedded(acme, parts=["connection"])
    parts = (SetupPart.CONNECTION,)
    reader = SetupLinkCaller(link_id=UUID(link["id"]), org_id=acme.org, name="Globex", parts=parts)
    await connection.choose(ports, reader, ANOTHER, ConnectionProtocol.SAML)
    certificate = (await new_certificate(clock.now())).certificate
    metadata = identity_provider_metadata(ENTITY_ID, certificates=[certificate], formats=[NameIdFormat.EMAIL])
    propose = proposals.propose

    async def save_successor() -> None:
        monkeypatch.setattr(proposals, "propose", propose)
        clock.advance(timedelta(seconds=1))
        values = ProviderValues(entity_id="https://successor.example", sso_url=SSO_URL, certificate=certificate)
        await connection.save(ports, reader, values)

    async def propose_and_lose(*args: Any, **changes: Any) -> None:
        await propose(*args, **changes)
        await save_successor()

    async def refuse_check(*_: Any) -> NoReturn:
        await save_successor()
        raise Limited(1)

    if step == "check":
        await connection.import_metadata(ports, reader, metadata, "")
        monkeypatch.setattr(checks, "check_saml", refuse_check)
        codes = [each.code for each in await connection.check_saved(ports, reader, BASE_URL)]
    else:
        monkeypatch.setattr(proposals, "propose", propose_and_lose)
        codes = [each.code for each in await connection.import_metadata(ports, reader, metadata, "")]
    assert codes == ["not_checked" if step == "check" else "name_id_format_unsupported"]
    document = (await proposals.load(ports, reader)).proposals[SetupPart.CONNECTION].document
    assert (document.entity_id, document.problems) == ("https://successor.example", None)


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
        """Send forms to a new link's steps for a part, and let an admin apply it. Return the connection."""
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
