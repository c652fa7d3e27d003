"""Sign-ins that only look fresh or strong: prompt=login, max_age, acr, flows, and trusted devices (OpenID Connect Core section 3.1.2.1).

See docs/adr/0038 and security A-10.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

import jwt
import pytest

from core.accounts.model.accounts import Account
from core.kernel.connections import WEBSUITE, PlatformCredentials
from tests.fakes.outside import FakeClock
from tests.fakes.provider import FakeProvider
from tests.federation.api.openid.client import next_of
from tests.federation.api.relying import RelyingParty, answer_fields, authorize, path_of, sign_in_browser
from tests.federation.attacks.world import is_code, unchanged
from tests.federation.provider_sign_in import ProviderSignIn, flow_in
from tests.support.browser import ACCOUNT, HOME, SIGN_IN, FakeBrowser, action_of, form_token, has_ended, is_step, leads_to, step_of
from tests.support.builders import EMAIL, PASSWORD, Answer, run_sql
from tests.support.mfa import Authenticator

ESSENTIAL_MFA: Final = '{"id_token": {"acr": {"essential": true, "value": "mfa"}}}'
# The requests that ask for more than a session, and what they need.
ASKS: Final[dict[str, dict[str, str]]] = {
    "prompt=login": {"prompt": "login"},
    "max_age=0": {"max_age": "0"},
    "max_age=60": {"max_age": "60"},
    "essential mfa": {"claims": ESSENTIAL_MFA},
}


def is_sign_in(answer: Answer) -> bool:
    """Return whether the answer is the sign-in page."""
    return answer.status == 200 and "<h1>Sign in" in answer.text


async def sign_in_at(browser: FakeBrowser, path: str, after: str | None = None) -> Answer:
    """Send the sign-in form that this path shows. With `after`, send the form without a flow, which continues there."""
    page = await browser.open(path)
    if after is not None:
        return await browser.send(SIGN_IN, form_token=form_token(page), email=EMAIL, password=PASSWORD, next=after)
    return await browser.fill(page, email=EMAIL, password=PASSWORD)


async def id_claims(shop: RelyingParty, code: str) -> dict[str, Any]:
    claims: dict[str, Any] = jwt.decode((await shop.exchange(code)).json["id_token"], options={"verify_signature": False})
    return claims


@pytest.fixture
async def later(shop: RelyingParty, clock: FakeClock) -> RelyingParty:
    """The application, two minutes after its user has signed in."""
    clock.advance(timedelta(minutes=2))
    return shop


# Flows


@pytest.mark.parametrize("changes", ASKS.values(), ids=ASKS)
async def test_an_older_session_is_never_fresh(later: RelyingParty, changes: dict[str, str]) -> None:
    """A reload, its own flow and a silent request do not make it fresh."""
    async with unchanged(later.tenant.pool):
        page = await later.browser.open(path_of(later, **changes))
        path = next_of(page)
        assert is_sign_in(page)
        for _ in range(2):
            assert is_sign_in(await later.browser.open(path))
        if "prompt" not in changes:
            silent = answer_fields(await later.browser.open(path_of(later, prompt="none", **changes)))
            assert silent["error"] == "login_required"
            assert "code" not in silent


async def test_a_flow_counts_for_its_request_only(later: RelyingParty, clock: FakeClock, user: Account) -> None:
    """An attacker begins flows, and after the victim has signed in, sends other requests, and the flows with changed parameters."""
    flows = [next_of(await later.browser.open(path_of(later, state=state, **ASKS["prompt=login"]))) for state in ("a", "b")]
    clock.advance(timedelta(minutes=1))
    await sign_in_browser(later, user, provider="password")
    async with unchanged(later.tenant.pool):
        for state, flow in (("c", flows[0]), ("a", flows[1]), ("b", flows[0])):
            flow_id = flow.rpartition("/")[2]
            assert is_sign_in(await later.browser.open(path_of(later, prompt="login", state=state, asked=flow_id, flow=flow_id)))
        for changes in ({"nonce": "n"}, {"scope": "openid email"}, {"max_age": "0"}, {"response_mode": "fragment"}, {"login_hint": "x"}):
            parameters = {"prompt": "login", "state": "a", **changes}
            assert is_sign_in(await later.browser.open(path_of(later, **parameters))), changes
        path = path_of(later, prompt="login", state="a", asked=flows[1]) + f"&asked={flows[0]}"
        assert (await later.browser.open(path)).status == 400
    for state, flow in zip(("a", "b"), flows, strict=True):
        answer = await later.browser.open(f"{flow}?state=evil&redirect_uri=https://evil.example&nonce=n")
        assert (is_code(answer), answer_fields(answer)["state"]) == (True, state)
        assert answer.headers["Location"].startswith(f"{later.redirect_uri}?")


async def test_the_flow_of_another_client_proves_nothing(later: RelyingParty, evil: RelyingParty, clock: FakeClock, user: Account) -> None:
    flow = next_of(await later.browser.open(path_of(evil, prompt="login")))
    clock.advance(timedelta(minutes=1))
    await sign_in_browser(later, user, provider="password")
    async with unchanged(later.tenant.pool):
        assert is_sign_in(await later.browser.open(path_of(later, prompt="login", asked=flow.rpartition("/")[2])))
        assert not is_code(await later.browser.open(flow)), "the user has agreed to nothing there"


async def test_the_flow_of_another_browser_leads_nowhere(later: RelyingParty, clock: FakeClock, user: Account) -> None:
    """The attacker cannot finish the victim's flow, nor the victim the attacker's flow."""
    attacker = FakeBrowser(later.browser._app)
    foreign = next_of(await attacker.open(path_of(later, prompt="login")))
    own = next_of(await later.browser.open(path_of(later, prompt="login")))
    edited = own[:-1] + ("0" if own[-1] != "0" else "1")
    clock.advance(timedelta(minutes=1))
    await sign_in_browser(later, user, provider="password")
    token = form_token(await later.browser.open(ACCOUNT))
    async with unchanged(later.tenant.pool):
        for browser, flow in ((later.browser, foreign), (attacker, own), (later.browser, edited)):
            for step in ("", "/sign-in", "/sign-up", "/code", "/consent", "/confirm", "/select"):
                page = await browser.open(flow + step)
                assert has_ended(page), step
                assert "Shop" not in page.text
            for step in ("/consent", "/confirm", "/select"):
                for answer in ("continue", "select", "refuse"):
                    sent = await browser.send(flow + step, form_token=token, answer=answer)
                    assert (has_ended(sent), is_code(sent)) == (True, False)
    assert is_code(await later.browser.open(own))


async def test_one_fresh_sign_in_answers_one_request(later: RelyingParty, clock: FakeClock) -> None:
    """With max_age=0, the browser goes neither round in circles nor through again."""
    path = next_of(await later.browser.open(path_of(later, max_age="0")))
    clock.advance(timedelta(seconds=30))
    assert leads_to(await sign_in_at(later.browser, path)) == path
    clock.advance(timedelta(seconds=30))
    claims = await id_claims(later, answer_fields(await later.browser.open(path))["code"])
    assert claims["auth_time"] == int(clock.now().timestamp()) - 30, "not the time of the code"
    async with unchanged(later.tenant.pool):
        for changes in ({"state": "next"}, {"nonce": "next"}, {}):
            assert is_sign_in(await later.browser.open(path_of(later, max_age="0", **changes)))


async def test_a_fresh_sign_in_of_another_user_is_not_that_of_the_hinted_one(later: RelyingParty, clock: FakeClock, user: Account) -> None:
    code = (await authorize(later))["code"]
    hint = (await later.exchange(code)).json["id_token"]
    path = next_of(await later.browser.open(path_of(later, prompt="login", id_token_hint=hint)))
    clock.advance(timedelta(seconds=30))
    await sign_in_browser(later, later.tenant.people["owner"], provider="password")
    async with unchanged(later.tenant.pool, ends_flow=True):
        assert answer_fields(await later.browser.open(path))["error"] == "login_required"
    assert has_ended(await later.browser.open(path))


# Trusted devices and step-up


@pytest.fixture
async def trusting(later: RelyingParty, factor: Authenticator, clock: FakeClock) -> RelyingParty:
    """The application. The victim's device is trusted: it skips the second factor."""
    later.browser.cookies.clear()
    await later.browser.sign_in_with(factor, trust="yes")
    later.browser.cookies.pop("gatehouse-session")
    clock.advance(timedelta(minutes=2))
    assert leads_to(await later.browser.sign_in()) == HOME, "no second factor is asked for"
    clock.advance(timedelta(minutes=2))
    return later


@pytest.mark.parametrize("changes", ASKS.values(), ids=ASKS)
async def test_a_thief_of_the_password_at_a_trusted_device_shows_no_fresh_sign_in(
    trusting: RelyingParty, changes: dict[str, str], clock: FakeClock
) -> None:
    """The thief sends the form as it is, or a form that continues elsewhere, and then opens the request again."""
    browser = trusting.browser
    path = next_of(await browser.open(path_of(trusting, **changes)))
    clock.advance(timedelta(seconds=1))
    assert is_step(leads_to(await sign_in_at(browser, path)), "code")
    assert "<h1>Enter your code" in (await browser.open(path)).text
    assert leads_to(await sign_in_at(browser, path, ACCOUNT)) == ACCOUNT
    async with unchanged(trusting.tenant.pool):
        answer = await browser.open(path)
        assert not is_code(answer), answer.headers


async def test_a_trusted_device_never_makes_mfa(trusting: RelyingParty) -> None:
    claims = await id_claims(trusting, (await authorize(trusting, acr_values="pwd"))["code"])
    assert (claims["acr"], claims["amr"]) == ("pwd", ["pwd"])
    for changes in ({"acr_values": "mfa"}, {"claims": ESSENTIAL_MFA}, {"acr_values": "mfa pwd"}):
        assert is_sign_in(await trusting.browser.open(path_of(trusting, **changes)))


@pytest.mark.parametrize("by", ["claims", "setting"])
async def test_no_other_parameter_lowers_a_required_second_factor(later: RelyingParty, by: str) -> None:
    """The session has one factor, and is young enough for `max_age`."""
    required = {"claims": ESSENTIAL_MFA} if by == "claims" else {}
    if by == "setting":
        await run_sql(later.tenant.pool, "update services set required_acr = 'mfa' where id = %s", later.service)
    token = form_token(await later.browser.open(ACCOUNT))
    async with unchanged(later.tenant.pool):
        for changes in ({}, {"max_age": "9999"}, {"prompt": "consent"}, {"prompt": "select_account"}, {"acr_values": "pwd"}):
            page = await later.browser.open(path_of(later, **required, **changes))
            assert is_sign_in(page), changes
            for step in ("consent", "confirm", "select"):
                answer = await later.browser.send(step_of(page, step), form_token=token, answer="continue")
                assert is_sign_in(await later.browser.open(leads_to(answer))), changes
        silent = answer_fields(await later.browser.open(path_of(later, **required, prompt="none", max_age="9999")))
        assert (silent["error"], "code" in silent) == ("login_required", False)


async def test_a_step_up_takes_no_older_second_factor(later: RelyingParty, factor: Authenticator, clock: FakeClock) -> None:
    """A session with both factors is old: with max_age, both factors are shown again, and a wrong code leaves everything as it was."""
    later.browser.cookies.clear()
    await later.browser.sign_in_with(factor)
    clock.advance(timedelta(minutes=10))
    assert is_code(await later.browser.open(path_of(later, claims=ESSENTIAL_MFA, max_age="3600")))
    path = next_of(await later.browser.open(path_of(later, claims=ESSENTIAL_MFA, max_age="60")))
    assert is_step(leads_to(await sign_in_at(later.browser, path)), "code")
    assert (await later.browser.show_code(factor.wrong(), next=path)).status == 401
    assert not is_code(await later.browser.open(path))
    assert leads_to(await later.browser.show_code(factor.code(), next=path)) == path
    claims = await id_claims(later, answer_fields(await later.browser.open(path))["code"])
    assert (claims["acr"], claims["auth_time"]) == ("mfa", int(clock.now().timestamp()))


async def test_the_claims_of_one_session_do_not_grow_with_a_later_one(later: RelyingParty, factor: Authenticator, clock: FakeClock) -> None:
    """Tokens from a session with one factor stay the same when the user signs in with both factors."""
    tokens = (await later.exchange((await authorize(later))["code"])).json
    later.browser.cookies.clear()
    await FakeBrowser(later.browser._app).sign_in_with(factor)
    refreshed = (await later.refresh(tokens["refresh_token"])).json
    for token in (refreshed["id_token"], refreshed["access_token"]):
        assert jwt.decode(token, options={"verify_signature": False})["acr"] == "pwd"


# Identity providers


@pytest.fixture
def provider(clock: FakeClock) -> Iterator[FakeProvider]:
    with FakeProvider(WEBSUITE, now=lambda: clock.now().timestamp()) as running:
        running.signed_in_at = (clock.now() - timedelta(hours=3)).timestamp()
        yield running


@pytest.fixture
def providers(provider: FakeProvider) -> list[PlatformCredentials]:
    return [provider.connection()]


@pytest.fixture
def provider_sign_in(shop: RelyingParty, provider: FakeProvider) -> ProviderSignIn:
    return ProviderSignIn(shop.browser, provider, shop.tenant.pool)


@pytest.mark.parametrize("asks", ["prompt=login", "max_age=0", "max_age=60"])
async def test_a_silent_sign_in_at_an_identity_provider_is_not_fresh(
    later: RelyingParty, provider_sign_in: ProviderSignIn, user: Account, clock: FakeClock, asks: str
) -> None:
    """Any person at the browser can start such a sign-in, with the user's session at the provider."""
    row = (user.id, user.id, provider_sign_in.name, provider_sign_in.provider.address, provider_sign_in.provider.person.subject)
    columns = "id, user_id, provider, issuer, provider_user_id, linked_at"
    await run_sql(later.tenant.pool, f"insert into identities ({columns}) values (%s, %s, %s, %s, %s, now())", *row)  # noqa: S608
    flow = flow_in(action_of(await later.browser.open(path_of(later, **ASKS[asks]))))
    path = f"/app/flow/{flow}"
    clock.advance(timedelta(seconds=1))
    await provider_sign_in.sign_in(next=ACCOUNT)  # for another page, so that the provider asks nothing
    assert await provider_sign_in.user_id() == user.id
    async with unchanged(later.tenant.pool):
        assert is_sign_in(await later.browser.open(path))
    provider_sign_in.provider.reauthenticates = False
    page = await provider_sign_in.complete(flow=flow)  # the provider ignores the wish
    assert (page.status, is_code(await later.browser.open(path))) == (400, False)
    provider_sign_in.provider.reauthenticates = True
    await provider_sign_in.sign_in(flow=flow)
    assert is_code(await later.browser.open(path)), "a provider that asked the user counts"
