"""SAML in one save: the wizard and the application page take metadata, its URL or single values, and create the certificate."""

from dataclasses import dataclass, field

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.kernel.outbound import MAX_REPLY_SIZE, Reply, SendFailed, SendFailure
from tests.accounts.api.account_pages.paths import page_text
from tests.support.browser import FakeBrowser, hidden_fields, leads_to
from tests.support.builders import Answer, Api, run_sql
from tests.support.direct import change_ports
from tests.support.saml import service_provider_metadata

pytestmark = pytest.mark.slow  # a certificate needs a new key

ROOT = "/app/organizations/acme"
NEW = f"{ROOT}/applications/new"
URL = "https://shop.example.com/metadata"
ACS = "https://shop.example.com/acs"
STORED = """
    select s.slug, c.enabled, c.entity_id, c.acs_url, (select count(*) from saml_certificates k where k.service_id = s.id)
    from services s left join saml_configurations c on c.service_id = s.id"""


@dataclass
class FakeServer:
    """A web server that publishes metadata."""

    reply: Reply | SendFailure = field(default_factory=lambda: Reply(200, service_provider_metadata().encode()))
    asked: list[str] = field(default_factory=list)

    async def get(self, url: str, within: float, at_most: int = MAX_REPLY_SIZE) -> Reply:
        self.asked.append(url)
        if isinstance(self.reply, SendFailure):
            raise SendFailed(self.reply)
        return self.reply


@pytest.fixture
def server(app: QuartTrio) -> FakeServer:
    server = FakeServer()
    change_ports(app, sender=server)
    return server


async def create(browser: FakeBrowser, **fields: str) -> Answer:
    page = await browser.open(f"{NEW}?kind=saml")
    return await browser.send(NEW, **{**hidden_fields(page), "name": "Shop", **fields})


@pytest.mark.parametrize("source", ["metadata", "metadata_url", "values"])
async def test_one_form_creates_an_application_with_a_working_sign_on(
    owner_browser: FakeBrowser, pool: Pool, server: FakeServer, api: Api, source: str
) -> None:
    values = {"entity_id": URL, "acs_url": ACS}
    fields = {"metadata": {"metadata": service_provider_metadata()}, "metadata_url": {"metadata_url": f" {URL} "}, "values": values}
    page = f"{ROOT}/applications/shop/saml"
    assert leads_to(await create(owner_browser, **fields[source])) == page
    assert await run_sql(pool, STORED) == [("shop", True, URL, ACS, 1)]
    assert server.asked == ([URL] if source == "metadata_url" else [])
    text = (await owner_browser.open(page)).text
    for shown in ("SAML set up", ">On</span>", 'href="/api/organizations/acme/services/shop/saml/login">Test sign-on</a>'):
        assert shown in text, shown
    assert ">Error</span>" not in text
    signed_on = await owner_browser.open("/api/organizations/acme/services/shop/saml/login")
    assert (signed_on.status, f'action="{ACS}"' in signed_on.text, "SAMLResponse" in signed_on.text) == (200, True, True)
    assert (await api.get("/saml/acme/shop/metadata")).status == 200


async def test_without_values_the_page_of_the_application_asks_for_them(owner_browser: FakeBrowser, pool: Pool) -> None:
    page = leads_to(await create(owner_browser))
    assert page == f"{ROOT}/applications/shop/saml"
    assert await run_sql(pool, STORED) == [("shop", None, None, None, 0)]
    form = await owner_browser.open(page)
    assert "It is created when you save SAML." in page_text(form)
    fields = {"enabled": "yes", "sign_assertions": "yes", "name_id_format": "emailAddress", "metadata": service_provider_metadata()}
    assert leads_to(await owner_browser.send(page, **{**hidden_fields(form), **fields})) == page
    assert await run_sql(pool, STORED) == [("shop", True, URL, ACS, 1)]
    form = await owner_browser.open(page)
    fields |= {"metadata": "", "entity_id": "urn:shop", "acs_url": ACS}
    assert leads_to(await owner_browser.send(page, **{**hidden_fields(form), **fields})) == page
    assert await run_sql(pool, STORED) == [("shop", True, "urn:shop", ACS, 1)], "the certificate stays"


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply(404, b""), "Its server answered with status 404."),
        (SendFailure.NOT_ALLOWED, "We could not fetch it: the host is at an address that is not allowed."),
        (Reply(200, b"<html>"), "This is not SAML metadata."),
        (Reply(200, service_provider_metadata().encode().ljust(MAX_REPLY_SIZE)), "It must have less than 64 KiB."),
    ],
)
async def test_metadata_that_cannot_be_used_creates_nothing(
    owner_browser: FakeBrowser, pool: Pool, server: FakeServer, reply: Reply | SendFailure, reason: str
) -> None:
    server.reply = reply
    answer = await create(owner_browser, metadata_url=URL)
    assert (answer.status, reason in answer.text, 'value="Shop"' in answer.text) == (400, True, True)
    assert await run_sql(pool, STORED) == []


@pytest.mark.parametrize("url", ["http://shop.example.com/metadata", "https://u:p@shop.example.com/", "file:///etc/passwd", "nonsense"])
async def test_only_https_urls_are_fetched(owner_browser: FakeBrowser, pool: Pool, server: FakeServer, url: str) -> None:
    answer = await create(owner_browser, metadata_url=url)
    assert (answer.status, 'name="metadata_url" type="text" aria-invalid="true"' in answer.text) == (400, True)
    assert (server.asked, await run_sql(pool, STORED)) == ([], [])


async def test_a_refused_value_creates_no_application(owner_browser: FakeBrowser, pool: Pool) -> None:
    answer = await create(owner_browser, entity_id="urn:shop", acs_url="javascript:alert(1)")
    assert (answer.status, 'name="acs_url" type="text" aria-invalid="true"' in answer.text) == (400, True)
    answer = await create(owner_browser, entity_id="urn:shop")
    assert answer.status == 400
    assert await run_sql(pool, STORED) == []


async def test_a_form_that_is_sent_twice_creates_one_application(owner_browser: FakeBrowser, pool: Pool) -> None:
    page = await owner_browser.open(f"{NEW}?kind=saml")
    fields = {**hidden_fields(page), "name": "Shop", "entity_id": "urn:shop", "acs_url": ACS}
    assert leads_to(await owner_browser.send(NEW, **fields)) == f"{ROOT}/applications/shop/saml"
    assert (await owner_browser.send(NEW, **fields)).status == 400
    assert await run_sql(pool, STORED) == [("shop", True, "urn:shop", ACS, 1)]


async def test_the_api_reads_metadata_from_its_url(owner_browser: FakeBrowser, server: FakeServer) -> None:
    await create(owner_browser)
    page = f"{ROOT}/applications/shop/saml"
    form = await owner_browser.open(page)
    answer = await owner_browser.send(f"{page}/metadata", **{**hidden_fields(form), "metadata_url": URL})
    assert (answer.status, f'value="{ACS}"' in answer.text, server.asked) == (200, True, [URL])


async def test_metadata_replaces_only_the_values_that_it_has(owner_browser: FakeBrowser, pool: Pool) -> None:
    page = leads_to(await create(owner_browser, entity_id="urn:old", acs_url="https://old.example.com/acs"))
    typed = {"enabled": "yes", "sign_assertions": "yes", "name_id_format": "persistent", "slo_url": "https://shop.example.com/slo"}
    fields = {**hidden_fields(await owner_browser.open(page)), **typed, "metadata": service_provider_metadata()}
    answer = await owner_browser.send(f"{page}/metadata", **fields)
    assert (answer.status, f'value="{URL}"' in answer.text) == (200, True)
    assert leads_to(await owner_browser.send(page, **fields)) == page
    stored = "select entity_id, acs_url, slo_url, name_id_format from saml_configurations"
    persistent = "urn:oasis:names:tc:SAML:2.0:nameid-format:persistent"
    assert await run_sql(pool, stored) == [(URL, ACS, "https://shop.example.com/slo", persistent)]
    read = await owner_browser.send(f"{page}/metadata", **fields)
    assert 'value="https://shop.example.com/slo"' in read.text, "the form keeps values that the metadata does not name"


async def test_the_page_after_a_save_shows_the_problems_that_only_the_metadata_tells(owner_browser: FakeBrowser, pool: Pool) -> None:
    text = service_provider_metadata(formats=["urn:example:unknown"])
    answer = await create(owner_browser, metadata=text)
    assert (answer.status, "The metadata names no NameID format that is supported." in answer.text) == (200, True)
    assert "Application created, and SAML set up." in answer.text
    page = f"{ROOT}/applications/shop/saml"
    fields = {**hidden_fields(await owner_browser.open(page)), "enabled": "yes", "sign_assertions": "yes", "name_id_format": "transient"}
    answer = await owner_browser.send(page, **fields, metadata=text)
    assert (answer.status, "SAML saved." in answer.text) == (200, True)
    assert "The metadata names no NameID format that is supported." in answer.text
    assert await run_sql(pool, STORED) == [("shop", True, URL, ACS, 1)]


async def test_the_metadata_of_an_organization_is_fetched_ten_times_a_minute(owner_browser: FakeBrowser, server: FakeServer) -> None:
    server.reply = Reply(404, b"")
    statuses = [(await create(owner_browser, metadata_url=URL)).status for _ in range(11)]
    assert (statuses, len(server.asked)) == ([400] * 10 + [429], 10)
