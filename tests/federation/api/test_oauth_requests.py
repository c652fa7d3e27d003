"""Requests of applications to sign somebody in, what becomes of them in a browser, and where it is sent (decisions, points 86 to 90;
security.md O-2, O-3, G-1, G-2 and the terms; RFC 6749 section 4.1, RFC 8252 section 7.3, RFC 9207)."""

from datetime import timedelta
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.accounts_rules import Account
from core.federation.oauth.authorization_rules import AuthorizationRequest
from core.kernel.policy import Policy
from core.kernel.principals import Role
from core.kernel.values import digest
from entrypoints.http.app import Edge
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.federation.api.relying import AUTHORIZE, PKCE, RelyingParty, add_relying_party, redirect_parts, sign_in_browser
from tests.support.browser import ACCOUNT, SIGN_IN, Visitor, form_token, leads_to
from tests.support.builders import BASE_URL, EMAIL, PASSWORD, add_account, add_member, add_provisioned, meanwhile, run_sql
from tests.support.direct import change_ports
from tests.support.mfa import Authenticator
from tests.support.tenants import Tenant

FRONTEND = "https://app.example.com"


@pytest.fixture
def visitor(app: QuartTrio, edge: Edge) -> Visitor:
    return Visitor(app, edge.base_url)


@pytest.fixture
async def party(acme: Tenant, visitor: Visitor) -> RelyingParty:
    return await add_relying_party(acme, visitor)


@pytest.fixture
async def app_on_a_telephone(acme: Tenant, visitor: Visitor) -> RelyingParty:
    found = await add_relying_party(acme, visitor, service_type="mobile")
    await found.set_redirect_uris("https://shop.example.com/callback", "com.example.shop:/back", "http://127.0.0.1/back", "http://[::1]/b")
    return found


# What is not sound


@pytest.mark.parametrize(
    ("changes", "status", "sentence"),
    [
        ({"service": None}, 400, "send both org and service"),
        ({"org": None}, 400, "send both org and service"),
        ({"org": "nobody"}, 404, "no such organization"),
        ({"org": "acme\0"}, 404, "no such organization"),
        ({"service": "\0"}, 404, "no such organization"),
        ({"service": "nothing"}, 404, "no such service"),
        ({"client_id": "00000000-0000-4000-8000-000000000000"}, 400, "is not that of the service"),
        ({"org": None, "service": None, "client_id": "00000000-0000-4000-8000-000000000000"}, 404, "no such service"),
        ({"org": None, "service": None, "client_id": "somebody"}, 404, "no such service"),
        ({"redirect_uri": "https://shop.example.com/callback/"}, 400, "Nobody was sent there"),
        ({"redirect_uri": "https://shop.example.com/Callback"}, 400, "Nobody was sent there"),
        ({"redirect_uri": "https://shop.example.com/callback?more=1"}, 400, "Nobody was sent there"),
        ({"redirect_uri": "https://shop.example.com:443/callback"}, 400, "Nobody was sent there"),
        ({"redirect_uri": "https://evil.example/callback"}, 400, "Nobody was sent there"),
        ({"state": "s" * 1025}, 400, "1024 characters"),
        ({"state": "a\0b"}, 400, "control characters"),
        ({"state": "a\u202eb"}, 400, "control characters"),
        ({"code_challenge": "short", "code_challenge_method": "S256"}, 400, "43 characters"),
        ({"code_challenge": PKCE["code_challenge"]}, 400, "43 characters"),
        ({"code_challenge": PKCE["code_challenge"], "code_challenge_method": "plain"}, 400, "43 characters"),
        ({"code_challenge_method": "S256"}, 400, "43 characters"),
        ({"provider": "nothing"}, 404, "no such identity provider"),
    ],
)
async def test_what_is_not_sound_is_told_to_the_person_and_sent_nowhere(
    party: RelyingParty, ada: Account, changes: dict[str, str | None], status: int, sentence: str
) -> None:
    await sign_in_browser(party, ada)
    answer = await party.ask(**changes)
    assert (answer.status, answer.headers["Content-Type"]) == (status, "text/html; charset=utf-8")
    assert sentence in answer.text
    assert "Location" not in answer.headers
    assert await run_sql(party.tenant.pool, "select count(*) from authorization_codes") == [(0,)]


async def test_a_parameter_may_not_be_there_twice(party: RelyingParty, ada: Account) -> None:
    await sign_in_browser(party, ada)
    assert (await party.visitor.open(f"{party.request()}&state=another")).status == 400


@pytest.mark.parametrize("status", ["pending", "suspended", "rejected"])
async def test_nobody_is_signed_in_to_an_organization_that_is_not_active(party: RelyingParty, ada: Account, status: str) -> None:
    await sign_in_browser(party, ada)
    await run_sql(party.tenant.pool, "update organizations set status = %s where id = %s", status, party.tenant.org)
    named: dict[str, str | None] = {"org": None, "service": None, "client_id": str(party.client_id)}
    for fields in ({}, named):
        answer = await party.ask(**fields)
        assert (answer.status, "is not active" in answer.text) == (403, True)


async def test_an_application_that_keeps_no_secret_has_to_send_a_challenge(app_on_a_telephone: RelyingParty, ada: Account) -> None:
    await sign_in_browser(app_on_a_telephone, ada)
    answer = await app_on_a_telephone.ask(code_challenge=None, code_challenge_method=None)
    assert (answer.status, "PKCE" in answer.text) == (400, True)


# Redirect URIs


async def test_of_several_redirect_uris_one_must_be_named(party: RelyingParty, ada: Account) -> None:
    await sign_in_browser(party, ada)
    assert redirect_parts(await party.ask(redirect_uri=None))[0] == party.redirect_uri
    await party.set_redirect_uris(party.redirect_uri, "https://shop.example.com/other")
    assert (await party.ask(redirect_uri=None)).status == 400
    await party.set_redirect_uris()
    assert (await party.ask(redirect_uri=None)).status == 400


@pytest.mark.parametrize(
    ("uri", "sound"),
    [
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
    ],
)
async def test_of_a_program_that_runs_there_only_the_port_of_the_loopback_interface_is_free(
    app_on_a_telephone: RelyingParty, ada: Account, uri: str, sound: bool
) -> None:
    await sign_in_browser(app_on_a_telephone, ada)
    answer = await app_on_a_telephone.ask(redirect_uri=uri)
    assert answer.status == (200 if sound else 400), answer.text


async def test_a_web_application_has_the_port_that_it_has_registered(party: RelyingParty, ada: Account) -> None:
    await sign_in_browser(party, ada)
    await party.set_redirect_uris("http://localhost:3000/callback")
    assert (await party.ask(redirect_uri="http://localhost:3000/callback")).status == 200
    assert (await party.ask(redirect_uri="http://localhost:3001/callback")).status == 400


async def test_what_a_redirect_uri_asks_for_itself_stays(party: RelyingParty, ada: Account) -> None:
    await sign_in_browser(party, ada)
    await party.set_redirect_uris("https://shop.example.com/callback?tenant=7&x=%20")
    target = leads_to(await party.ask(redirect_uri="https://shop.example.com/callback?tenant=7&x=%20"))
    assert target.startswith("https://shop.example.com/callback?tenant=7&x=%20&code=")


# Whoever is signed in


async def test_somebody_who_uses_the_application_goes_back_with_a_code_at_once(party: RelyingParty, ada: Account, clock: FakeClock) -> None:
    session_id = await sign_in_browser(party, ada)
    answer = await party.ask(**PKCE)
    place, fields = redirect_parts(answer)
    assert place == "https://shop.example.com/callback"
    assert fields == {"code": fields["code"], "state": "af0ifjsldkj", "iss": BASE_URL}
    assert len(fields["code"]) == 43
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    columns = "code_hash, org_id, service_id, user_id, browser_session_id, redirect_uri, code_challenge, created_at, expires_at, session_id"
    now = clock.now()
    assert await run_sql(party.tenant.pool, f"select {columns} from authorization_codes") == [  # noqa: S608
        (
            digest(fields["code"]),
            party.tenant.org,
            party.service,
            ada.id,
            session_id,
            "https://shop.example.com/callback",
            PKCE["code_challenge"],
            now,
            now + timedelta(seconds=60),
            None,
        )
    ]


async def test_there_is_no_code_for_what_is_deleted_at_this_moment(party: RelyingParty, ada: Account, pool: Pool) -> None:
    await sign_in_browser(party, ada)
    assert (await meanwhile(pool, [("delete from services", ())], party.ask)).status == 404


async def test_no_state_comes_back_where_none_was_sent(party: RelyingParty, ada: Account) -> None:
    await sign_in_browser(party, ada)
    assert set(redirect_parts(await party.ask(state=None))[1]) == {"code", "iss"}


async def test_clients_of_oauth_name_themselves_by_their_client_id(party: RelyingParty, ada: Account) -> None:
    await sign_in_browser(party, ada)
    fields = {"org": None, "service": None, "client_id": str(party.client_id), "response_type": "code", "scope": "read"}
    assert "code" in redirect_parts(await party.ask(**fields))[1]
    assert "code" in redirect_parts(await party.ask(client_id=str(party.client_id)))[1]


async def test_nothing_but_a_code_can_be_asked_for(party: RelyingParty, ada: Account) -> None:
    await sign_in_browser(party, ada)
    place, fields = redirect_parts(await party.ask(response_type="token"))
    assert place == party.redirect_uri
    assert fields == {"error": "unsupported_response_type", "state": "af0ifjsldkj", "iss": BASE_URL}


@pytest.mark.parametrize("known", ["as a member", "as an end user of another service"])
async def test_an_organization_that_knows_somebody_need_not_ask(party: RelyingParty, ada: Account, pool: Pool, known: str) -> None:
    await sign_in_browser(party, ada, known=False)
    if known == "as a member":
        await add_member(pool, party.tenant.org, ada.id, Role.MEMBER)
    else:
        other = await add_relying_party(party.tenant, party.visitor, "blog")
        await sign_in_browser(other, ada)
    assert "code" in redirect_parts(await party.ask())[1]


async def test_an_address_that_is_not_verified_is_no_hindrance(party: RelyingParty, ports: Ports) -> None:
    await sign_in_browser(party, await add_account(ports, "bob@example.com", verified=False))
    assert "code" in redirect_parts(await party.ask())[1]


async def test_a_head_request_gives_no_code(party: RelyingParty, ada: Account) -> None:
    await sign_in_browser(party, ada)
    assert (await party.visitor.open(party.request(), method="HEAD")).status == 200
    assert await run_sql(party.tenant.pool, "select count(*) from authorization_codes") == [(0,)]


# The page that asks


async def test_an_organization_learns_of_nobody_who_does_not_say_so(party: RelyingParty, ada: Account) -> None:
    await sign_in_browser(party, ada, known=False)
    page = await party.ask()
    assert page.status == 200
    assert "Continue to <bdi>Shop</bdi>?" in page.text
    assert "of <bdi>Acme</bdi> wants to sign you in as <strong>ada@example.com</strong>" in page.text
    assert "form-action 'self' https://shop.example.com;" in page.headers["Content-Security-Policy"]
    assert await run_sql(party.tenant.pool, "select count(*) from authorization_codes") == [(0,)]
    token = form_token(page)
    place, fields = redirect_parts(await party.visitor.send(party.request(), form_token=token, answer="continue"))
    assert place == party.redirect_uri
    assert set(fields) == {"code", "state", "iss"}


async def test_whoever_refuses_goes_back_without_a_code(party: RelyingParty, ada: Account) -> None:
    await sign_in_browser(party, ada, known=False)
    token = form_token(await party.ask())
    place, fields = redirect_parts(await party.visitor.send(party.request(), form_token=token, answer="refuse"))
    assert place == party.redirect_uri
    assert fields == {"error": "access_denied", "state": "af0ifjsldkj", "iss": BASE_URL}
    assert await run_sql(party.tenant.pool, "select count(*) from authorization_codes") == [(0,)]


async def test_whom_the_directory_of_the_organization_keeps_out_is_denied_at_once(party: RelyingParty, ada: Account) -> None:
    """Also where they are asked first, and the directory says so meanwhile."""
    await sign_in_browser(party, ada, known=False)
    token = form_token(await party.ask())
    await add_provisioned(party.tenant.pool, party.tenant.org, ada.id, provisioned=False, kept_out=True)
    denied = {"error": "access_denied", "state": "af0ifjsldkj", "iss": BASE_URL}
    assert redirect_parts(await party.ask()) == (party.redirect_uri, denied)
    assert redirect_parts(await party.visitor.send(party.request(), form_token=token, answer="continue")) == (party.redirect_uri, denied)
    assert await run_sql(party.tenant.pool, "select count(*) from authorization_codes") == [(0,)]


async def test_nobody_elses_page_can_say_it(party: RelyingParty, ada: Account) -> None:
    await sign_in_browser(party, ada, known=False)
    token = form_token(await party.ask())
    wrong = await party.visitor.send(party.request(), form_token="f" * 64, answer="continue")
    assert wrong.status == 403
    foreign = await party.visitor.send(party.request(), (b"sec-fetch-site", b"cross-site"), form_token=token, answer="continue")
    assert foreign.status == 403
    assert await run_sql(party.tenant.pool, "select count(*) from authorization_codes") == [(0,)]


@pytest.mark.parametrize("signed_in", [True, False])
async def test_an_application_cannot_ask_with_a_form(party: RelyingParty, ada: Account, signed_in: bool) -> None:
    """RFC 6749 section 3.1 leaves that open. What stands in the form would be passed over, and the person be signed in somewhere else."""
    if signed_in:
        await sign_in_browser(party, ada)
    address, _, query = party.request().partition("?")
    for path, fields in ((address, dict(parse_qsl(query))), (party.request(), {"answer": "continue"}), (party.request(), {})):
        refused = await party.visitor.send(path, **fields)
        assert (refused.status, "with GET" in refused.text) == (403, True)
    assert await run_sql(party.tenant.pool, "select count(*) from authorization_codes") == [(0,)]


async def test_only_the_pages_own_form_is_described(party: RelyingParty) -> None:
    described = (await party.api.get("/openapi.json")).json["paths"][AUTHORIZE]
    asked, said = (
        {field["name"] for field in described[method].get("parameters", ()) if field["in"] == "query"} for method in ("get", "post")
    )
    assert asked - said == {"response_type", "provider"}
    assert said == set(AuthorizationRequest.__slots__)
    [form] = described["post"]["requestBody"]["content"].values()
    assert form["schema"]["required"] == ["form_token", "answer"]
    assert "nobody else" in described["post"]["summary"] + described["post"].get("description", "")


async def test_what_is_said_is_judged_again(party: RelyingParty, ada: Account) -> None:
    await sign_in_browser(party, ada, known=False)
    token = form_token(await party.ask())
    evil = party.request(redirect_uri="https://evil.example/callback")
    assert (await party.visitor.send(evil, form_token=token, answer="continue")).status == 400
    assert (await party.visitor.send(evil, form_token=token, answer="refuse")).status == 400


async def test_a_program_that_says_it_is_the_application_is_always_asked_about(app_on_a_telephone: RelyingParty, ada: Account) -> None:
    """Any program on a machine may claim a scheme or a port (RFC 8252 section 8.6); an address of https is its owner's."""
    party = app_on_a_telephone
    await sign_in_browser(party, ada)
    assert "code" in redirect_parts(await party.ask())[1]
    for uri, origin in [
        ("com.example.shop:/back", "com.example.shop:"),
        ("http://127.0.0.1:51004/back", "http://127.0.0.1:51004"),
        ("http://[::1]:51004/b", "http:"),
    ]:
        page = await party.ask(redirect_uri=uri)
        assert page.status == 200
        assert f"form-action 'self' {origin};" in page.headers["Content-Security-Policy"]


async def test_somebody_else_can_sign_in_instead(party: RelyingParty, ada: Account) -> None:
    await sign_in_browser(party, ada, known=False)
    token = form_token(await party.ask())
    target = leads_to(await party.visitor.send("/app/sign-out", form_token=token, next=party.request()))
    assert target == f"{SIGN_IN}?{urlencode({'next': party.request()})}"
    assert "gatehouse-session" not in party.visitor.cookies


# Whoever is not


async def test_whoever_is_not_signed_in_does_that_first_and_comes_back(party: RelyingParty, ada: Account) -> None:
    target = leads_to(await party.ask())
    assert urlsplit(target).path == SIGN_IN
    [after] = parse_qs(urlsplit(target).query)["next"]
    assert after == party.request()
    page = await party.visitor.open(target)
    assert "<h1>Sign in to <bdi>Shop</bdi></h1>" in page.text
    assert "signs people in for <bdi>Acme</bdi>" in page.text
    assert "form-action 'self' https://shop.example.com;" in page.headers["Content-Security-Policy"]
    refused = await party.visitor.send(SIGN_IN, form_token=form_token(page), email=EMAIL, password="wrong", next=after)
    assert (refused.status, "<bdi>Shop</bdi>" in refused.text) == (401, True)
    assert leads_to(await party.visitor.send(SIGN_IN, form_token=form_token(page), email=EMAIL, password=PASSWORD, next=after)) == after
    assert "Continue to" in (await party.visitor.open(after)).text
    assert await run_sql(party.tenant.pool, "select provider from sessions where browser_hash is not null") == [("password",)]


async def test_the_longest_request_survives_signing_in(party: RelyingParty, ada: Account) -> None:
    target = leads_to(await party.ask(state="&" * 1024, **PKCE))
    [after] = parse_qs(urlsplit(target).query)["next"]
    assert leads_to(await party.visitor.sign_in(after=after)) == after


async def test_the_sign_in_page_says_nothing_of_a_request_that_is_not_sound(party: RelyingParty) -> None:
    page = await party.visitor.open(f"{SIGN_IN}?{urlencode({'next': party.request(redirect_uri='https://evil.example/')})}")
    assert "<h1>Sign in</h1>" in page.text
    assert "form-action 'self';" in page.headers["Content-Security-Policy"]


async def test_a_provider_is_asked_at_once_where_the_application_wants_that(party: RelyingParty) -> None:
    target = leads_to(await party.ask(provider="codehost"))
    assert target == f"/auth/codehost?{urlsplit(party.request()).query}"


# The platform itself


async def test_without_an_application_of_its_own_people_sign_in_to_the_platform_on_its_pages(visitor: Visitor, ada: Account) -> None:
    assert leads_to(await visitor.open(AUTHORIZE)) == f"{SIGN_IN}?next=%2Fauth%2Fauthorize"
    await visitor.sign_in()
    assert leads_to(await visitor.open(AUTHORIZE)) == ACCOUNT
    assert (await visitor.open(f"{AUTHORIZE}?redirect_uri=https%3A%2F%2Fevil.example%2F")).status == 400


async def test_the_platforms_own_application_gets_codes_at_its_address(app: QuartTrio, visitor: Visitor, ada: Account) -> None:
    change_ports(app, policy=Policy(frontend_url=FRONTEND))
    await visitor.sign_in()
    for named in ({}, {"client_id": "frontend"}, {"redirect_uri": f"{FRONTEND}/auth/callback"}):
        place, fields = redirect_parts(await visitor.open(f"{AUTHORIZE}?{urlencode({**PKCE, **named, 'state': 'x'})}"))
        assert place == f"{FRONTEND}/auth/callback"
        assert set(fields) == {"code", "state", "iss"}
    assert (await visitor.open(AUTHORIZE)).status == 400, "it is public, so it has to send a challenge"
    assert (await visitor.open(f"{AUTHORIZE}?{urlencode({**PKCE, 'redirect_uri': f'{FRONTEND}/elsewhere'})}")).status == 400


# Who takes part (the terms of security.md)


async def takes_part(party: RelyingParty, account: Account) -> bool:
    [(confirmed,)] = await run_sql(party.tenant.pool, "select confirmed_at is not null from memberships where user_id = %s", account.id)
    return bool(confirmed)


async def test_a_member_who_types_their_password_for_a_service_takes_part(party: RelyingParty, visitor: Visitor, ada: Account) -> None:
    await add_member(party.tenant.pool, party.tenant.org, ada.id)
    assert leads_to(await visitor.sign_in()) == ACCOUNT
    assert (await party.code()) is not None
    assert not await takes_part(party, ada), "a link, with only a cookie behind it"
    visitor.cookies.clear()
    await visitor.sign_in(after=party.request())
    assert await takes_part(party, ada)


async def test_so_does_one_who_shows_a_code_as_well_and_nobody_in_an_organization_of_others(
    party: RelyingParty, visitor: Visitor, ada: Account, factor: Authenticator, twin: Tenant
) -> None:
    await add_member(party.tenant.pool, party.tenant.org, ada.id)
    elsewhere = await add_relying_party(twin, visitor, "elsewhere")
    for wanted, expected in ((elsewhere, False), (party, True)):
        visitor.cookies.clear()
        await visitor.sign_in(after=wanted.request())
        assert not await takes_part(party, ada)
        await visitor.show_code(factor.code(int(expected)), next=wanted.request())
        assert await takes_part(party, ada) is expected
