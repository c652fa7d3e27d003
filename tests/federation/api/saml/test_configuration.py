"""A service's SAML configuration, certificates and metadata.

Covers security X-4 and X-11, and decisions 172, 184, 185, 186.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from lxml import etree
from onelogin.saml2.xml_utils import OneLogin_Saml2_XML

from adapters.postgres.engine.pool import Pool
from adapters.postgres.federation.saml.configuration import secret_context
from core.accounts.model.accounts import Account
from core.federation.saml.model.configuration import NameIdFormat
from core.kernel.causes import SYSTEM
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.support.builders import (
    BASE_URL,
    Answer,
    Api,
    add_account,
    add_platform_owner,
    impersonate,
    make_vault,
    mark_created_by,
    run_concurrently,
    run_sql,
)
from tests.support.saml import NS, add_application, new_certificate
from tests.support.saml.browser import SamlBrowser
from tests.support.services import add_service, add_service_user
from tests.support.tenants import Tenant

PATH: Final = "/api/organizations/acme/services/shop/saml"
PLAIN: Final = {"enabled": True, "entity_id": "urn:shop", "acs_url": "https://shop.example.com/acs"}
FULL: Final = {
    "enabled": True,
    "entity_id": "https://shop.example.com/metadata",
    "acs_url": "https://shop.example.com/acs?tenant=1",
    "slo_url": "http://localhost:3000/slo",
    "slo_response_url": "http://localhost:3000/slo-responses",
    "name_id_format": NameIdFormat.PERSISTENT.value,
    "attribute_mapping": {"email": "mail", "id": "uid"},
    "sign_assertions": True,
    "sign_response": False,
}
NOTHING: Final = {
    "enabled": False,
    "entity_id": None,
    "acs_url": None,
    "slo_url": None,
    "slo_response_url": None,
    "slo_certificate": None,
    "name_id_format": None,
    "attribute_mapping": None,
    "attribute_formats": None,
    "sign_assertions": True,
    "sign_response": True,
    "has_certificate": False,
    "identity_provider": {
        "entity_id": f"{BASE_URL}/saml/acme/shop",
        **{f"{name}_url": f"{BASE_URL}/saml/acme/shop/{name}" for name in ("metadata", "sso", "slo")},
    },
}


class Shop:
    """A service, managed by an admin through the API."""

    def __init__(self, api: Api, acme: Tenant) -> None:
        self._api, self._acme = api, acme

    async def configure(self, body: Mapping[str, Any], by: str = "admin") -> Answer:
        return await self._api.post(PATH, body, token=self._acme.token(by))

    async def settings(self) -> Any:
        answer = await self._api.get(PATH, token=self._acme.token("member"))
        assert answer.status == 200, answer.text
        return answer.json

    async def disable(self) -> Answer:
        return await self._api.delete(PATH, token=self._acme.token("admin"))

    async def new_certificate(self) -> Answer:
        return await self._api.call("POST", f"{PATH}/certificate", token=self._acme.token("admin"))

    async def certificate(self) -> Answer:
        return await self._api.get(f"{PATH}/certificate", token=self._acme.token("member"))


@pytest.fixture
async def shop(api: Api, acme: Tenant, pool: Pool) -> Shop:
    await add_service(pool, acme.org)
    return Shop(api, acme)


async def test_the_default_configuration_is_disabled(shop: Shop) -> None:
    assert await shop.settings() == NOTHING
    assert (await shop.certificate()).code == "NOT_FOUND"


async def test_a_configuration_replaces_the_previous_one(shop: Shop, acme: Tenant, clock: FakeClock) -> None:
    slo_certificate = (await new_certificate(clock.now(), "the application")).certificate
    answer = await shop.configure({**FULL, "slo_certificate": f"subject=shop\r\n{slo_certificate.strip()}"})
    assert (answer.status, answer.json["success"]) == (200, True)
    assert answer.json.keys() == {"success", "message"}
    assert await shop.settings() == {**NOTHING, **FULL, "slo_certificate": slo_certificate, "has_certificate": False}
    await shop.configure(PLAIN)
    assert await shop.settings() == {**NOTHING, **PLAIN, "name_id_format": NameIdFormat.EMAIL.value}
    await shop.configure(PLAIN)
    actions = [entry for entry in await acme.log() if entry["action"] == "saml.configured"]
    assert len(actions) == 2, "the third request changed nothing"
    changes = actions[0]["details"]["changes"]
    assert changes["acs_url"] == {"old": None, "new": FULL["acs_url"]}
    fingerprint = x509.load_pem_x509_certificate(slo_certificate.encode()).fingerprint(hashes.SHA256()).hex()
    assert changes["slo_certificate_sha256"] == {"old": None, "new": fingerprint}
    assert (await acme.actions())["saml.configured"] == 2


@pytest.mark.parametrize("format_", NameIdFormat)
async def test_formats_have_short_names(shop: Shop, format_: NameIdFormat) -> None:
    for text in (format_.value, format_.value.rpartition(":")[2]):
        assert (await shop.configure({**PLAIN, "name_id_format": text})).status == 200
        assert (await shop.settings())["name_id_format"] == format_.value


REFUSED: Final[Mapping[str, Mapping[str, Any]]] = {
    "no entity id": {"entity_id": None},
    "an empty entity id": {"entity_id": ""},
    "an entity id of spaces": {"entity_id": "  "},
    "a long entity id": {"entity_id": "x" * 1025},
    "a control character in the entity id": {"entity_id": "a\nb"},
    "no ACS URL": {"acs_url": None},
    "an empty ACS URL": {"acs_url": ""},
    **{
        f"the ACS URL {url}": {"acs_url": url}
        for url in (
            "http://shop.example.com/acs",
            "ftp://shop.example.com/acs",
            "javascript:alert(1)",
            "data:text/html,x",
            "//shop.example.com/acs",
            "/acs",
            "https://user@shop.example.com/acs",
            "https://shop.example.com/acs#x",
            "https://shop.example.com/a b",
            "https://",
            "https://shop.example.com/" + "x" * 2048,
        )
    },
    "an SLO URL without https": {"slo_url": "http://shop.example.com/slo"},
    "an empty SLO URL": {"slo_url": ""},
    "a URL for logout responses without https": {"slo_response_url": "http://shop.example.com/slo"},
    "an unknown format": {"name_id_format": "kerberos"},
    "an empty format": {"name_id_format": ""},
    "an unknown source": {"attribute_mapping": {"password": "x"}},
    "a source without name": {"attribute_mapping": {"email": ""}},
    "one name twice": {"attribute_mapping": {"email": "x", "id": "x"}},
    "a long name": {"attribute_mapping": {"email": "x" * 257}},
    "a name that is not text": {"attribute_mapping": {"email": 5}},
    "nothing signed": {"sign_assertions": False, "sign_response": False},
    "a flag that is not a boolean": {"sign_assertions": "yes"},
    "no enabled": {"enabled": None},
}


async def test_invalid_configurations_are_refused(shop: Shop) -> None:
    findings = []
    for mistake, changes in REFUSED.items():
        answer = await shop.configure({**PLAIN, **changes})
        if (answer.status, answer.code) != (400, "BAD_REQUEST") or await shop.settings() != NOTHING:
            findings.append((mistake, answer.status, answer.text))
    assert findings == []


async def test_unusual_valid_configurations_are_accepted(shop: Shop) -> None:
    for url in ("https://shop.example.com", "http://localhost:3000/acs", "http://127.0.0.1/acs", "http://[::1]:8080/acs"):
        assert (await shop.configure({**PLAIN, "acs_url": url, "slo_url": url})).status == 200, url


def self_signed(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey, years: int = 1) -> str:
    name, start = x509.Name([]), datetime(2000, 1, 1)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(1)
    certificate = builder.not_valid_before(start).not_valid_after(start + timedelta(days=365 * years)).sign(key, hashes.SHA256())
    return certificate.public_bytes(Encoding.PEM).decode()


async def test_a_logout_certificate_is_one_x509_certificate_with_an_rsa_key_of_2048_bits(shop: Shop, clock: FakeClock) -> None:
    """The certificate's validity does not matter, because an admin registered it."""
    certificate = await new_certificate(clock.now(), "the application")
    pem, private_key = certificate.certificate, certificate.private_key().decode()
    assert (await shop.configure({**PLAIN, "slo_certificate": self_signed(rsa.generate_private_key(65537, 2048))})).status == 200
    before = await shop.settings()
    refused = {
        "empty": "",
        "not a certificate": "x",
        "base64 only": "".join(pem.splitlines()[1:-1]),
        "truncated": pem[: len(pem) // 2],
        "damaged": pem.replace("A", "B"),
        "two certificates": pem + pem,
        "a private key": private_key,
        "a private key, too": pem + private_key,
        "a weak key": self_signed(rsa.generate_private_key(65537, 1024)),  # noqa: S505
        "an elliptic curve": self_signed(ec.generate_private_key(ec.SECP256R1())),
        "too long": "x" * 16384 + pem,
    }
    answers = {case: await shop.configure({**PLAIN, "slo_certificate": text}) for case, text in refused.items()}
    assert {case: (answer.status, "certificate for logouts" in answer.text) for case, answer in answers.items()} == dict.fromkeys(
        refused, (400, True)
    )
    assert not any("PRIVATE" in answer.text for answer in answers.values())
    assert await shop.settings() == before


async def test_a_disabled_configuration_needs_no_fields(shop: Shop) -> None:
    assert (await shop.configure({"enabled": False})).status == 200
    assert (await shop.new_certificate()).code == "BAD_REQUEST"


async def test_a_certificate_is_valid_for_three_years(shop: Shop, acme: Tenant, pool: Pool) -> None:
    await shop.configure(PLAIN)
    answer = await shop.new_certificate()
    assert answer.status == 200, answer.text
    certificate = answer.json
    assert certificate.keys() == {"public_key", "valid_from", "valid_until", "is_active", "created_at"}
    assert (certificate["valid_from"], certificate["valid_until"], certificate["is_active"]) == (
        "2026-03-14T15:09:26Z",
        "2029-03-14T15:09:26Z",
        True,
    )
    assert (await shop.certificate()).json == certificate
    assert (await shop.settings())["has_certificate"] is True
    parsed = x509.load_pem_x509_certificate(certificate["public_key"].encode())
    key = parsed.public_key()
    assert isinstance(key, rsa.RSAPublicKey)
    assert key.key_size == 2048
    assert parsed.signature_hash_algorithm is not None
    assert parsed.signature_hash_algorithm.name == "sha256"
    assert (parsed.not_valid_before_utc, parsed.not_valid_after_utc) == (
        datetime.fromisoformat(certificate["valid_from"]),
        datetime.fromisoformat(certificate["valid_until"]),
    )
    entry = await acme.entry("saml.certificate.created")
    assert entry["details"]["valid_until"] == certificate["valid_until"]
    [(id_, sealed)] = await run_sql(pool, "select id, private_key from saml_certificates")
    assert b"PRIVATE" not in sealed
    private = load_pem_private_key(make_vault().open(sealed, secret_context(id_)), None)
    assert isinstance(private, rsa.RSAPrivateKey)
    assert private.public_key() == key


@pytest.mark.slow
async def test_a_new_certificate_replaces_the_old_one_and_deletes_its_key(shop: Shop, pool: Pool) -> None:
    await shop.configure(PLAIN)
    first, second = (await shop.new_certificate()).json, (await shop.new_certificate()).json
    assert first["public_key"] != second["public_key"]
    assert (await shop.certificate()).json == second
    certificates = await run_sql(
        pool, "select private_key is null, deactivated_at is null from saml_certificates order by deactivated_at nulls last"
    )
    assert certificates == [(True, False), (False, True)]


@pytest.mark.slow
async def test_of_several_parallel_certificates_one_is_active(shop: Shop, pool: Pool) -> None:
    await shop.configure(PLAIN)
    answers = await run_concurrently(5, lambda _: shop.new_certificate())
    assert [answer.status for answer in answers] == [200] * 5
    assert await run_sql(pool, "select count(*) from saml_certificates where deactivated_at is null") == [(1,)]


@pytest.mark.slow
async def test_enabling_again_needs_a_new_certificate(shop: Shop, acme: Tenant, api: Api) -> None:
    await shop.configure(FULL)
    await shop.new_certificate()
    answer = await shop.disable()
    assert (answer.status, answer.json["success"]) == (200, True)
    assert await shop.settings() == {**NOTHING, **FULL, "enabled": False, "slo_certificate": None, "has_certificate": False}
    assert (await shop.disable()).status == 200
    await shop.configure(FULL)
    assert (await shop.settings())["has_certificate"] is False
    assert (await api.get("/saml/acme/shop/metadata")).status == 404
    assert (await acme.actions())["saml.disabled"] == 1


async def test_an_impersonator_cannot_create_certificates(api: Api, shop: Shop, acme: Tenant, ports: Ports) -> None:
    await shop.configure(PLAIN)
    token = await impersonate(ports, await add_platform_owner(ports), acme.people["owner"], acme.org)
    for method, path in (("POST", f"{PATH}/certificate"), ("GET", f"{PATH}/login")):
        answer = await api.call(method, path, token=token)
        assert (answer.status, answer.code) == (403, "FORBIDDEN")


async def test_other_services_are_not_found(api: Api, shop: Shop, acme: Tenant) -> None:
    for method, path in (("POST", ""), ("GET", ""), ("DELETE", ""), ("POST", "/certificate"), ("GET", "/certificate"), ("GET", "/login")):
        body = PLAIN if (method, path) == ("POST", "") else None
        answer = await api.call(method, f"/api/organizations/acme/services/other/saml{path}", body, token=acme.token("owner"))
        assert (answer.status, answer.code) == (404, "NOT_FOUND"), (method, path)


# Metadata, validated with the SAML schemas


async def test_the_metadata(api: Api, ports: Ports, pool: Pool, acme: Tenant) -> None:
    shop = await add_application(ports, pool, acme.org, acme.slug, name_id_format=NameIdFormat.TRANSIENT)
    answer = await api.get(f"{shop.path}/metadata")
    assert answer.headers["Content-Type"] == "application/samlmetadata+xml"
    root = etree.fromstring(answer.text.encode())
    assert root.tag == f"{{{NS['md']}}}EntityDescriptor"
    assert root.get("entityID") == shop.issuer
    [role] = root
    assert dict(role.attrib) == {"WantAuthnRequestsSigned": "false", "protocolSupportEnumeration": NS["samlp"]}
    assert [child.tag.rpartition("}")[2] for child in role] == [
        "KeyDescriptor", "SingleLogoutService", "SingleLogoutService", "NameIDFormat", "SingleSignOnService", "SingleSignOnService",
    ]  # fmt: skip
    assert role[0].get("use") == "signing"
    assert shop.certificate is not None
    assert "".join(role[0].itertext()).strip() in shop.certificate.certificate.replace("\n", "")
    assert role[3].text == NameIdFormat.TRANSIENT.value
    bindings = [(child.get("Binding").rpartition(":")[2], child.get("Location")) for child in (*role[1:3], *role[4:6])]
    assert bindings == [(kind, f"{shop.issuer}/{endpoint}") for endpoint in ("slo", "sso") for kind in ("HTTP-Redirect", "HTTP-POST")]


@pytest.mark.slow
@pytest.mark.parametrize("format_", NameIdFormat)
async def test_documents_are_valid_by_the_schemas(
    app: Any, api: Api, ports: Ports, pool: Pool, acme: Tenant, user: Account, clock: FakeClock, format_: NameIdFormat
) -> None:
    shop = await add_application(ports, pool, acme.org, acme.slug, name_id_format=format_)
    await add_service_user(ports, shop.id, user.id, signed_in=False)
    browser = SamlBrowser(app, clock)
    response = await browser.sign_on(shop, IsPassive="true")
    await browser.sign_in()
    documents = {
        "saml-schema-metadata-2.0.xsd": [(await api.get(f"{shop.path}/metadata")).text.encode()],
        "saml-schema-protocol-2.0.xsd": [response.document, (await browser.sign_on(shop)).document],
    }
    for schema, examples in documents.items():
        for document in examples:
            assert not isinstance(OneLogin_Saml2_XML.validate_xml(document, schema), str), document


# Records


async def test_anonymization_removes_the_names_at_applications(
    app: Any, ports: Ports, pool: Pool, acme: Tenant, api: Api, clock: FakeClock
) -> None:
    shop = await add_application(ports, pool, acme.org, acme.slug, name_id_format=NameIdFormat.PERSISTENT)
    user = await add_account(ports)
    await acme.join("ada", user)
    await mark_created_by(pool, acme.org, user.id)
    browser = SamlBrowser(app, clock)
    await browser.sign_in()
    await browser.sign_on(shop)
    tables = ("saml_name_ids", "saml_sessions")
    assert [await run_sql(pool, f"select count(*) from {table}") for table in tables] == [[(1,)]] * 2  # noqa: S608
    assert (await api.delete(f"/api/privacy/forget/{user.id}", token=acme.token("owner"))).status == 200
    assert [await run_sql(pool, f"select count(*) from {table}") for table in tables] == [[(0,)]] * 2  # noqa: S608


async def test_logs_and_responses_contain_no_key(shop: Shop, acme: Tenant, ports: Ports, clock: FakeClock) -> None:
    await shop.configure(PLAIN)
    await shop.new_certificate()
    assert "PRIVATE" not in str(await acme.log()) + str(await acme.webhook_events())
    clock.advance(timedelta(seconds=1))
    async with ports.storage.transaction(by=SYSTEM) as tx:
        service = await tx.services.by_slug(acme.org, "shop")
        assert service is not None
        assert "PRIVATE" not in repr(await tx.saml.certificate(acme.org, service.id))
