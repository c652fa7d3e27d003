"""The certificates and metadata that a set-up link proposes, and their validity."""

from datetime import timedelta

import pytest
from quart_trio import QuartTrio

from core.kernel.display import format_utc
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.federation.connections.saml.visits import SSO_URL, connect
from tests.setup.test_links import STEPS
from tests.setup.test_testing import CERTIFICATE, VALUES, open_embedded
from tests.support.builders import Api
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
