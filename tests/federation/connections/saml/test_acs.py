"""Test sign-ins over SAML: our request, and the response that a browser brings back."""

import base64
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.federation.connections.model.answers import MAX_CLOCK_SKEW
from core.federation.connections.model.settings import SsoBinding
from core.federation.connections.saml import hash_session
from core.federation.model.sign_in import STATE_TTL
from core.federation.saml.model.messages import query_signature
from core.kernel.values import new_id
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.federation.connections.people.conftest import DOMAIN
from tests.federation.connections.saml.saml_case import SSO_URL, SamlCase, arrive, connect, read_request
from tests.support.browser import FakeBrowser, hidden_fields, leads_to
from tests.support.builders import Answer, add_organization, run_concurrently, run_sql
from tests.support.saml import NS
from tests.support.saml.identity_provider import CBC, GCM

pytestmark = pytest.mark.slow

SHOP = "https://shop.example.com/start"


@pytest.fixture
async def saml_case(owner_browser: FakeBrowser, ports: Ports, pool: Pool) -> SamlCase:
    [(org_id,)] = await run_sql(pool, "select id from organizations where slug = 'acme'")
    return await connect(ports, org_id)


def code_of(answer: Answer) -> str:
    """Return the fault that a test's result shows."""
    return answer.text.partition("Code: <code>")[2].partition("<")[0] if answer.status == 200 else f"status {answer.status}"


async def test_a_test_sign_in_shows_what_arrived(owner_browser: FakeBrowser, saml_case: SamlCase, pool: Pool) -> None:
    """Only the assertion's hash is stored, and no user is signed in."""
    before = await run_sql(pool, "select count(*) from sessions union all select count(*) from users")
    result = await saml_case.test(owner_browser)
    for shown in (
        "7f3a",
        "ada@example.com",
        "not verified",
        "&lt;b&gt;R&amp;D&lt;/b&gt;",
        "given_name",
        "<dd>Yes</dd>",
        f'href="{saml_case.page}"',
    ):
        assert shown in result.text, shown
    for options in ({"encryption": GCM}, {"encryption": CBC, "signed": ("response",)}, {"signed": ("response", "assertion")}):
        assert "7f3a" in (await saml_case.test(owner_browser, **options)).text, options
    assert await run_sql(pool, "select count(*) from sessions union all select count(*) from users") == before
    assert await run_sql(pool, "select count(*) from used_provider_messages") == [(4,)]
    assert await run_sql(pool, "select 1 from sign_in_flows f where strpos(f::text, 'ada@example.com') > 0") == []


async def test_our_request_is_signed_and_names_our_endpoint(
    owner_browser: FakeBrowser, saml_case: SamlCase, ports: Ports, pool: Pool
) -> None:
    from adapters.saml import verification

    certificate = saml_case.provider.ours.certificate
    answer = await owner_browser.open(f"{saml_case.page}/start")
    request = read_request(answer)
    query = urlsplit(answer.headers["Location"]).query
    signature = query_signature(query)
    assert signature is not None
    verification.verify_query(signature, certificate)
    assert parse_qs(query).keys() == {"SAMLRequest", "SigAlg", "Signature"}
    assert answer.headers["Location"].startswith(f"{SSO_URL}?SAMLRequest=")
    assert dict(request.attrib) | {"ID": "", "IssueInstant": ""} == {
        "ID": "",
        "Version": "2.0",
        "IssueInstant": "",
        "Destination": SSO_URL,
        "AssertionConsumerServiceURL": f"{saml_case.entity_id}/acs",
        "ProtocolBinding": "urn:oasis:names:tc:SAML:2.0:bindings:HTTP-POST",
    }
    assert request.findtext("saml:Issuer", namespaces=NS) == saml_case.entity_id
    assert request.find("samlp:NameIDPolicy", NS).get("Format").endswith(":persistent")
    by_post = await connect(ports, saml_case.connection.org_id, "adfs", sso_binding=SsoBinding.POST, subject="uid")
    page = await owner_browser.open(f"{by_post.page}/start")
    assert page.status == 200
    assert f'action="{SSO_URL}"' in page.text
    request = read_request(page)
    assert verification.verify(request, certificate)
    assert request.find("samlp:NameIDPolicy", NS) is None, "an attribute identifies its users"


Attempt = Callable[[FakeBrowser, str], Awaitable[Answer]]


async def test_a_response_arrives_once_in_its_browser_at_its_connection(
    app: QuartTrio, owner_browser: FakeBrowser, saml_case: SamlCase, ports: Ports, pool: Pool, clock: FakeClock
) -> None:
    sibling = await connect(ports, saml_case.connection.org_id, "sibling")
    elsewhere = await connect(ports, await add_organization(pool, "other"), "okta")
    anonymous = FakeBrowser(app)
    await anonymous.open("/app/sign-in")  # it has a device cookie
    cookies = {name: value for name, value in owner_browser.cookies.items() if "device" in name}
    signed_out = FakeBrowser(app)
    signed_out.cookies = cookies

    async def expired(browser: FakeBrowser, text: str) -> Answer:
        clock.advance(STATE_TTL)
        return await arrive(browser, saml_case.acs, text)

    async def closed(browser: FakeBrowser, text: str) -> Answer:
        await run_sql(pool, "update sign_in_flows set closed_at = %s", clock.now())
        return await arrive(browser, saml_case.acs, text)

    async def twice(browser: FakeBrowser, text: str) -> Answer:
        assert (await arrive(browser, saml_case.acs, text)).status == 200
        return await arrive(browser, saml_case.acs, text)

    async def suspended(browser: FakeBrowser, text: str) -> Answer:
        await run_sql(pool, "update organizations set status = 'suspended'")
        answer = await arrive(browser, saml_case.acs, text)
        await run_sql(pool, "update organizations set status = 'active'")
        return answer

    cases: dict[str, tuple[int, Attempt]] = {
        "another browser": (400, lambda _, text: arrive(anonymous, saml_case.acs, text)),
        "a browser without cookies": (400, lambda _, text: arrive(FakeBrowser(app), saml_case.acs, text)),
        "without the session": (403, lambda _, text: arrive(signed_out, saml_case.acs, text)),
        "another connection": (400, lambda browser, text: arrive(browser, sibling.acs, text)),
        "another organization": (400, lambda browser, text: arrive(browser, elsewhere.acs, text)),
        "an unknown connection": (400, lambda browser, text: arrive(browser, f"/auth/connections/{new_id()}/acs", text)),
        "no connection": (400, lambda browser, text: arrive(browser, "/auth/connections/x/acs", text)),
        "a second time": (400, twice),
        "an expired provider request": (400, expired),
        "a closed flow": (400, closed),
        "a suspended organization": (404, suspended),
        "no response": (400, lambda browser, _: arrive(browser, saml_case.acs, "")),
        "a deflated response": (400, lambda browser, _: arrive(browser, saml_case.acs, base64.b64encode(b"\x00deflated").decode())),
        "a long response": (400, lambda browser, _: arrive(browser, saml_case.acs, "A" * 200_001)),
        "an unsolicited response": (400, lambda browser, _: arrive(browser, saml_case.acs, saml_case.unsolicited())),
    }
    findings = []
    for name, (status, attempt) in cases.items():
        request_id = await saml_case.begin(owner_browser)
        answer = await attempt(owner_browser, saml_case.respond(request_id))
        findings += [(name, answer.status)] if answer.status != status or "ada@example.com" in answer.text else []
    assert findings == []


async def test_the_faults_of_a_response_are_shown_to_the_admin(owner_browser: FakeBrowser, saml_case: SamlCase) -> None:
    stranger = replace(saml_case, provider=replace(saml_case.provider, certificate=saml_case.provider.attacker))
    ended = '<samlp:StatusCode Value="urn:oasis:names:tc:SAML:2.0:status:Responder"/>'
    cases: dict[str, tuple[SamlCase, dict[str, Any]]] = {
        "unsigned": (saml_case, {"signed": ()}),
        "signature_wrong": (stranger, {}),
        "issuer": (saml_case, {"issuer": "https://elsewhere.example"}),
        "audience": (saml_case, {"restrictions": "<saml:AudienceRestriction><saml:Audience>x</saml:Audience></saml:AudienceRestriction>"}),
        "Responder": (saml_case, {"status": ended}),
        "subject_missing": (saml_case, {"name_id": ""}),
    }
    findings = [
        (code, code_of(answer))
        for code, (where, options) in cases.items()
        if code_of(answer := await where.test(owner_browser, **options)) != code
    ]
    assert findings == []


async def test_of_twenty_deliveries_at_once_one_arrives(app: QuartTrio, owner_browser: FakeBrowser, saml_case: SamlCase) -> None:
    text = saml_case.respond(await saml_case.begin(owner_browser))

    async def deliver(_: int) -> int:
        return (await arrive(owner_browser, saml_case.acs, text)).status

    assert sorted(await run_concurrently(20, deliver)) == [200, *[400] * 19]


async def test_an_assertion_works_once_also_in_two_responses(owner_browser: FakeBrowser, saml_case: SamlCase) -> None:
    """An identity provider that repeats an assertion ID cannot be told apart from a replay."""
    assert code_of(await saml_case.test(owner_browser, assertion_id="_same")) == ""
    assert code_of(await saml_case.test(owner_browser, assertion_id="_same")) == "used"


async def test_an_assertion_counts_as_used_as_long_as_any_tolerated_clock_accepts_it(
    owner_browser: FakeBrowser, saml_case: SamlCase, pool: Pool, clock: FakeClock
) -> None:
    """An admin can raise the tolerance after the assertion was used."""
    now = clock.now()
    assert code_of(await saml_case.test(owner_browser)) == ""
    [(kept_until,)] = await run_sql(pool, "select expires_at from used_provider_messages")
    assert kept_until == (now + timedelta(minutes=5) + MAX_CLOCK_SKEW).replace(microsecond=0)


async def test_a_foreign_post_reads_nothing(app: QuartTrio, saml_case: SamlCase) -> None:
    """The page that our own form follows only repeats the fields, and posts them to our endpoint."""
    page = await FakeBrowser(app, "https://idp.example.com").send(saml_case.acs, SAMLResponse='"><script>', RelayState="x")
    assert hidden_fields(page) == {"SAMLResponse": '"><script>', "RelayState": "x", "again": "1"}
    assert f'action="{saml_case.acs}"' in page.text
    again = await FakeBrowser(app).send(saml_case.acs, SAMLResponse=saml_case.respond("_x"), again="1")
    assert (again.status, "Allow cookies" in again.text) == (400, True)


async def test_a_response_without_a_request_leads_back_with_one_if_the_connection_allows_it(
    app: QuartTrio, saml_case: SamlCase, pool: Pool
) -> None:
    """Such a response signs no user in, so no page can sign a browser in as another user with it. Only listed targets count."""
    await run_sql(pool, DOMAIN, saml_case.connection.org_id, "example.com")
    await run_sql(pool, "update connections set state = 'active' where org_id is not null")
    sessions = await run_sql(pool, "select count(*) from sessions")
    home = FakeBrowser(app)
    await home.open("/app/sign-in")

    async def deliver(browser: FakeBrowser, relay_state: str) -> Answer:
        page = await FakeBrowser(app, "https://idp.example.com").send(
            saml_case.acs, SAMLResponse=saml_case.unsolicited(), RelayState=relay_state
        )
        return await browser.send(saml_case.acs, **hidden_fields(page))

    for browser in (home, FakeBrowser(app)):
        assert (await deliver(browser, SHOP)).status == 400, "off by default"
    allow = """update connections set settings = settings || '{"unsolicited": true, "targets": ["https://shop.example.com/start"]}'"""
    await run_sql(pool, f"{allow} where org_id is not null")
    initiate = f"/auth/connections/{saml_case.connection.id}/initiate"
    assert (await home.open(f"{initiate}?iss=https://other.example")).status == 400
    places = {SHOP: SHOP, "": "/app", f"{SHOP}?x=1": "/app", "//evil.example": "/app", "javascript:1": "/app", "x" * 5000: "/app"}
    for browser in (home, FakeBrowser(app)):
        for relay_state, place in places.items():
            way = await deliver(browser, relay_state)
            assert leads_to(way).startswith(SSO_URL), relay_state
            assert await run_sql(pool, "select count(*) from used_provider_messages") == [(0,)]
            text = saml_case.respond(read_request(way).get("ID"), attributes=(("email", ["grace@example.com"]),))
            assert leads_to(await arrive(browser, saml_case.acs, text)) == place, relay_state
            await run_sql(pool, "delete from used_provider_messages")
    assert await run_sql(pool, "select count(*) from sessions") != sessions


async def test_a_person_signs_in_until_the_session_at_the_provider_ends(
    app: QuartTrio, saml_case: SamlCase, pool: Pool, clock: FakeClock
) -> None:
    """A deactivated connection ends the sign-in also while the browser is at the identity provider."""
    org_id = saml_case.connection.org_id
    await run_sql(pool, DOMAIN, org_id, "example.com")
    start = f"/auth/connections/{saml_case.connection.id}/start?next=/app"
    before = await run_sql(pool, "select count(*) from sessions")
    assert (await FakeBrowser(app).open(start)).status == 409, "a draft signs no user in"
    state = "update connections set state = %s where org_id is not null"
    await run_sql(pool, state, "active")
    browser = FakeBrowser(app)
    text = saml_case.respond(read_request(await browser.open(start)).get("ID"), attributes=(("email", ["grace@example.com"]),))
    codes = await run_concurrently(20, lambda _: arrive_status(browser, saml_case.acs, text))
    assert sorted(codes) == [303, *[400] * 19]
    ends_at = clock.now() + timedelta(hours=8)
    [(user_id, restricted_to, end)] = await run_sql(
        pool, "select user_id, restricted_to, expires_at from sessions where restricted_to is not null"
    )
    assert (restricted_to, end) == (org_id, ends_at.replace(microsecond=0))
    assert await run_sql(pool, "select email from users where id = %s", user_id) == [("grace@example.com",)]
    assert await run_sql(pool, "select provider_session from connection_logins") == [(hash_session("7f3a", "_s"),)]
    request_id = read_request(await browser.open(start)).get("ID")
    await run_sql(pool, state, "inactive")
    assert (await arrive(browser, saml_case.acs, saml_case.respond(request_id))).status == 409
    assert await run_sql(pool, "select count(*) from sessions") == [(before[0][0] + 1,)]


async def arrive_status(browser: FakeBrowser, path: str, text: str) -> int:
    return (await arrive(browser, path, text)).status
