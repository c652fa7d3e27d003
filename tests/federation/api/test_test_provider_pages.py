"""The test provider's pages: an admin without an identity provider tries a connection."""

from typing import Final

import pytest

from core.kernel.connections import ConnectionProtocol
from tests.support.browser import FakeBrowser, form_token, hidden_fields, leads_to
from tests.support.builders import Answer

LIST: Final = "/app/organizations/acme/connections"
ONE: Final = f"{LIST}/test-provider"
PROVIDER: Final = f"{ONE}/test/provider"


async def add(browser: FakeBrowser, protocol: ConnectionProtocol) -> None:
    page = await browser.open(f"{LIST}/new?preset=test")
    typed = {"preset": hidden_fields(page)["preset"], "name": "Test provider", "slug": "test-provider", "protocol": protocol.value}
    assert leads_to(await browser.submit(f"{LIST}/new", f"{LIST}/new?preset=test", **typed)) == f"{ONE}/test"


async def begin(browser: FakeBrowser) -> Answer:
    """Begin a test sign-in. Return the test provider's page."""
    return await browser.open(leads_to(await browser.open(f"{ONE}/test/start")))


async def answer(browser: FakeBrowser, page: Answer, **fields: str) -> Answer:
    return await browser.send(PROVIDER, form_token=form_token(page), test=hidden_fields(page)["test"], **fields)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", [ConnectionProtocol.OIDC, ConnectionProtocol.SAML])
async def test_an_admin_tries_a_connection_without_an_identity_provider(owner_browser: FakeBrowser, protocol: ConnectionProtocol) -> None:
    assert "?preset=test" in (await owner_browser.open(LIST)).text
    await add(owner_browser, protocol)
    settings = (await owner_browser.open(ONE)).text
    assert (f'action="{ONE}/activate"' in settings, f"{ONE}/keys" in settings, "Still missing" in settings) == (False, False, False)
    assert (await owner_browser.submit(ONE, ONE, name="Trial", trusts_email="yes")).status == 303
    assert "/test/start" in (await owner_browser.open(f"{ONE}/test")).text
    page = await begin(owner_browser)
    assert "You play the identity provider" in page.text
    claims = 'department: R&D\nteam: core\nteam: docs\nlevel: 1e2\ncities: ["Oslo", 7]\nquoted: "1e2"'
    typed = {"subject": "4711", "email": "ada@example.com", "name": "Ada", "groups": "staff\r\nboard", "further_claims": claims}
    result = (await answer(owner_browser, page, **typed)).text
    for shown in ("4711", "ada@example.com</bdi> (verified)", "board, staff", "R&amp;D", "core, docs", "family_name</code></li>"):
        assert shown in result, shown
    is_typed = protocol is ConnectionProtocol.OIDC
    assert ("<bdi>100.0</bdi>" in result, "<bdi>Oslo, 7</bdi>" in result, "<bdi>1e2</bdi>" in result) == (is_typed, is_typed, True)
    assert f'href="{ONE}/test"' in result
    page = await begin(owner_browser)
    nameless = await answer(owner_browser, page, further_claims=": Research")
    assert (nameless.status, 'id="further_claims-error"' in nameless.text) == (400, True)
    refused = await answer(owner_browser, page, answer="refuse")
    code = "UnknownPrincipal" if protocol is ConnectionProtocol.SAML else "access_denied"
    assert f"<code>{code}</code>" in refused.text
