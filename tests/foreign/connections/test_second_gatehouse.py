"""A second Gatehouse is an organization's identity provider at the first Gatehouse, by OpenID Connect and by SAML."""

from collections.abc import Iterator

import httpx
import pytest

from tests.foreign.conftest import SETTINGS
from tests.foreign.connections.conftest import CONNECTIONS, House
from tests.foreign.gatehouse import PASSWORD
from tests.proof.e2e.conftest import service_home, settings_of_own_database
from tests.proof.e2e.docs.forms import FormBrowser
from tests.proof.e2e.process import Service
from tests.support.waiting import until

pytestmark = pytest.mark.slow

IVAN = "ivan@acme.example"
SERVICES = "/api/organizations/acme/services"


@pytest.fixture(scope="module")
def second() -> Iterator[House]:
    """The second Gatehouse. Its organization acme has the first Gatehouse as an application."""
    with settings_of_own_database() as database, service_home() as home:
        service = Service(home, **database, **{**SETTINGS, "SSO_PLATFORM_OWNER_EMAIL": IVAN}, SSO_OUTBOUND_ALLOW="127.0.0.1,::1")
        try:
            second = House(service.start(), home, IVAN)
            second.call("POST", "/api/organizations", {"slug": "acme", "name": "Acme"})
            yield second
        finally:
            service.clean_up()


def sign_in(house: House, second: House, browser: FormBrowser, slug: str) -> None:
    """Sign in at the second Gatehouse, as its owner."""
    house.begin(browser, slug)
    browser.sign_in(IVAN, PASSWORD)
    if second.service.address in browser.address and any("answer" in form.fields for form in browser.forms):
        browser.answer("answer", "continue")


def test_people_sign_in_by_openid_connect(house: House, second: House) -> None:
    """An admin ends the sessions at the second Gatehouse, which reports that to the first Gatehouse."""
    endpoints = house.add("second", second.service.address)
    client = {"redirect_uris": [endpoints["redirect_uri"]], "backchannel_logout_uri": endpoints["backchannel_logout_uri"]}
    created = second.call("POST", SERVICES, {"slug": "first", "name": "First", "service_type": "web", **client})
    oidc = {"issuer": second.service.address, "client_id": created["service"]["client_id"]}
    house.call("PATCH", f"{CONNECTIONS}/second", {"oidc": oidc})
    house.call("PUT", f"{CONNECTIONS}/second/client-secret", {"client_secret": created["client_secret"]})
    assert house.errors("second") == []
    with house.active("second"), FormBrowser(house.service.address, second.service.address) as browser:
        sign_in(house, second, browser, "second")
        assert house.is_signed_in(browser), browser.text
        [(email, fault, received)] = house.sign_ins("second")
        assert (email, fault, received >= {"email", "email_verified"}) == (IVAN, None, True)
        user_id = second.call("GET", "/api/user")["id"]
        second.call("DELETE", f"/api/organizations/acme/users/{user_id}/sessions")
        until(lambda: not house.is_signed_in(browser), "the session at the first one has ended")


def test_people_sign_in_by_saml(house: House, second: House) -> None:
    """The two read each other's metadata."""
    created = house.call("POST", CONNECTIONS, {"slug": "by-saml", "name": "SAML", "saml": {"trusts_email": True}})
    house.call("POST", f"{CONNECTIONS}/by-saml/keys", {})
    second.call("POST", SERVICES, {"slug": "first-saml", "name": "First", "service_type": "web"})
    saml = f"{SERVICES}/first-saml/saml"
    ours = second.call("POST", f"{saml}/metadata", {"metadata": httpx.get(created["endpoints"]["metadata_url"]).text})
    assert ours["entity_id"] == created["endpoints"]["entity_id"]
    known = {"entity_id": ours["entity_id"], "acs_url": ours["acs_url"], "name_id_format": "persistent"}
    second.call("POST", saml, {"enabled": True, **known})
    second.call("POST", f"{saml}/certificate", {})
    metadata_url = second.call("GET", saml)["identity_provider"]["metadata_url"]
    house.call("POST", f"{CONNECTIONS}/by-saml/metadata", {"metadata": httpx.get(metadata_url).text})
    assert house.errors("by-saml") == []
    with house.active("by-saml"), FormBrowser(house.service.address, second.service.address) as browser:
        sign_in(house, second, browser, "by-saml")
        browser.submit_saml()
        assert house.is_signed_in(browser), browser.text
    assert house.sign_ins("by-saml") == [(IVAN, None, {"email", "id"})]
