"""Authorization requests, and the redirects to the application.

Covers security O-2 and O-3, decisions 86, 87, 88, RFC 6749 section 4.1, RFC 8252 section 7.3
and RFC 9207.
"""

from datetime import timedelta
from typing import Final
from urllib.parse import urlencode

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.kernel.policy import Policy
from core.kernel.roles import MEMBER
from core.kernel.values import digest
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.federation.api.openid.client import next_of
from tests.federation.api.relying import AUTHORIZE, PKCE, RelyingParty, add_relying_party, redirect_parts, sign_in_browser
from tests.support.browser import HOME, FakeBrowser, action_of, is_step, leads_to
from tests.support.builders import BASE_URL, EMAIL, PASSWORD, add_account, add_member, run_during, run_sql
from tests.support.direct import change_ports
from tests.support.tenants import Tenant

FRONTEND = "https://app.example.com"

# Invalid requests


INVALID: Final[tuple[tuple[dict[str, str | None], int, str], ...]] = (
    ({"service": None}, 400, "send both org and service"),
    ({"org": None}, 400, "send both org and service"),
    ({"org": "unknown"}, 404, "organization does not exist"),
    ({"org": "acme\0"}, 404, "organization does not exist"),
    ({"service": "\0"}, 404, "organization does not exist"),
    ({"service": "nothing"}, 404, "application does not exist"),
    ({"client_id": "00000000-0000-4000-8000-000000000000"}, 400, "belongs to a different application"),
    ({"org": None, "service": None, "client_id": "00000000-0000-4000-8000-000000000000"}, 404, "application does not exist"),
    ({"org": None, "service": None, "client_id": "unknown"}, 404, "application does not exist"),
    ({"redirect_uri": "https://shop.example.com/callback/"}, 400, "so nothing is sent to it"),
    ({"redirect_uri": "https://shop.example.com/Callback"}, 400, "so nothing is sent to it"),
    ({"redirect_uri": "https://shop.example.com/callback?more=1"}, 400, "so nothing is sent to it"),
    ({"redirect_uri": "https://shop.example.com:443/callback"}, 400, "so nothing is sent to it"),
    ({"redirect_uri": "https://evil.example/callback"}, 400, "so nothing is sent to it"),
    ({"provider": "nothing"}, 404, "identity provider does not exist"),
)
# With a valid client and redirect URI, the application gets the error (RFC 6749 section 4.1.2.1, RFC 7636 section 4.4.1).
INVALID_PARAMETERS: Final[tuple[tuple[dict[str, str | None], str], ...]] = (
    ({"state": "s" * 4097}, "4096 characters"),
    ({"state": "&" * 4096}, "too long"),
    ({"state": "a\0b"}, "control characters"),
    ({"state": "a\u202eb"}, "control characters"),
    ({"login_hint": "s" * 8192}, "too long"),
    ({"code_challenge": "short", "code_challenge_method": "S256"}, "43 characters"),
    ({"code_challenge": PKCE["code_challenge"]}, "43 characters"),
    ({"code_challenge": PKCE["code_challenge"], "code_challenge_method": "plain"}, "43 characters"),
    ({"code_challenge_method": "S256"}, "43 characters"),
)


async def test_an_invalid_request_is_shown_to_the_user_and_never_redirected(relying_party: RelyingParty, user: Account) -> None:
    await sign_in_browser(relying_party, user)
    findings = []
    for changes, status, sentence in INVALID:
        answer = await relying_party.open_request(**changes)
        is_page = answer.headers["Content-Type"] == "text/html; charset=utf-8" and "Location" not in answer.headers
        if answer.status != status or not is_page or sentence not in answer.text:
            findings.append((changes, answer.status, answer.text))
    assert findings == []
    assert await run_sql(relying_party.tenant.pool, "select count(*) from authorization_codes") == [(0,)]


async def test_the_application_gets_the_error_of_an_invalid_parameter(relying_party: RelyingParty, user: Account) -> None:
    findings = []
    for changes, sentence in INVALID_PARAMETERS:
        place, fields = redirect_parts(await relying_party.open_request(**changes))
        description = fields.pop("error_description")
        state = changes.get("state", "af0ifjsldkj")
        expected = {"error": "invalid_request", "state": state, "iss": BASE_URL}
        if place != relying_party.redirect_uri or fields != expected or sentence not in description:
            findings.append((changes, place, fields, description))
    assert findings == []
    assert await run_sql(relying_party.tenant.pool, "select count(*) from authorization_codes") == [(0,)]


async def test_a_long_state_survives_the_sign_in(relying_party: RelyingParty, user: Account) -> None:
    """ASP.NET Core, for example, keeps encrypted properties in it."""
    state = "s" * 4096
    flow = next_of(await relying_party.open_request(state=state))
    assert len(flow) < 50
    await sign_in_browser(relying_party, user)
    _, fields = redirect_parts(await relying_party.browser.open(flow))
    assert fields["state"] == state


async def test_repeated_parameters_are_refused(relying_party: RelyingParty, user: Account) -> None:
    await sign_in_browser(relying_party, user)
    assert (await relying_party.browser.open(f"{relying_party.request()}&state=another")).status == 400


@pytest.mark.parametrize("status", ["pending", "suspended", "rejected"])
async def test_an_inactive_organization_signs_no_users_in(relying_party: RelyingParty, user: Account, status: str) -> None:
    await sign_in_browser(relying_party, user)
    await run_sql(relying_party.tenant.pool, "update organizations set status = %s where id = %s", status, relying_party.tenant.org)
    query: dict[str, str | None] = {"org": None, "service": None, "client_id": str(relying_party.client_id)}
    for fields in ({}, query):
        answer = await relying_party.open_request(**fields)
        assert (answer.status, "sign in to this application now. Ask the people who run it." in answer.text) == (403, True)


async def test_a_public_client_must_send_a_challenge(mobile_app: RelyingParty, user: Account) -> None:
    await sign_in_browser(mobile_app, user)
    _, fields = redirect_parts(await mobile_app.open_request(code_challenge=None, code_challenge_method=None))
    assert (fields["error"], "PKCE" in fields["error_description"]) == ("invalid_request", True)


# Redirect URIs


async def test_with_several_redirect_uris_the_request_must_name_one(relying_party: RelyingParty, user: Account) -> None:
    await sign_in_browser(relying_party, user)
    assert redirect_parts(await relying_party.open_request(redirect_uri=None))[0] == relying_party.redirect_uri
    await relying_party.set_redirect_uris(relying_party.redirect_uri, "https://shop.example.com/other")
    assert (await relying_party.open_request(redirect_uri=None)).status == 400
    await relying_party.set_redirect_uris()
    assert (await relying_party.open_request(redirect_uri=None)).status == 400


async def test_a_native_application_can_use_any_loopback_port_and_nothing_else(mobile_app: RelyingParty, user: Account) -> None:
    await sign_in_browser(mobile_app, user)
    findings = []
    for uri, is_accepted in (
        ("com.example.shop:/back", True),
        ("http://127.0.0.1:51004/back", True),
        ("http://127.0.0.1/back", True),
        ("http://[::1]:51004/b", True),
        ("http://127.0.0.1:51004/other", False),
        ("http://localhost:51004/back", False),
        ("https://127.0.0.1:51004/back", False),
        ("http://127.0.0.1:51004@evil.example/back", False),
        ("http://127.0.0.1.evil.example:51004/back", False),
        ("https://shop.example.com:51004/callback", False),
        ("com.example.other:/back", False),
    ):
        answer = await mobile_app.open_request(redirect_uri=uri)
        if answer.status != (200 if is_accepted else 400):
            findings.append((uri, answer.status))
    assert findings == []


@pytest.mark.parametrize("service_type", ["web", "api", "spa"])
async def test_an_application_that_is_not_native_must_use_its_registered_port(
    acme: Tenant, browser: FakeBrowser, user: Account, service_type: str
) -> None:
    relying_party = await add_relying_party(acme, browser, service_type=service_type)
    await sign_in_browser(relying_party, user)
    await relying_party.set_redirect_uris("http://localhost:3000/callback")
    assert (await relying_party.open_request(redirect_uri="http://localhost:3000/callback")).status == 200
    assert (await relying_party.open_request(redirect_uri="http://localhost:3001/callback")).status == 400


async def test_a_redirect_uri_keeps_its_own_query(relying_party: RelyingParty, user: Account) -> None:
    await sign_in_browser(relying_party, user)
    await relying_party.set_redirect_uris("https://shop.example.com/callback?tenant=7&x=%20")
    target = leads_to(await relying_party.open_request(redirect_uri="https://shop.example.com/callback?tenant=7&x=%20"))
    assert target.startswith("https://shop.example.com/callback?tenant=7&x=%20&code=")


# Signed-in users


async def test_a_user_of_the_application_gets_a_code_immediately(relying_party: RelyingParty, user: Account, clock: FakeClock) -> None:
    session_id = await sign_in_browser(relying_party, user)
    answer = await relying_party.open_request(**PKCE)
    place, fields = redirect_parts(answer)
    assert place == "https://shop.example.com/callback"
    assert fields == {"code": fields["code"], "state": "af0ifjsldkj", "iss": BASE_URL}
    assert len(fields["code"]) == 43
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    columns = "code_hash, org_id, service_id, user_id, browser_session_id, redirect_uri, code_challenge, created_at, expires_at, session_id"
    now = clock.now()
    assert await run_sql(relying_party.tenant.pool, f"select {columns} from authorization_codes") == [  # noqa: S608
        (
            digest(fields["code"]),
            relying_party.tenant.org,
            relying_party.service,
            user.id,
            session_id,
            "https://shop.example.com/callback",
            PKCE["code_challenge"],
            now,
            now + timedelta(seconds=60),
            None,
        )
    ]


async def test_a_service_that_is_being_deleted_gets_no_code(relying_party: RelyingParty, user: Account, pool: Pool) -> None:
    await sign_in_browser(relying_party, user)
    assert (await run_during(pool, [("delete from services", ())], relying_party.open_request)).status == 404


async def test_a_request_without_state_gets_none_back(relying_party: RelyingParty, user: Account) -> None:
    await sign_in_browser(relying_party, user)
    assert set(redirect_parts(await relying_party.open_request(state=None))[1]) == {"code", "iss"}


async def test_a_client_id_replaces_the_slugs(relying_party: RelyingParty, user: Account) -> None:
    await sign_in_browser(relying_party, user)
    fields = {"org": None, "service": None, "client_id": str(relying_party.client_id), "response_type": "code", "scope": "read"}
    assert "code" in redirect_parts(await relying_party.open_request(**fields))[1]
    assert "code" in redirect_parts(await relying_party.open_request(client_id=str(relying_party.client_id)))[1]


async def test_only_the_response_type_code_is_supported(relying_party: RelyingParty, user: Account) -> None:
    await sign_in_browser(relying_party, user)
    place, fields = redirect_parts(await relying_party.open_request(response_type="token"))
    assert place == relying_party.redirect_uri
    assert fields.pop("error_description").startswith("Only response_type=code is supported")
    assert fields == {"error": "unsupported_response_type", "state": "af0ifjsldkj", "iss": BASE_URL}


@pytest.mark.parametrize("relation", ["as a member", "as an end user of another service"])
async def test_a_user_known_to_the_organization_needs_no_consent(
    relying_party: RelyingParty, user: Account, pool: Pool, relation: str
) -> None:
    await sign_in_browser(relying_party, user, is_known=False)
    if relation == "as a member":
        await add_member(pool, relying_party.tenant.org, user.id, MEMBER, confirmed=True)
    else:
        other = await add_relying_party(relying_party.tenant, relying_party.browser, "blog")
        await sign_in_browser(other, user)
    assert "code" in redirect_parts(await relying_party.open_request())[1]


async def test_a_user_with_an_unverified_address_gets_a_code(relying_party: RelyingParty, ports: Ports) -> None:
    await sign_in_browser(relying_party, await add_account(ports, "bob@example.com", verified=False))
    assert "code" in redirect_parts(await relying_party.open_request())[1]


async def test_a_head_request_issues_no_code(relying_party: RelyingParty, user: Account) -> None:
    await sign_in_browser(relying_party, user)
    assert (await relying_party.browser.open(relying_party.request(), method="HEAD")).status == 200
    assert await run_sql(relying_party.tenant.pool, "select count(*) from authorization_codes") == [(0,)]


# The platform itself


async def test_without_a_frontend_users_sign_in_on_the_hosted_pages(browser: FakeBrowser, user: Account) -> None:
    page = await browser.open(AUTHORIZE)
    assert is_step(action_of(page), "sign-in")
    assert await browser.ends_at(await browser.fill(page, email=EMAIL, password=PASSWORD)) == HOME
    assert leads_to(await browser.open(AUTHORIZE)) == HOME
    assert (await browser.open(f"{AUTHORIZE}?redirect_uri=https%3A%2F%2Fevil.example%2F")).status == 400


async def test_the_frontend_gets_codes_at_its_callback(app: QuartTrio, browser: FakeBrowser, user: Account) -> None:
    change_ports(app, policy=Policy(frontend_url=FRONTEND))
    await browser.sign_in()
    for query in ({}, {"client_id": "frontend"}, {"redirect_uri": f"{FRONTEND}/auth/callback"}):
        place, fields = redirect_parts(await browser.open(f"{AUTHORIZE}?{urlencode({**PKCE, **query, 'state': 'x'})}"))
        assert place == f"{FRONTEND}/auth/callback"
        assert set(fields) == {"code", "state", "iss"}
    place, fields = redirect_parts(await browser.open(AUTHORIZE))
    assert (place, fields["error"]) == (f"{FRONTEND}/auth/callback", "invalid_request"), "it is a public client and must send a challenge"
    assert (await browser.open(f"{AUTHORIZE}?{urlencode({**PKCE, 'redirect_uri': f'{FRONTEND}/elsewhere'})}")).status == 400


async def test_the_frontend_needs_no_consent_and_can_ask_for_an_account(app: QuartTrio, browser: FakeBrowser, user: Account) -> None:
    change_ports(app, policy=Policy(frontend_url=FRONTEND))
    await browser.sign_in()
    _, fields = redirect_parts(await browser.open(f"{AUTHORIZE}?{urlencode({**PKCE, 'prompt': 'consent'})}"))
    assert set(fields) == {"code", "iss"}
    path = f"{AUTHORIZE}?{urlencode({**PKCE, 'prompt': 'select_account'})}"
    page = await browser.open(path)
    assert "<h1>Choose an account</h1>" in page.text
    _, fields = redirect_parts(await browser.answer(page, "select"))
    assert set(fields) == {"code", "iss"}
