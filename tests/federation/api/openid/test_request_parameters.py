"""The other request parameters: `claims`, `nonce`, `response_mode`, `response_type`, `request` and `resource`.

Sources: OpenID Connect Core sections 3.1.2.1, 5.5 and 6, RFC 8707, OAuth 2.0 Form Post Response Mode.
"""

import json
import re
from base64 import urlsafe_b64encode
from html import unescape
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

from core.accounts.model.accounts import Account
from tests.federation.api.openid.client import STATE, OpenIdClient, error, result
from tests.federation.api.relying import FORM, claims, sign_in_browser
from tests.support.browser import action_of, has_ended, hidden_fields, leads_to
from tests.support.builders import BASE_URL, EMAIL, Answer, add_account


def posted(page: Answer) -> tuple[str, dict[str, str]]:
    """Return the target and the fields on the page that posts an answer to the application."""
    assert page.status == 200
    target = re.search(r'<form id="answer" method="post" action="([^"]+)">', page.text)
    assert target, page.text
    return unescape(target[1]), hidden_fields(page)


# claims


async def test_single_claims_are_given_where_they_are_asked_for(signed_in: OpenIdClient, user: Account) -> None:
    requested = {
        "id_token": {"email": None, "roles": {"essential": True}, "birthdate": {"essential": True}},
        "userinfo": {"email_verified": {"value": False}, "org": {"values": ["other"]}, "name#de": None},
        "else": {"email": None},
    }
    page = await signed_in.open(claims=json.dumps(requested))
    for text in ("Recognize you by your email address", "See your role in", "See your plan at"):
        assert text in page.text
    await signed_in.agree(page, claims=json.dumps(requested))
    tokens = await signed_in.tokens(claims=json.dumps(requested))
    assert (tokens["scope"], claims(tokens)["scope"]) == ("openid", "openid")
    for each in (tokens, await signed_in.refresh(tokens)):
        id_claims = await signed_in.id_claims(each)
        assert {name for name in ("email", "email_verified", "roles", "org", "birthdate") if name in id_claims} == {"email", "roles"}
        # A value that does not fit is a wish as well (section 5.5.1).
        assert await signed_in.userinfo(each) == {"sub": str(user.id), "email_verified": True, "org": "acme"}


async def test_a_claim_that_is_asked_for_by_name_needs_the_consent_of_its_scope(signed_in: OpenIdClient, user: Account) -> None:
    await signed_in.agree_before(user)
    assert "code" in await signed_in.authorize(prompt="none")
    for member in ("id_token", "userinfo"):
        requested = json.dumps({member: {"email": None}})
        assert error(await signed_in.open(claims=requested, prompt="none")) == "consent_required", member


async def test_a_requested_subject_is_the_user_of_the_answer(signed_in: OpenIdClient, user: Account) -> None:
    await signed_in.agree_before(user)
    other = await add_account(signed_in.party.tenant.ports, "bob@example.com")
    for member in ("id_token", "userinfo"):
        own, bobs, unknown = (json.dumps({member: {"sub": {"value": subject}}}) for subject in (str(user.id), str(other.id), "ada"))
        assert "code" in await signed_in.authorize(claims=own, prompt="none")
        assert error(await signed_in.open(claims=bobs, prompt="none")) == "login_required"
        assert error(await signed_in.open(claims=unknown, prompt="none")) == "login_required"
    both = json.dumps({"id_token": {"sub": {"value": str(user.id)}}, "userinfo": {"sub": {"value": str(other.id)}}})
    assert error(await signed_in.open(claims=both, prompt="none")) == "invalid_request"


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "null",
        '"email"',
        "5",
        '{"id_token": []}',
        '{"id_token": {"email": 5}}',
        '{"userinfo": {"sub": {"values": "x"}}}',
        "[" * 4000,
        '{"id_token": {"email": null}, "x": "' + "y" * 4096 + '"}',
    ],
)
async def test_malformed_claims_are_an_invalid_request(signed_in: OpenIdClient, text: str) -> None:
    assert error(await signed_in.open(claims=text)) == "invalid_request"


async def test_claims_mean_nothing_without_openid(signed_in: OpenIdClient) -> None:
    tokens = await signed_in.tokens(scope=None, claims='{"id_token": {"email": null}}')
    assert "id_token" not in tokens


# nonce, response_type


async def test_an_impossible_nonce_is_an_invalid_request(signed_in: OpenIdClient) -> None:
    for nonce in ("x" * 1025, "a\nb", "a\x00b"):
        assert error(await signed_in.open(nonce=nonce)) == "invalid_request"
    tokens = await signed_in.tokens(nonce='"\\ü ' + "x" * 1000)
    assert (await signed_in.id_claims(tokens))["nonce"] == '"\\ü ' + "x" * 1000


@pytest.mark.parametrize("response_type", ["token", "id_token", "code id_token", "code token", "none", "Code"])
async def test_tokens_never_stand_in_an_url(signed_in: OpenIdClient, response_type: str) -> None:
    assert error(await signed_in.open(response_type=response_type)) == "unsupported_response_type"


async def test_openid_requires_a_response_type(signed_in: OpenIdClient) -> None:
    assert error(await signed_in.open(response_type=None)) == "unsupported_response_type"
    assert "code" in await signed_in.authorize(response_type=None, scope=None), "as documented before"


# response_mode


async def test_an_answer_can_stand_in_the_query_or_the_fragment(signed_in: OpenIdClient, user: Account) -> None:
    await signed_in.agree_before(user)
    for mode, separator in ((None, "?"), ("query", "?"), ("fragment", "#")):
        for changes, name in (({}, "code"), ({"prompt": "none", "scope": "openid email"}, "error")):
            target = leads_to(await signed_in.open(response_mode=mode, **changes))
            address, _, text = target.partition(separator)
            assert address == signed_in.party.redirect_uri
            fields = dict(parse_qsl(text, strict_parsing=True))
            assert (fields["state"], fields["iss"], name in fields) == (STATE, BASE_URL, True)


async def test_an_answer_can_be_posted(signed_in: OpenIdClient, user: Account) -> None:
    """This is the OAuth 2.0 Form Post Response Mode. The page posts the answer by its script, or with a button."""
    await signed_in.agree_before(user)
    state = "\"><script>alert(1)</script>&'ü"
    page = await signed_in.open(response_mode="form_post", nonce="n", state=state)
    target, fields = posted(page)
    assert target == signed_in.party.redirect_uri
    assert (set(fields), fields["state"], fields["iss"]) == ({"code", "state", "iss"}, state, BASE_URL)
    assert page.text.count("<script") == 1
    assert page.headers["Cache-Control"] == "no-store"
    policy = page.headers["Content-Security-Policy"]
    nonce = re.search(r"script-src 'nonce-([\w-]+)'", policy)
    assert nonce
    assert f'<script nonce="{nonce[1]}">' in page.text
    assert "form-action" not in policy
    tokens = await signed_in.party.exchange(fields["code"])
    assert (await signed_in.id_claims(tokens.json))["nonce"] == "n"
    target, fields = posted(await signed_in.open(response_mode="form_post", prompt="none", scope="openid email"))
    assert (target, fields["error"], fields["state"], fields["iss"]) == (signed_in.party.redirect_uri, "consent_required", STATE, BASE_URL)


async def test_an_unknown_response_mode_is_reported_in_the_query(signed_in: OpenIdClient) -> None:
    for mode in ("query.jwt", "web_message", "FRAGMENT"):
        assert error(await signed_in.open(response_mode=mode)) == "invalid_request"


# request, request_uri


def request_object(payload: object) -> str:
    header, body = (
        urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()
        for part in ({"alg": "none", "typ": "oauth-authz-req+jwt"}, payload)
    )
    return f"{header}.{body}."


async def test_request_objects_are_refused_by_their_names(signed_in: OpenIdClient) -> None:
    assert error(await signed_in.open(request=request_object({}))) == "request_not_supported"
    assert error(await signed_in.open(request="garbage")) == "request_not_supported"
    assert error(await signed_in.open(request_uri="https://shop.example.com/request.jwt")) == "request_uri_not_supported"
    assert error(await signed_in.open(registration="{}")) == "registration_not_supported"
    assert error(await signed_in.open(request=request_object({}), prompt="none", scope=None)) == "request_not_supported"


async def test_the_answer_to_a_request_object_has_its_state(signed_in: OpenIdClient) -> None:
    answer = await signed_in.open(request=request_object({"state": "inner", "redirect_uri": "https://evil.example/"}), state=None)
    target = leads_to(answer)
    assert target.startswith(f"{signed_in.party.redirect_uri}?")
    assert dict(parse_qsl(urlsplit(target).query))["state"] == "inner"
    fragment = leads_to(await signed_in.open(request=request_object({"state": "inner", "response_mode": "fragment"})))
    assert dict(parse_qsl(urlsplit(fragment).fragment))["state"] == "inner"
    payloads: tuple[object, ...] = (
        [],
        "x",
        {"state": 5},
        {"state": "x" * 4097},
        {"state": "a\nb"},
        {"state": "\ud800"},
        {"response_mode": ["fragment"]},
    )
    for payload in payloads:
        assert error(await signed_in.open(request=request_object(payload))) == "request_not_supported", payload


# resource


@pytest.mark.parametrize(
    "resource", ["https://api.example", BASE_URL, f"{BASE_URL}/api/", "frontend", "x", "https://api.example/#fragment"]
)
async def test_an_unknown_resource_is_refused(signed_in: OpenIdClient, user: Account, resource: str) -> None:
    """The parameter is never dropped: the application would send the token somewhere else than it thinks (RFC 8707 section 2)."""
    await signed_in.agree_before(user)
    assert error(await signed_in.open(resource=resource)) == "invalid_target"
    assert error(await signed_in.open(resource=resource, prompt="none")) == "invalid_target"
    assert error(await signed_in.open(resource=resource, scope=None)) == "invalid_target"


@pytest.mark.parametrize("resource", [f"{BASE_URL}/auth/userinfo", f"{BASE_URL}/api"])
async def test_without_openid_every_resource_is_refused(signed_in: OpenIdClient, resource: str) -> None:
    """The tokens are for the application itself, so an accepted resource would be dropped without a word."""
    for scope in (None, "email"):
        assert error(await signed_in.open(resource=resource, scope=scope)) == "invalid_target"


async def test_a_known_resource_is_the_audience(signed_in: OpenIdClient) -> None:
    for resource, audience in (
        (None, f"{BASE_URL}/auth/userinfo"),
        (f"{BASE_URL}/auth/userinfo", f"{BASE_URL}/auth/userinfo"),
        (f"{BASE_URL}/api", f"{BASE_URL}/api"),
    ):
        tokens = await signed_in.tokens(resource=resource)
        assert claims(tokens)["aud"] == claims(await signed_in.refresh(tokens))["aud"] == audience


async def test_parameters_of_a_request_are_not_repeated(signed_in: OpenIdClient) -> None:
    for name in ("scope", "nonce", "prompt", "claims"):
        path = signed_in.request(**{name: "openid"}) + f"&{name}=openid"
        assert (await signed_in.party.browser.open(path)).status == 400, name


async def test_a_second_resource_is_refused(signed_in: OpenIdClient) -> None:
    """RFC 8707 lets a request have several. Gatehouse issues a token for one API (decision 301)."""
    api = f"{BASE_URL}/api"
    path = signed_in.request(resource=api)
    for again in (api, f"{BASE_URL}/auth/userinfo", "x"):
        repeated = f"{path}&{urlencode({'resource': again})}"
        assert error(await signed_in.party.browser.open(repeated)) == "invalid_target"
        form = urlencode(parse_qsl(repeated.partition("?")[2]))
        answer = await signed_in.party.api.call("POST", "/auth/authorize", raw=form.encode(), headers=FORM)
        assert error(await signed_in.party.browser.open(leads_to(answer))) == "invalid_target"


async def test_an_error_does_not_depend_on_who_is_signed_in(shop: OpenIdClient, user: Account) -> None:
    wrong: dict[str, str] = {"prompt": "none login", "max_age": "x", "resource": "x", "response_type": "token", "request": "x"}
    before = [result(await shop.open(**{name: value})) for name, value in wrong.items()]
    await sign_in_browser(shop.party, user)
    assert [result(await shop.open(**{name: value})) for name, value in wrong.items()] == before
    assert EMAIL not in str(before)


async def test_an_application_that_accepts_less_meanwhile_is_told(signed_in: OpenIdClient) -> None:
    page = await signed_in.open(prompt="login")
    await signed_in.configure(require_pushed_authorization_requests=True)
    browser = signed_in.party.browser
    assert error(await browser.open(action_of(page))) == "invalid_request"
    assert has_ended(await browser.open(action_of(page)))
