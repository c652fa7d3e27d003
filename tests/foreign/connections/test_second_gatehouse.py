"""A second Gatehouse is the identity provider of an organization of the first one."""

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


def test_people_sign_in_through_a_second_gatehouse(house: House) -> None:
    """An admin ends the sessions at the second one, which reports that to the first one."""
    with settings_of_own_database() as database, service_home() as home:
        service = Service(home, **database, **{**SETTINGS, "SSO_PLATFORM_OWNER_EMAIL": IVAN}, SSO_OUTBOUND_ALLOW="127.0.0.1,::1")
        try:
            second = House(service.start(), home, IVAN)
            endpoints = house.add("second", second.service.address)
            second.call("POST", "/api/organizations", {"slug": "acme", "name": "Acme"})
            client = {"redirect_uris": [endpoints["redirect_uri"]], "backchannel_logout_uri": endpoints["backchannel_logout_uri"]}
            application = {"slug": "first", "name": "First", "service_type": "web", **client}
            created = second.call("POST", "/api/organizations/acme/services", application)
            oidc = {"issuer": second.service.address, "client_id": created["service"]["client_id"]}
            house.call("PATCH", f"{CONNECTIONS}/second", {"oidc": oidc})
            house.call("PUT", f"{CONNECTIONS}/second/client-secret", {"client_secret": created["client_secret"]})
            assert house.errors("second") == []
            with house.active("second"), FormBrowser(house.service.address, service.address) as browser:
                house.begin(browser, "second")
                browser.sign_in(IVAN, PASSWORD)
                browser.answer("answer", "continue")
                assert house.is_signed_in(browser), browser.text
                [(email, fault, received)] = house.sign_ins("second")
                assert (email, fault, received >= {"email", "email_verified"}) == (IVAN, None, True)
                user_id = second.call("GET", "/api/user")["id"]
                second.call("DELETE", f"/api/organizations/acme/users/{user_id}/sessions")
                until(lambda: not house.is_signed_in(browser), "the session at the first one has ended")
        finally:
            service.clean_up()
