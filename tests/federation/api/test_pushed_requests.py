"""Pushed authorization requests (RFC 9126), and attacks on them (section 7)."""

import re
from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlencode

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.kernel.connections import PlatformCredentials
from core.kernel.values import new_secret
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.fakes.provider import FakeProvider
from tests.federation.api.client_authentication.keys import assertion, proof, register
from tests.federation.api.relying import (
    AUTHORIZE,
    FORM,
    PKCE,
    VERIFIER,
    RelyingParty,
    basic,
    give_consent,
    redirect_parts,
    sign_in_browser,
)
from tests.federation.provider_sign_in import ProviderSignIn
from tests.support.browser import FakeBrowser, action_of, form_token, has_ended, leads_to
from tests.support.builders import BASE_URL, EMAIL, PASSWORD, Answer, deliver, run_concurrently, run_sql
from tests.support.dpop import proof_key

PAR: Final = "/auth/par"
SECRETS: Final = "a-nonce|af0ifjsldkj|hint|challenge|redirect_uri"  # request parts that no address may contain
URN: Final = "urn:ietf:params:oauth:request_uri:"


@pytest.fixture
def providers(provider: FakeProvider) -> list[PlatformCredentials]:
    return [provider.connection()]


@pytest.fixture
def browser(app: QuartTrio) -> FakeBrowser:
    return FakeBrowser(app)


async def push(client: RelyingParty, headers: dict[str, str] | None = None, /, **changes: str | None) -> Answer:
    """Push the application's authorization request. Omit fields with the value None."""
    fields: dict[str, str | None] = {
        "client_id": str(client.client_id),
        "client_secret": client.secret,
        "response_type": "code",
        "redirect_uri": client.redirect_uri,
        "state": "af0ifjsldkj",
        **PKCE,
        **changes,
    }
    return await client.post(PAR, headers or {}, **fields)


async def pushed(client: RelyingParty, **changes: str | None) -> str:
    answer = await push(client, **changes)
    assert answer.status == 201, answer.text
    return str(answer.json["request_uri"])


def path(client: RelyingParty, request_uri: str, **others: str) -> str:
    return f"{AUTHORIZE}?{urlencode({'client_id': str(client.client_id), 'request_uri': request_uri, **others})}"


async def open_pushed(client: RelyingParty, request_uri: str, **others: str) -> Answer:
    return await client.browser.open(path(client, request_uri, **others))


def error(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.json["error"]


def new_browser(client: RelyingParty, app: QuartTrio) -> FakeBrowser:
    """Return another browser, in which the same user is signed in."""
    other = FakeBrowser(app)
    other.cookies["gatehouse-session"] = client.browser.cookies["gatehouse-session"]
    return other


async def test_a_pushed_request_leads_to_a_code(relying_party: RelyingParty) -> None:
    answer = await push(relying_party)
    assert answer.status == 201
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.json.keys() == {"request_uri", "expires_in"}
    assert answer.json["request_uri"].startswith(URN)
    assert len(answer.json["request_uri"]) == len(URN) + 43
    assert answer.json["expires_in"] == 60
    url, fields = redirect_parts(await open_pushed(relying_party, answer.json["request_uri"]))
    assert (url, fields["state"], fields["iss"]) == (relying_party.redirect_uri, "af0ifjsldkj", BASE_URL)
    tokens = await relying_party.exchange(fields["code"], code_verifier=VERIFIER)
    assert tokens.status == 200


async def test_only_the_hash_of_the_reference_is_stored(relying_party: RelyingParty, pool: Pool) -> None:
    request_uri = await pushed(relying_party)
    [(row,)] = await run_sql(pool, "select p::text from pushed_requests p")
    assert request_uri.removeprefix(URN) not in row


async def test_clients_authenticate_as_at_the_token_endpoint(relying_party: RelyingParty, mobile_app: RelyingParty) -> None:
    assert (await push(relying_party, basic(relying_party.client_id, relying_party.secret or ""), client_secret=None)).status == 201
    await register(relying_party)
    assert (await push(relying_party, **proof(assertion(relying_party)))).status == 201
    assert (await push(mobile_app)).status == 201  # a public client, with PKCE
    refused = [
        await push(relying_party, client_secret="wrong"),
        await push(relying_party, client_secret=None),
        await push(relying_party, client_id=None, client_secret=None),
        await push(relying_party, **proof(assertion(relying_party, aud=f"{BASE_URL}/auth/par"))),
        await push(mobile_app, client_secret="secret"),
    ]
    for answer in refused:
        assert error(answer) == (401, "invalid_client")
    assert "WWW-Authenticate" in refused[0].headers


async def test_a_request_is_checked_when_it_is_pushed(relying_party: RelyingParty, mobile_app: RelyingParty) -> None:
    wrong: list[tuple[dict[str, str | None], str]] = [
        ({"redirect_uri": "https://evil.example/callback"}, "invalid_request"),
        ({"redirect_uri": None}, "invalid_request"),
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"response_type": "token"}, "unsupported_response_type"),
        ({"response_mode": "web_message"}, "invalid_request"),
        ({"request": "e30.e30."}, "request_not_supported"),
        ({"registration": "{}"}, "registration_not_supported"),
        ({"resource": "https://other.example/"}, "invalid_target"),
        ({"scope": "openid", "prompt": "none login"}, "invalid_request"),
        ({"dpop_jkt": "short"}, "invalid_request"),
        ({"state": "x" * 4097}, "invalid_request"),
        ({"request_uri": f"{URN}{new_secret()}"}, "invalid_request"),
        ({"request_uri": "https://shop.example.com/request"}, "invalid_request"),
        ({"org": "nowhere", "service": "shop"}, "invalid_request"),
    ]
    for changes, expected in wrong:
        answer = await push(relying_party, **changes)
        assert (answer.status in (400, 404), answer.json["error"]) == (True, expected), changes
    twice = urlencode({"client_id": str(mobile_app.client_id), "redirect_uri": mobile_app.redirect_uri, **PKCE}) + "&resource=a&resource=b"
    assert error(await mobile_app.api.call("POST", PAR, raw=twice.encode(), headers=FORM)) == (400, "invalid_target")
    assert error(await push(mobile_app, code_challenge=None, code_challenge_method=None)) == (400, "invalid_request")
    assert error(await push(relying_party, org=mobile_app.tenant.slug, service=mobile_app.slug)) == (400, "invalid_request")


async def test_a_long_request_is_short_in_the_browser(relying_party: RelyingParty) -> None:
    claims = '{"id_token": {' + ", ".join(f'"c{number}": null' for number in range(240)) + "}}"
    request_uri = await pushed(relying_party, state="s" * 4096, scope="openid", claims=claims, nonce="n" * 1024)
    del relying_party.browser.cookies["gatehouse-session"]
    page = await open_pushed(relying_party, request_uri)
    assert len(action_of(page)) < 60
    assert "<bdi>Acme</bdi>" in page.text


async def test_the_browser_may_come_back_after_the_sign_in_and_reload(relying_party: RelyingParty, user: Account, clock: FakeClock) -> None:
    request_uri = await pushed(relying_party, prompt="login", scope="openid")
    await give_consent(relying_party, user)
    first = await open_pushed(relying_party, request_uri)
    assert first.status == 200  # the sign-in form
    assert action_of(await open_pushed(relying_party, request_uri)) == action_of(first)
    clock.advance(timedelta(minutes=10))
    await sign_in_browser(relying_party, user, is_known=False)
    _, fields = redirect_parts(await open_pushed(relying_party, request_uri))
    assert "code" in fields
    assert (await open_pushed(relying_party, request_uri)).status == 400


async def test_a_request_must_be_presented_within_a_minute_and_answered_within_a_day(
    relying_party: RelyingParty, app: QuartTrio, clock: FakeClock
) -> None:
    late = await pushed(relying_party)
    clock.advance(timedelta(seconds=60))
    answer = await open_pushed(relying_party, late)
    assert (answer.status, "request_uri" in answer.text) == (400, True)
    request_uri = await pushed(relying_party, scope="openid")
    clock.advance(timedelta(seconds=59))
    assert (await open_pushed(relying_party, request_uri)).status == 200  # the consent page
    assert (await new_browser(relying_party, app).open(path(relying_party, request_uri))).status == 400
    clock.advance(timedelta(hours=24) - timedelta(microseconds=1))
    assert (await open_pushed(relying_party, request_uri)).status == 200
    clock.advance(timedelta(microseconds=1))
    assert (await open_pushed(relying_party, request_uri)).status == 400


async def test_the_answers_of_the_consent_page_use_the_request_up(relying_party: RelyingParty) -> None:
    for choice, expected in (("continue", "code"), ("cancel", "error")):
        request_uri = await pushed(relying_party, scope="openid", prompt="consent")
        page = await open_pushed(relying_party, request_uri)
        assert expected in redirect_parts(await relying_party.browser.answer(page, choice))[1]
        assert has_ended(await relying_party.browser.answer(page, choice))
        again = await open_pushed(relying_party, request_uri)
        assert (again.status, "Location" in again.headers) == (400, False)


async def test_an_error_that_goes_out_uses_the_request_up(relying_party: RelyingParty) -> None:
    request_uri = await pushed(relying_party, scope="openid", prompt="none")
    assert redirect_parts(await open_pushed(relying_party, request_uri))[1]["error"] == "consent_required"
    assert (await open_pushed(relying_party, request_uri)).status == 400


async def test_other_parameters_in_the_browser_are_ignored(relying_party: RelyingParty) -> None:
    request_uri = await pushed(relying_party)
    answer = await open_pushed(relying_party, request_uri, redirect_uri="https://evil.example", state="evil", scope="openid", prompt="none")
    url, fields = redirect_parts(answer)
    assert (url, fields["state"]) == (relying_party.redirect_uri, "af0ifjsldkj")
    assert "code" in fields


async def test_a_reference_can_be_sent_as_a_form(relying_party: RelyingParty) -> None:
    request_uri = await pushed(relying_party)
    sent = await relying_party.post(AUTHORIZE, client_id=str(relying_party.client_id), request_uri=request_uri, state="other")
    assert leads_to(sent) == path(relying_party, request_uri)
    _, fields = redirect_parts(await relying_party.browser.open(leads_to(sent)))
    assert fields["state"] == "af0ifjsldkj"


async def test_a_request_object_and_foreign_request_uris_are_refused_as_before(relying_party: RelyingParty) -> None:
    answer = await relying_party.open_request(request_uri="https://shop.example.com/request")
    assert redirect_parts(answer)[1]["error"] == "request_uri_not_supported"


# RFC 9126 section 7, and other clients' requests


async def test_guessed_and_foreign_references_lead_nowhere(relying_party: RelyingParty, mobile_app: RelyingParty) -> None:
    """RFC 9126 sections 7.1 and 7.5: a reference works only for its own client."""
    request_uri = await pushed(relying_party)
    for answer in (
        await open_pushed(relying_party, f"{URN}{new_secret()}"),
        await open_pushed(relying_party, URN),
        await open_pushed(mobile_app, request_uri),
        await relying_party.browser.open(f"{AUTHORIZE}?{urlencode({'request_uri': request_uri})}"),
        await relying_party.browser.open(f"{AUTHORIZE}?{urlencode({'request_uri': request_uri, 'client_id': 'frontend'})}"),
    ):
        assert answer.status == 400
        assert "Location" not in answer.headers
    assert redirect_parts(await open_pushed(relying_party, request_uri))[1]["code"]


async def test_the_redirect_uri_is_checked_again_when_the_settings_have_changed(relying_party: RelyingParty) -> None:
    """RFC 9126 sections 7.2 and 7.4."""
    request_uri = await pushed(relying_party)
    await relying_party.set_redirect_uris("https://shop.example.com/other")
    answer = await open_pushed(relying_party, request_uri)
    assert (answer.status, answer.headers.get("Location")) == (400, None)


async def test_another_browser_cannot_continue_a_request(relying_party: RelyingParty, app: QuartTrio) -> None:
    """RFC 9126 section 7.3: a reference that leaks, for example in a log, cannot be replayed."""
    request_uri = await pushed(relying_party, scope="openid")
    assert (await open_pushed(relying_party, request_uri)).status == 200
    thief = new_browser(relying_party, app)
    answer = await thief.open(path(relying_party, request_uri))
    assert (answer.status, "shop.example.com" in answer.text) == (400, False)
    sent = await thief.send(path(relying_party, request_uri), form_token="x", answer="continue")
    assert (await thief.open(leads_to(sent))).status == 400
    own = await open_pushed(relying_party, request_uri)
    assert has_ended(await thief.open(action_of(own)))
    assert has_ended(await thief.send(action_of(own), form_token=form_token(own), answer="continue"))
    without_cookies = FakeBrowser(app)
    fresh = await pushed(relying_party, scope="openid")
    sent = await without_cookies.send(path(relying_party, fresh), form_token="x", answer="continue")
    assert leads_to(sent) == path(relying_party, fresh)
    assert (await open_pushed(relying_party, fresh)).status == 200  # the form has not bound it
    assert (await open_pushed(relying_party, request_uri)).status == 200


async def test_one_of_twenty_browsers_gets_the_request(relying_party: RelyingParty, app: QuartTrio) -> None:
    request_uri = await pushed(relying_party)
    browsers = [new_browser(relying_party, app) for _ in range(20)]
    answers = await run_concurrently(20, lambda number: browsers[number].open(path(relying_party, request_uri)))
    assert sorted(answer.status for answer in answers) == [303, *[400] * 19]
    assert sum("code=" in answer.headers.get("Location", "") for answer in answers) == 1


async def test_one_browser_gets_one_code_from_twenty_tabs(relying_party: RelyingParty, app: QuartTrio, pool: Pool) -> None:
    request_uri = await pushed(relying_party)
    device = new_secret()
    tabs = [new_browser(relying_party, app) for _ in range(20)]
    for tab in tabs:
        tab.cookies["gatehouse-device"] = device
    answers = await run_concurrently(20, lambda number: tabs[number].open(path(relying_party, request_uri)))
    assert sum("code=" in answer.headers.get("Location", "") for answer in answers) == 1
    assert {answer.status for answer in answers} == {303, 400}
    assert await run_sql(pool, "select count(*) from authorization_codes") == [(1,)]


async def test_one_browser_without_a_session_opens_a_request_in_eight_tabs(relying_party: RelyingParty, app: QuartTrio, pool: Pool) -> None:
    request_uri, device = await pushed(relying_party), new_secret()
    tabs = [FakeBrowser(app) for _ in range(8)]
    for tab in tabs:
        tab.cookies["gatehouse-device"] = device
    answers = await run_concurrently(8, lambda number: tabs[number].open(path(relying_party, request_uri), follows=False))
    assert {answer.status for answer in answers} == {303}
    [(flow,)] = await run_sql(pool, "select id from sign_in_flows")
    assert {leads_to(answer).removesuffix("/sign-in") for answer in answers} == {f"/app/flow/{flow}"}


async def test_one_browser_opens_a_request_twice_at_a_provider(
    relying_party: RelyingParty, provider_sign_in: ProviderSignIn, pool: Pool
) -> None:
    request_uri, browser = await pushed(relying_party), relying_party.browser
    at_provider = path(relying_party, request_uri).replace(AUTHORIZE, f"/auth/{provider_sign_in.name}")
    first, again = [(await browser.open(at_provider)).headers["Location"] for _ in range(2)]
    assert first.startswith(provider_sign_in.provider.issuer)
    assert again == path(relying_party, request_uri)
    [(flow,)] = await run_sql(pool, "select id from sign_in_flows")
    assert leads_to(await browser.open(again, follows=False)) == f"/app/flow/{flow}"
    assert (await browser.open(at_provider.replace(request_uri[-9:], "x" * 9), follows=False)).status == 302
    assert (await open_pushed(relying_party, f"{request_uri[:-9]}{'x' * 9}")).status == 400


async def test_a_request_to_continue_at_an_identity_provider_is_bound_too(
    relying_party: RelyingParty, provider_sign_in: ProviderSignIn, app: QuartTrio
) -> None:
    request_uri = await pushed(relying_party)
    assert (await open_pushed(relying_party, request_uri, provider="unknown")).status == 404
    begun = await relying_party.browser.open(path(relying_party, request_uri, provider=provider_sign_in.name), follows=False)
    assert begun.status == 303
    assert (await new_browser(relying_party, app).open(path(relying_party, request_uri))).status == 400


async def test_a_deleted_application_has_no_requests(relying_party: RelyingParty, pool: Pool) -> None:
    request_uri = await pushed(relying_party)
    await run_sql(pool, "delete from services where id = %s", relying_party.service)
    assert (await open_pushed(relying_party, request_uri)).status == 400
    assert await run_sql(pool, "select 1 from pushed_requests") == []


# The parameters stay secret (RFC 9126 section 1)


async def test_addresses_name_only_the_client_and_the_reference(
    relying_party: RelyingParty, ports: Ports, pool: Pool, user: Account
) -> None:
    browser = relying_party.browser
    browser.cookies.clear()
    request_uri = await pushed(relying_party, scope="openid", nonce="a-nonce", login_hint="hint@example.com", prompt="login create")
    begun = leads_to(await browser.open(path(relying_party, request_uri), follows=False))
    addresses, pages = [begun], []
    for step in ("sign-in", "sign-up", "forgot-password", "resend-verification"):
        pages.append(await browser.open(begun.replace("sign-up", step)))
        assert pages[-1].status == 200, step
        addresses += re.findall(r'(?:href|action)="([^"]*)"|name="next" value="([^"]*)"', pages[-1].text)
    assert (await browser.fill(pages[1], email="new@example.com", password="seven lions at the gate")).status == 200
    assert (await browser.fill(pages[2], email=EMAIL)).status == 200
    assert (await browser.fill(pages[3], email="new@example.com")).status == 200
    await deliver(ports)
    stored = await run_sql(pool, "select next_path from one_time_tokens union all select next_path from mails")
    assert begun.removesuffix("/sign-up") in {next_path for (next_path,) in stored}
    assert re.search(SECRETS, str(stored)) is None
    answer = await browser.fill(pages[0], email=EMAIL, password=PASSWORD)
    while answer.status == 303:
        addresses.append(leads_to(answer))
        answer = await browser.open(leads_to(answer))
    assert action_of(answer).endswith("consent"), action_of(answer)
    assert re.search(SECRETS, str(addresses)) is None


# DPoP (RFC 9449 section 10)


async def nonce_of(client: RelyingParty) -> str:
    answer = await push(client, {"DPoP": proof_key().proof("POST", f"{BASE_URL}{PAR}", client.tenant.ports.clock.now())})
    assert error(answer) == (400, "use_dpop_nonce")
    return answer.headers["DPoP-Nonce"]


async def test_a_proof_names_the_key_that_may_redeem_the_code(relying_party: RelyingParty, pool: Pool, clock: FakeClock) -> None:
    nonce, key = await nonce_of(relying_party), proof_key()

    def headers(**changes: Any) -> dict[str, str]:
        return {"DPoP": key.proof("POST", f"{BASE_URL}{PAR}", clock.now(), nonce, **changes)}

    sent = headers()
    answer = await push(relying_party, sent)
    assert answer.status == 201
    await open_pushed(relying_party, answer.json["request_uri"])
    assert await run_sql(pool, "select key_thumbprint from authorization_codes") == [(key.thumbprint,)]
    assert error(await push(relying_party, sent)) == (400, "invalid_dpop_proof")
    assert (await push(relying_party, headers(), dpop_jkt=key.thumbprint)).status == 201
    assert error(await push(relying_party, headers(), dpop_jkt=proof_key(name="two").thumbprint)) == (400, "invalid_dpop_proof")
    assert error(await push(relying_party, headers(htu=f"{BASE_URL}/auth/token"))) == (400, "invalid_dpop_proof")
