"""An identity provider's metadata, our metadata for it, and checking a SAML connection."""

from datetime import timedelta
from typing import Any, Final

import pytest
from lxml import etree
from psycopg.types.json import Jsonb
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.federation.saml.model.configuration import NameIdFormat
from core.kernel.values import new_id
from ports import Ports
from tests.fakes.http_server import Answer, FakeServer, ReceivedRequest
from tests.fakes.outside import FakeClock
from tests.federation.connections.saml.saml_case import SSO_URL, connect
from tests.support.browser import FakeBrowser
from tests.support.builders import Api, run_sql, with_loopback_sender
from tests.support.connections import add_connection
from tests.support.direct import change_ports
from tests.support.saml import NS, identity_provider_metadata, new_certificate, service_provider_metadata, with_validity
from tests.support.saml.identity_provider import ENTITY_ID, IdentityProvider
from tests.support.tenants import Tenant

pytestmark = pytest.mark.slow

API: Final = "/api/organizations/acme/connections/okta"
PAGE: Final = "/app/organizations/acme/connections/okta"
PAST: Final = "2020-02-29T12:30:00Z"
FUTURE: Final = "2999-01-01T00:00:00.000Z"
EXPIRED: Final = "This metadata was valid until 29 February 2020 at 12:30 UTC. Ask the identity provider for its present metadata."


class MetadataServer(FakeServer):
    """A server that publishes metadata."""

    answer = Answer(404)

    def _reply(self, request: ReceivedRequest) -> Answer:
        return self.answer


async def imported(api: Api, acme: Tenant, **source: str) -> Any:
    return await api.post(f"{API}/metadata", source, token=acme.token("admin"))


async def test_metadata_give_the_values_and_certificates(
    app: QuartTrio, api: Api, acme: Tenant, ports: Ports, pool: Pool, provider: IdentityProvider
) -> None:
    """Certificates from earlier metadata go. Certificates that an admin added stay, even if the metadata have them."""
    change_ports(app, sender=with_loopback_sender(ports).sender)
    await connect(ports, acme.org, entity_id="", sso_url="")
    by_admin, former, newer = provider.certificate.certificate, *(each.certificate for each in provider.others)
    both = {"HTTP-POST": "https://idp.example.com/post", "HTTP-Redirect": SSO_URL}
    slo = 'https://idp.example.com/slo" ResponseLocation="https://idp.example.com/done'
    document = "\ufeff\n" + identity_provider_metadata(
        ENTITY_ID, sso=both, slo=slo, certificates=[by_admin, former, "bm8gY2VydGlmaWNhdGU="]
    )
    answer = await imported(api, acme, metadata=document)
    assert answer.status == 200, answer.text
    expected = {"entity_id": ENTITY_ID, "sso_url": SSO_URL, "sso_binding": "redirect", "slo_url": "https://idp.example.com/slo"}
    expected["slo_response_url"] = "https://idp.example.com/done"
    assert {name: answer.json["saml"][name] for name in expected} == expected
    assert {each["certificate"] for each in answer.json["certificates"]} == {by_admin, former}
    with MetadataServer() as server:
        by_post = identity_provider_metadata(ENTITY_ID, sso={"HTTP-POST": SSO_URL}, slo=None, certificates=[newer])
        server.answer = Answer(200, by_post.encode())
        answer = await imported(api, acme, url=f"{server.address}/metadata")
        assert answer.status == 200, answer.text
        saml = answer.json["saml"]
        assert (saml["sso_binding"], saml["slo_url"], saml["metadata_url"]) == ("post", expected["slo_url"], f"{server.address}/metadata")
        assert {each["certificate"] for each in answer.json["certificates"]} == {by_admin, newer}
        check = await api.post(f"{API}/check", token=acme.token("admin"))
        assert [each["code"] for each in check.json["problems"]] == ["no_domain"]
        server.answer = Answer(200, identity_provider_metadata(ENTITY_ID, certificates=[former]).encode())
        check = await api.post(f"{API}/check", token=acme.token("admin"))
        assert [each["code"] for each in check.json["problems"]] == ["metadata_changed", "no_domain"]
        emails = [NameIdFormat.EMAIL, NameIdFormat.TRANSIENT]
        server.answer = Answer(200, identity_provider_metadata(ENTITY_ID, certificates=[newer], formats=emails).encode())
        for [problem, *_] in (
            (await api.post(f"{API}/check", token=acme.token("admin"))).json["problems"],
            (await imported(api, acme, url=f"{server.address}/metadata")).json["problems"],
        ):
            assert problem["code"] == "name_id_format_unsupported"
            assert "lack the NameID format persistent" in problem["message"]
            assert "Choose emailAddress here, or add the format there." in problem["message"]
        server.answer = Answer(200, b" " * 128 * 1024)
        check = await api.post(f"{API}/check", token=acme.token("admin"))
        assert [each["code"] for each in check.json["problems"]] == ["metadata_unusable", "no_domain"]
        assert "less than 128 KiB" in (await imported(api, acme, url=server.address)).text
    sql = "select action from audit_log where action like 'connection.certificate.%%' order by created_at, xmin::text::bigint, ctid"
    assert [action.rpartition(".")[2] for (action,) in await run_sql(pool, sql)] == ["added", "removed", "added"]


async def test_unusable_metadata_change_nothing(api: Api, acme: Tenant, ports: Ports, pool: Pool, provider: IdentityProvider) -> None:
    await connect(ports, acme.org)
    honest = identity_provider_metadata(ENTITY_ID, certificates=[provider.others[0].certificate])
    two = honest.replace(
        "</md:EntityDescriptor>", honest.partition('">')[2].partition("</md:EntityDescriptor>")[0] + "</md:EntityDescriptor>"
    )
    cases = {
        "empty": (400, "not SAML metadata", ""),
        "a page": (400, "not SAML metadata", "<html/>"),
        "of an application": (400, "no identity provider", service_provider_metadata()),
        "two": (400, "several identity providers", two),
        "without a certificate": (400, "certificate must be", identity_provider_metadata(certificates=[])),
        "with entities": (400, "not SAML metadata", f'<!DOCTYPE a [<!ENTITY b "b">]>{honest.partition("?>")[2]}'),
        "by http": (400, "sign-in URL is not valid", identity_provider_metadata(ENTITY_ID, sso={"HTTP-POST": "http://idp.example.com"})),
        "of another": (409, "Create another connection", identity_provider_metadata("https://another.example.com")),
    }
    rows = "select settings::text from connections where org_id is not null union all select fingerprint from connection_certificates"
    before = await run_sql(pool, rows)
    await run_sql(pool, "update connections set first_activated_at = now() where org_id is not null")
    findings = []
    for name, (status, words, document) in cases.items():
        answer = await imported(api, acme, metadata=document)
        findings += [(name, answer.text)] if (answer.status, words in answer.text) != (status, True) else []
    assert findings == []
    assert await run_sql(pool, rows) == before
    await add_connection(ports.storage, acme.org, "oidc")
    answer = await api.post(f"{API[: -len('okta')]}oidc/metadata", {"metadata": honest}, token=acme.token("admin"))
    assert (answer.status, "OpenID Connect" in answer.text) == (409, True)


async def test_metadata_that_have_expired_are_named_with_their_date(
    app: QuartTrio, api: Api, acme: Tenant, ports: Ports, provider: IdentityProvider
) -> None:
    """An import takes their values, as an application's import does. Expired metadata are no source for later changes."""
    change_ports(app, sender=with_loopback_sender(ports).sender)
    await connect(ports, acme.org)
    honest = identity_provider_metadata(ENTITY_ID, certificates=[provider.certificate.certificate])
    for ends in ((PAST,), (FUTURE, PAST), (FUTURE, FUTURE, PAST)):
        [problem] = (await imported(api, acme, metadata=with_validity(honest, *ends))).json["problems"]
        assert (problem["code"], problem["is_error"]) == ("metadata_expired", False), ends
        assert problem["message"] == EXPIRED
    for ends in ((FUTURE, FUTURE, FUTURE), ("yesterday",)):
        assert (await imported(api, acme, metadata=with_validity(honest, *ends))).json["problems"] == [], ends
    with MetadataServer() as server:
        server.answer = Answer(200, with_validity(honest, PAST).encode())
        assert (await imported(api, acme, url=server.address)).status == 200
        check = await api.post(f"{API}/check", token=acme.token("admin"))
    assert {"code": "metadata_expired", "is_error": False, "message": EXPIRED} in check.json["problems"]


async def test_an_import_and_a_check_say_that_certificates_were_left_out(
    app: QuartTrio, api: Api, acme: Tenant, ports: Ports, pool: Pool, clock: FakeClock
) -> None:
    """A certificate that the metadata repeat counts once."""
    change_ports(app, sender=with_loopback_sender(ports).sender)
    await connect(ports, acme.org)
    await run_sql(pool, "delete from connection_certificates")
    nine = [(await new_certificate(clock.now(), f"idp {number}")).certificate for number in range(9)]
    with MetadataServer() as server:
        for certificates, expected in (([*nine[:8], nine[0]], []), (nine, ["certificates_left_out"])):
            server.answer = Answer(200, identity_provider_metadata(ENTITY_ID, certificates=certificates).encode())
            answer = await imported(api, acme, url=server.address)
            assert (answer.status, {each["certificate"] for each in answer.json["certificates"]} >= set(nine[1:8])) == (200, True)
            check = await api.post(f"{API}/check", token=acme.token("admin"))
            problems = [[each for each in found.json["problems"] if each["code"] != "no_domain"] for found in (answer, check)]
            assert [[each["code"] for each in found] for found in problems] == [expected, expected]
    assert "have 9 certificates, and only the first 8 are used" in problems[0][0]["message"]


async def test_the_page_imports_metadata_and_keeps_what_was_typed(owner_browser: FakeBrowser, ports: Ports, pool: Pool) -> None:
    [(org_id,)] = await run_sql(pool, "select id from organizations where slug = 'acme'")
    await connect(ports, org_id)
    warning = "A pasted text or a file also removes the metadata URL"
    assert warning not in (await owner_browser.open(PAGE)).text
    sql = "update connections set settings = settings || %s where org_id is not null"
    address = f"https://idp.example.com/metadata?of={':'.join(['ab'] * 32)}"
    await run_sql(pool, sql, Jsonb({"metadata_url": address}))
    page = (await owner_browser.open(PAGE)).text
    assert (warning in page, f'value="{address}"' in page) == (True, True), "a stored value stays, also if it looks like a key"
    refused = await owner_browser.submit(f"{PAGE}/metadata", PAGE, url="", metadata="<nothing/>")
    assert refused.status == 400
    for shown in ("not SAML metadata", "&lt;nothing/&gt;", ENTITY_ID, f'value="{address}"'):
        assert shown in refused.text, shown
    saved = await owner_browser.submit(f"{PAGE}/metadata", PAGE, url="", metadata=identity_provider_metadata("urn:new"))
    assert saved.status == 303
    page = (await owner_browser.open(PAGE)).text
    assert ('value="urn:new"' in page, warning in page) == (True, False)
    expired = await owner_browser.submit(f"{PAGE}/metadata", PAGE, url="", metadata=with_validity(identity_provider_metadata(), PAST))
    assert (expired.status, EXPIRED in expired.text, "Your values are saved." in expired.text) == (200, True, True)


async def test_our_metadata_have_the_keys_of_a_rotation(api: Api, acme: Tenant, ports: Ports, provider: IdentityProvider) -> None:
    saml_case = await connect(ports, acme.org)
    path = f"/auth/connections/{saml_case.connection.id}/metadata"

    async def keys() -> list[tuple[str, str]]:
        answer = await api.get(path)
        assert answer.headers["Content-Type"] == "application/samlmetadata+xml"
        root = etree.fromstring(answer.text.encode())
        assert (root.get("entityID"), root.find(".//md:AssertionConsumerService", NS).get("Location")) == (
            saml_case.entity_id,
            f"{saml_case.entity_id}/acs",
        )
        return [
            (each.get("use"), each.findtext(".//ds:X509Certificate", namespaces=NS)) for each in root.iter(f"{{{NS['md']}}}KeyDescriptor")
        ]

    ours, following = ("".join(each.certificate.splitlines()[1:-1]) for each in (provider.ours, provider.our_next))
    assert await keys() == [("signing", ours), ("signing", following), ("encryption", ours)]
    assert (await api.post(f"{API}/keys/activate", token=acme.token("admin"))).status == 200
    assert await keys() == [("signing", following), ("encryption", following)]
    openid = await add_connection(ports.storage, acme.org, "oidc")
    for unknown in (openid.id, new_id(), "x"):
        assert (await api.get(f"/auth/connections/{unknown}/metadata")).status == 404


async def test_the_check_finds_missing_values_and_certificates_that_end(
    api: Api, acme: Tenant, ports: Ports, pool: Pool, clock: FakeClock
) -> None:
    await connect(ports, acme.org, name_id_format="urn:oasis:names:tc:SAML:1.1:nameid-format:emailAddress", sso_url="")

    async def codes() -> list[str]:
        return [each["code"] for each in (await api.post(f"{API}/check", token=acme.token("admin"))).json["problems"]]

    assert await codes() == ["missing_sso_url"]
    settings = 'update connections set settings = settings || \'{"sso_url": "https://idp.example.com/sso"}\' where org_id is not null'
    await run_sql(pool, settings)
    assert await codes() == ["name_id_can_change", "no_domain"]
    await run_sql(pool, "update connection_keys set valid_until = %s", clock.now() + timedelta(days=60))
    assert await codes() == ["own_certificate_expires", "name_id_can_change", "no_domain"]
    await run_sql(pool, "update connection_certificates set valid_until = %s", clock.now())
    assert await codes() == ["certificate_expired", "name_id_can_change", "no_domain"]
