"""The logout endpoint against forged requests: open redirects, sign-outs of other people, and tokens in the wrong place (RFC 9700)."""

from collections.abc import Callable
from typing import Any, Final

import pytest
from quart_trio import QuartTrio

from core.accounts.model.accounts import Account
from core.kernel.uris import add_parameters
from tests.fakes.outside import FakeClock
from tests.federation.api.end_session.applications import (
    BYE,
    CROSS_SITE,
    END_SESSION,
    end_session_path,
    is_usable,
    logout_token,
    openid_tokens,
    register_return,
)
from tests.federation.api.relying import REVOKE, TOKEN, RelyingParty, add_relying_party
from tests.support.browser import FakeBrowser, form_token, leads_to
from tests.support.builders import add_account, run_sql
from tests.support.saml.browser import SamlBrowser
from tests.support.services import add_service_user
from tests.support.tenants import Tenant

EVIL: Final = "https://evil.example/bye"
OTHER: Final = "other@example.com"


class Attack:
    """The victim's browser and tokens, and an attacker with an account and an application in another organization."""

    def __init__(
        self, till: RelyingParty, evil: RelyingParty, victim: dict[str, Any], attacker: dict[str, Any], at_evil: dict[str, Any]
    ) -> None:
        self.till, self.evil = till, evil
        self.victim = victim  # the victim's tokens at `till`, from another browser of the victim
        self.attacker = attacker  # the attacker's tokens at `till`
        self.at_evil = at_evil  # the attacker's tokens at `evil`


@pytest.fixture
async def attack(app: QuartTrio, clock: FakeClock, till: RelyingParty, other_tenant: Tenant, user: Account) -> Attack:
    attacker = await add_account(till.tenant.ports, OTHER)
    elsewhere, own = SamlBrowser(app, clock), SamlBrowser(app, clock)
    evil = await add_relying_party(other_tenant, own, "evil")
    await register_return(evil, EVIL)
    for service in (till.service, evil.service):
        await add_service_user(till.tenant.ports, service, attacker.id, signed_in=False)
    await elsewhere.sign_in()
    await own.sign_in(OTHER)
    return Attack(till, evil, await openid_tokens(till, elsewhere), await openid_tokens(till, own), await openid_tokens(evil, own))


def altered(token: str) -> str:
    head, payload, signature = token.split(".")
    return f"{head}.{payload}.{'A' * len(signature)}"


# A forged request's parameters. All such requests lead to our page that asks.
ASKS: Final[dict[str, Callable[[Attack], dict[str, object]]]] = {
    "no parameters": lambda attack: {},
    "a client alone": lambda attack: {"client_id": attack.till.client_id},
    "a client of another organization": lambda attack: {"client_id": attack.evil.client_id, "post_logout_redirect_uri": EVIL},
    "the victim's session of another browser": lambda attack: {
        "id_token_hint": attack.victim["id_token"],
        "post_logout_redirect_uri": BYE,
    },
    "the attacker's session at the same client": lambda attack: {
        "id_token_hint": attack.attacker["id_token"],
        "post_logout_redirect_uri": BYE,
    },
    "the attacker's session at the attacker's client": lambda attack: {
        "id_token_hint": attack.at_evil["id_token"],
        "post_logout_redirect_uri": EVIL,
    },
    "the hint of another client than client_id": lambda attack: {
        "id_token_hint": attack.victim["id_token"],
        "client_id": attack.evil.client_id,
        "post_logout_redirect_uri": EVIL,
    },
    "a wrong signature": lambda attack: {"id_token_hint": altered(attack.victim["id_token"]), "post_logout_redirect_uri": EVIL},
    "no signature": lambda attack: {
        "id_token_hint": "eyJhbGciOiJub25lIn0." + attack.victim["id_token"].split(".")[1] + ".",
        "post_logout_redirect_uri": EVIL,
    },
    "an access token": lambda attack: {"id_token_hint": attack.victim["access_token"], "post_logout_redirect_uri": EVIL},
    "a logout token": lambda attack: {"id_token_hint": logout_token(attack.till, attack.victim), "post_logout_redirect_uri": EVIL},
    "a refresh token": lambda attack: {"id_token_hint": attack.victim["refresh_token"], "post_logout_redirect_uri": EVIL},
}
# Hints that are right for their client: a browser without a session goes on to this registered URI.
WITH_RIGHT_HINT: Final = {
    "the victim's session of another browser": BYE,
    "the attacker's session at the same client": BYE,
    "the attacker's session at the attacker's client": EVIL,
}


@pytest.mark.parametrize("name", ASKS)
async def test_a_forged_request_does_not_sign_the_user_out(attack: Attack, name: str, browser: SamlBrowser) -> None:
    """This covers a GET, a cross-site form, and this form with a made-up or another user's form token."""
    tokens, parameters = await openid_tokens(attack.till), ASKS[name](attack)
    path = end_session_path(**parameters)
    page = await browser.open(path)
    assert (page.status, page.headers.get("Location"), "Stay signed in" in page.text) == (200, None, True)
    fields = {parameter: str(value) for parameter, value in parameters.items()}
    answer = await browser.send(END_SESSION, CROSS_SITE, **fields)
    assert (answer.status, answer.headers["Location"].partition("?")[0]) == (303, END_SESSION)
    other_token = form_token(await attack.evil.browser.open("/app/account"))
    for token in ("", "0" * 64, other_token):
        assert (await browser.send(path, form_token=token, answer="continue")).status == 403
    assert (await browser.send(path, CROSS_SITE, form_token=form_token(page), answer="continue")).status == 403
    assert await browser.is_in()
    assert await is_usable(attack.till, tokens)


@pytest.mark.parametrize("name", ASKS)
async def test_a_browser_without_a_session_is_redirected_only_by_a_hint_of_the_application(
    attack: Attack, name: str, app: QuartTrio
) -> None:
    """Otherwise a link to us would lead to any application's page, without a click (RFC 9700 section 4.11)."""
    answer = await FakeBrowser(app).open(end_session_path(**ASKS[name](attack), state="a & b"))
    if name in WITH_RIGHT_HINT:
        assert leads_to(answer) == add_parameters(WITH_RIGHT_HINT[name], {"state": "a & b"})
        return
    assert (answer.status, answer.headers.get("Location"), "You're signed out" in answer.text) == (200, None, True)
    assert "http-equiv" not in answer.text


@pytest.mark.parametrize(
    "uri",
    [
        "https://evil.example",
        f"{BYE}&more=1",
        BYE.partition("?")[0],
        f"{BYE}#fragment",
        BYE.replace("bye", "BYE"),
        BYE.replace("/bye", "/./bye"),
        BYE.replace("https:", "http:"),
        BYE.replace("shop.example.com", "shop.example.com:443"),
        BYE.replace("shop.example.com", "shop.example.com@evil.example"),
        BYE.replace("shop.example.com", "shop.example.com.evil.example"),
        f"{BYE} ",
        f"{BYE}\r\nSet-Cookie: a=b",
        "javascript:alert(1)",
        "//evil.example",
        "/app/account",
        "https://till.example.com/callback",  # a redirect URI, but not for this
        EVIL,  # another client's redirect URI
    ],
)
async def test_only_a_registered_uri_of_the_client_is_accepted(attack: Attack, browser: SamlBrowser, uri: str) -> None:
    tokens = await openid_tokens(attack.till)
    for client in ({"id_token_hint": tokens["id_token"]}, {"client_id": attack.till.client_id}):
        path = end_session_path(post_logout_redirect_uri=uri, state="s", **client)
        for answer in (
            await browser.open(path),
            await browser.send(END_SESSION, CROSS_SITE, **{"post_logout_redirect_uri": uri, **client}),
        ):
            assert (answer.status, answer.headers.get("Location")) == (400, None)
    assert await browser.is_in()
    assert await is_usable(attack.till, tokens)


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"post_logout_redirect_uri": BYE}, 400),
        ({"client_id": "00000000-0000-4000-8000-000000000000"}, 404),
        ({"client_id": "\0"}, 404),
        ({"state": "x" * 4097}, 400),
        ({"state": "a\r\nb"}, 400),
    ],
)
async def test_malformed_requests_get_a_page_of_ours(till: RelyingParty, browser: SamlBrowser, fields: dict[str, str], status: int) -> None:
    page = await browser.open(end_session_path(**fields))
    assert (page.status, page.headers["Content-Type"]) == (status, "text/html; charset=utf-8")
    assert await browser.is_in()


async def test_an_application_of_a_suspended_organization_gets_no_user_back(till: RelyingParty, browser: SamlBrowser) -> None:
    tokens = await openid_tokens(till)
    await run_sql(till.tenant.pool, "update organizations set status = 'suspended' where id = %s", till.tenant.org)
    page = await browser.open(end_session_path(id_token_hint=tokens["id_token"], post_logout_redirect_uri=BYE))
    assert (page.status, BYE in page.text) == (200, False)
    assert not await browser.is_in()


async def test_a_logout_token_opens_nothing(till: RelyingParty, browser: SamlBrowser) -> None:
    """A logout token names the session, and is signed with the same key as the session's tokens."""
    tokens = await openid_tokens(till)
    token = logout_token(till, tokens)
    for path in ("/api/user", "/auth/userinfo"):
        assert (await till.api.get(path, token=token)).status == 401
    client = {"client_id": str(till.client_id), "client_secret": till.secret}
    for path, fields in (
        (TOKEN, {"grant_type": "refresh_token", "refresh_token": token}),
        (TOKEN, {"grant_type": "authorization_code", "code": token, "redirect_uri": till.redirect_uri}),
        (TOKEN, {"grant_type": "urn:ietf:params:oauth:grant-type:device_code", "device_code": token}),
    ):
        assert (await till.post(path, **fields, **client)).json["error"] in ("invalid_grant", "invalid_request"), fields
    await till.post(REVOKE, token=token, **client)
    assert (await till.open_request(scope="openid", response_type="code", prompt="none", id_token_hint=token)).status != 200
    assert await is_usable(till, tokens)


async def test_head_does_not_sign_the_user_out(till: RelyingParty, browser: SamlBrowser) -> None:
    path = end_session_path(id_token_hint=(await openid_tokens(till))["id_token"])
    await browser.open(path, method="HEAD")
    assert await browser.is_in()


async def test_the_hint_of_the_frontend_cannot_lead_to_an_application(till: RelyingParty, browser: SamlBrowser) -> None:
    page = await browser.open(end_session_path(client_id="frontend"))
    assert (page.status, "Stay signed in" in page.text) == (200, True)
    assert (await browser.open(end_session_path(client_id="frontend", post_logout_redirect_uri=BYE))).status == 400
