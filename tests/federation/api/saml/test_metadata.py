"""Importing an application's metadata, and checking the SAML configuration."""

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import pytest
from onelogin.saml2.settings import OneLogin_Saml2_Settings

from adapters.postgres.engine.pool import Pool
from core.federation.saml.model.configuration import NameIdFormat
from core.federation.saml.model.messages import HTTP_POST
from core.federation.saml.model.metadata import MAX_METADATA_LENGTH, MetadataInvalid, NoServiceProvider, SeveralServiceProviders
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.support.builders import Answer, Api
from tests.support.saml import add_application, new_certificate, service_provider_metadata, with_validity
from tests.support.services import add_service
from tests.support.tenants import Tenant

if TYPE_CHECKING:
    from core.kernel.errors import Invalid

PATH: Final = "/api/organizations/acme/services/shop/saml"
REDIRECT: Final = "urn:oasis:names:tc:SAML:2.0:bindings:HTTP-Redirect"
RESPONSES: Final = "https://shop.example.com/done"
SLO: Final = f'<md:SingleLogoutService Binding="{REDIRECT}" Location="https://shop.example.com/slo" ResponseLocation="{RESPONSES}"/>'
POST_SLO: Final = '<md:SingleLogoutService Binding="{post}" Location="https://shop.example.com/slo-post"/>'
TWO_ACS: Final = (
    '<md:AssertionConsumerService Binding="urn:oasis:names:tc:SAML:2.0:bindings:HTTP-Artifact" Location="https://a.example" index="0"/>'
    '<md:AssertionConsumerService Binding="{post}" Location="https://b.example/acs" index="1"/>'
    '<md:AssertionConsumerService Binding="{post}" Location="https://c.example/acs" index="2" isDefault="true"/>'
)


def base64_of(pem: str) -> str:
    return "\n".join(pem.strip().splitlines()[1:-1])


def codes(answer: Answer) -> list[str]:
    assert answer.status == 200, answer.text
    return [problem["code"] for problem in answer.json["problems"]]


@pytest.fixture
async def shop(acme: Tenant, pool: Pool) -> None:
    await add_service(pool, acme.org, "shop")


async def read(api: Api, acme: Tenant, metadata: str) -> Answer:
    return await api.post(f"{PATH}/metadata", {"metadata": metadata}, token=acme.token("admin"))


@pytest.mark.slow
async def test_the_metadata_of_an_application_gives_its_settings(shop: None, api: Api, acme: Tenant, clock: FakeClock) -> None:
    older, newer = await new_certificate(clock.now() - timedelta(days=400)), await new_certificate(clock.now())
    text = service_provider_metadata(
        POST_SLO,
        SLO,
        acs=TWO_ACS,
        certificates=[base64_of(older.certificate), base64_of(newer.certificate), "bm8gY2VydGlmaWNhdGU="],
        formats=["urn:example:unknown", NameIdFormat.PERSISTENT.value],
    )
    answer = await read(api, acme, "\ufeff\n" + text)
    assert codes(answer) == ["slo_certificate_unusable", "slo_certificates_several"]
    expected = {
        "entity_id": "https://shop.example.com/metadata",
        "acs_url": "https://c.example/acs",
        "slo_url": "https://shop.example.com/slo",
        "slo_response_url": RESPONSES,
        "slo_certificate": newer.certificate,
        "name_id_format": NameIdFormat.PERSISTENT.value,
    }
    assert {name: value for name, value in answer.json.items() if name != "problems"} == expected
    stored = await api.get(PATH, token=acme.token("admin"))
    assert stored.json["entity_id"] is None  # reading stores nothing
    configured = await api.post(PATH, {**expected, "enabled": True}, token=acme.token("admin"))
    assert configured.status == 200, configured.text


@pytest.mark.slow
async def test_metadata_written_by_other_projects_is_read(shop: None, api: Api, acme: Tenant) -> None:
    from saml2.config import SPConfig  # takes a second, so the other tests in this module do not wait for it
    from saml2.metadata import entity_descriptor

    acs, slo = "https://sp.example/acs", "https://sp.example/slo"
    python3_saml = OneLogin_Saml2_Settings(
        {
            "sp": {"entityId": "urn:sp", "assertionConsumerService": {"url": acs}, "singleLogoutService": {"url": slo}},
            "idp": {"entityId": "urn:idp", "singleSignOnService": {"url": "https://idp.example"}},
        },
        sp_validation_only=True,
    ).get_sp_metadata()
    endpoints = {"assertion_consumer_service": [(acs, HTTP_POST)], "single_logout_service": [(slo, REDIRECT)]}
    pysaml2 = str(entity_descriptor(SPConfig().load({"entityid": "urn:sp", "service": {"sp": {"endpoints": endpoints}}})))
    for metadata in (python3_saml.decode() if isinstance(python3_saml, bytes) else python3_saml, pysaml2):
        answer = await read(api, acme, metadata)
        assert codes(answer) == []
        assert [answer.json[name] for name in ("entity_id", "acs_url", "slo_url")] == ["urn:sp", acs, slo]


async def test_problems_of_the_metadata_are_named(shop: None, api: Api, acme: Tenant, ports: Ports, pool: Pool) -> None:
    await add_application(ports, pool, acme.org, "acme", "other", entity_id="urn:same")
    cases: Mapping[str, tuple[str, list[str]]] = {
        "nothing": (service_provider_metadata(acs="", entity_id=""), ["entity_id_missing", "acs_url_missing", "slo_url_missing"]),
        "http": (
            service_provider_metadata(SLO, acs='<md:AssertionConsumerService Binding="{post}" Location="http://shop.example.com/acs"/>'),
            ["acs_url_invalid"],
        ),
        "localhost": (
            service_provider_metadata(SLO, acs='<md:AssertionConsumerService Binding="{post}" Location="http://localhost/acs"/>'),
            ["acs_url_not_https"],
        ),
        "script": (
            service_provider_metadata(SLO, acs='<md:AssertionConsumerService Binding="{post}" Location="javascript:alert(1)"/>'),
            ["acs_url_invalid"],
        ),
        "bindings": (service_provider_metadata(POST_SLO), ["slo_binding_unsupported", "slo_url_missing"]),
        "formats": (service_provider_metadata(SLO, formats=["urn:example:unknown"]), ["name_id_format_unsupported"]),
        "duplicate": (service_provider_metadata(SLO, entity_id="urn:same"), ["entity_id_duplicate"]),
    }
    wrong = {name: found for name, (text, expected) in cases.items() if (found := codes(await read(api, acme, text))) != expected}
    assert wrong == {}


async def test_metadata_that_is_no_longer_valid_is_named_with_its_date(shop: None, api: Api, acme: Tenant, clock: FakeClock) -> None:
    def metadata(*ends: str) -> str:
        return with_validity(service_provider_metadata(SLO), *ends)

    past, future = "2020-02-29T12:30:00Z", "2999-01-01T00:00:00.000Z"
    for texts in ((past,), (future, past), (future, future, past), ("2020-02-29T13:30:00+01:00",)):
        answer = await read(api, acme, metadata(*texts))
        assert codes(answer) == ["metadata_expired"], texts
        [problem] = answer.json["problems"]
        assert ("29 February 2020 at 12:30 UTC" in problem["message"], problem["is_error"]) == (True, False)
    for texts in ((future, future, future), ("",), ("yesterday",), (" ",)):
        assert codes(await read(api, acme, metadata(*texts))) == [], texts
    now = clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    assert codes(await read(api, acme, metadata(now))) == ["metadata_expired"]


async def test_other_documents_are_refused(shop: None, api: Api, acme: Tenant) -> None:
    one = service_provider_metadata()
    descriptor = one.partition("?>")[2]
    several = f'<md:EntitiesDescriptor xmlns:md="urn:oasis:names:tc:SAML:2.0:metadata">{descriptor * 2}</md:EntitiesDescriptor>'
    bomb = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;">]>'
    external = '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>'
    cases: Mapping[str, tuple[str, type[Invalid]]] = {
        "empty": ("", MetadataInvalid),
        "html": ("<html/>", MetadataInvalid),
        "a message": ('<a:AuthnRequest xmlns:a="urn:oasis:names:tc:SAML:2.0:protocol"/>', MetadataInvalid),
        "truncated": (one[:-10], MetadataInvalid),
        "another encoding": (one.replace("UTF-8", "UTF-16"), MetadataInvalid),
        "entities": (bomb + descriptor.replace("https://shop.example.com/metadata", "&b;"), MetadataInvalid),
        "a file": (external + descriptor.replace("https://shop.example.com/metadata", "&a;"), MetadataInvalid),
        "deep": ("<a>" * 5000 + "</a>" * 5000, MetadataInvalid),
        "an identity provider": (service_provider_metadata(role="IDPSSODescriptor"), NoServiceProvider),
        "several": (several, SeveralServiceProviders),
    }
    wrong = {}
    for name, (text, refusal) in cases.items():
        answer = await read(api, acme, text)
        if (answer.status, answer.json.get("error")) != (400, refusal.__doc__):
            wrong[name] = answer.text
    assert wrong == {}
    assert (await read(api, acme, " " * (MAX_METADATA_LENGTH + 1))).status == 400


@pytest.mark.slow
async def test_the_check_names_the_problems_of_the_stored_configuration(
    api: Api, acme: Tenant, other_tenant: Tenant, ports: Ports, pool: Pool, clock: FakeClock
) -> None:
    async def check(slug: str) -> Answer:
        return await api.get(f"/api/organizations/acme/services/{slug}/saml/check", token=acme.token("member"))

    await add_service(pool, acme.org, "new")
    assert codes(await check("new")) == [*("not_enabled", "entity_id_missing", "acs_url_missing", "slo_url_missing", "certificate_missing")]
    of_the_application = (await new_certificate(clock.now() - timedelta(days=365))).certificate
    await add_application(ports, pool, acme.org, "acme", "shop", slo_certificate=of_the_application)
    await add_application(ports, pool, other_tenant.org, other_tenant.slug, "shop")  # the same entity id elsewhere is no problem
    assert codes(await check("shop")) == []
    clock.advance(timedelta(days=2 * 365 - 20))
    await acme.sign_in("member")
    assert codes(await check("shop")) == ["slo_certificate_expires_soon"]
    clock.advance(timedelta(days=360))
    await acme.sign_in("member")
    assert codes(await check("shop")) == ["slo_certificate_expired", "certificate_expires_soon"]
    clock.advance(timedelta(days=30))
    await acme.sign_in("member")
    assert codes(await check("shop")) == ["slo_certificate_expired", "certificate_expired"]
    await add_application(ports, pool, acme.org, "acme", "second", entity_id="https://shop.example.com/metadata")
    answer = await check("shop")
    assert codes(answer)[0] == "entity_id_duplicate"
    assert "second" in answer.json["problems"][0]["message"]
