"""`prompt`, `max_age`, `id_token_hint` and `login_hint` (OpenID Connect Core sections 3.1.2.1, 3.1.2.3 and 3.1.2.6)."""

from datetime import timedelta
from urllib.parse import urlencode

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.kernel.causes import SYSTEM
from core.kernel.proofs import first_proof
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.federation.api.openid.client import OpenIdClient, error, next_of, result
from tests.federation.api.relying import add_relying_party, sign_in_browser
from tests.support.browser import HOME, form_token, hidden_fields, is_step, leads_to
from tests.support.builders import BASE_URL, EMAIL, PASSWORD, add_account, run_sql
from tests.support.connections.proofs import older_sessions
from tests.support.tenants import Tenant

# prompt


async def test_prompt_none_never_shows_a_page(shop: OpenIdClient, user: Account) -> None:
    assert error(await shop.open(prompt="none")) == "login_required"
    await sign_in_browser(shop.party, user)
    assert error(await shop.open(prompt="none")) == "consent_required"
    await shop.agree_before(user)
    assert (await shop.authorize(prompt="none")).keys() == {"code"}
    assert error(await shop.open(prompt="none", scope="openid email")) == "consent_required", "a scope that the user has not agreed to"
    tokens = await shop.party.exchange(result(await shop.open(prompt="none", nonce="n"))["code"])
    assert (await shop.id_claims(tokens.json))["nonce"] == "n"


async def test_prompt_none_does_not_reveal_a_user_to_an_organization(shop: OpenIdClient, user: Account, pool: Pool) -> None:
    """The answer for an unknown user has no code, and the organization gets no row about them (section 3.1.2.6)."""
    await sign_in_browser(shop.party, user, is_known=False)
    assert error(await shop.open(prompt="none")) == "consent_required"
    assert await run_sql(pool, "select count(*) from authorization_codes") == [(0,)]
    assert await run_sql(pool, "select count(*) from end_users where user_id = %s", user.id) == [(0,)]


async def test_prompt_login_asks_for_one_new_sign_in(signed_in: OpenIdClient, user: Account, clock: FakeClock) -> None:
    await signed_in.agree_before(user)
    clock.advance(timedelta(minutes=5))
    page = await signed_in.open(prompt="login")
    assert page.status == 200
    path = leads_to(await signed_in.sign_in_again(page))
    tokens = await signed_in.party.exchange(result(await signed_in.party.browser.open(path))["code"])
    assert (await signed_in.id_claims(tokens.json))["auth_time"] == int(clock.now().timestamp())
    assert (await signed_in.open(prompt="login")).status == 200, "each new request asks again"


async def test_prompt_login_needs_a_right_password(signed_in: OpenIdClient, user: Account, clock: FakeClock) -> None:
    await signed_in.agree_before(user)
    clock.advance(timedelta(seconds=1))
    page = await signed_in.open(prompt="login")
    assert (await signed_in.sign_in_again(page, "wrong")).status == 401
    again = await signed_in.party.browser.open(next_of(page))
    assert "<h1>Sign in" in again.text, "the old session is not enough"


async def test_prompt_login_without_a_session_asks_once(shop: OpenIdClient, user: Account) -> None:
    await shop.agree_before(user)
    path = leads_to(await shop.sign_in_again(await shop.open(prompt="login")))
    assert result(await shop.party.browser.open(path)).keys() == {"code"}


async def test_prompt_consent_asks_again(signed_in: OpenIdClient, user: Account) -> None:
    await signed_in.agree_before(user)
    for _ in range(2):
        page = await signed_in.open(prompt="consent")
        assert "Continue to <bdi>Shop</bdi>?" in page.text
        assert (await signed_in.agree(page, prompt="consent")).keys() == {"code"}
    page = await signed_in.open(prompt="consent")
    refused = await signed_in.party.browser.answer(page, "cancel")
    assert error(refused) == "access_denied"


async def test_prompt_select_account_offers_another_one(signed_in: OpenIdClient, user: Account, ports: Ports) -> None:
    await signed_in.agree_before(user)
    page = await signed_in.open(prompt="select_account")
    assert (page.status, EMAIL in page.text) == (200, True)
    assert (await signed_in.agree(page, prompt="select_account")).keys() == {"code"}
    bob = await add_account(ports, "bob@example.com")
    await signed_in.agree_before(bob)
    page = await signed_in.open(prompt="select_account")
    browser = signed_in.party.browser
    path = leads_to(await browser.send("/app/sign-out", form_token=form_token(page), next=hidden_fields(page)["next"]))
    page = await browser.open(path)
    path = leads_to(await browser.fill(page, email="bob@example.com", password=PASSWORD))
    answer = await browser.open(path)
    fields = await signed_in.agree(answer, prompt="select_account") if answer.status == 200 else result(answer)
    tokens = await signed_in.party.exchange(fields["code"])
    assert (await signed_in.id_claims(tokens.json))["sub"] == str(bob.id)


async def test_prompts_add_up(signed_in: OpenIdClient, user: Account) -> None:
    await signed_in.agree_before(user)
    path = leads_to(await signed_in.sign_in_again(await signed_in.open(prompt="login consent")))
    page = await signed_in.party.browser.open(path)
    assert "Continue to <bdi>Shop</bdi>?" in page.text
    answer = await signed_in.party.browser.answer(page, "continue")
    assert result(answer).keys() == {"code"}


@pytest.mark.parametrize("prompt", ["none login", "none consent", "none create", "create register", "LOGIN", "login\tconsent"])
async def test_an_impossible_prompt_is_an_invalid_request(signed_in: OpenIdClient, prompt: str) -> None:
    assert error(await signed_in.open(prompt=prompt)) == "invalid_request"


async def test_the_answer_to_the_consent_page_does_not_skip_a_sign_in(signed_in: OpenIdClient, user: Account, pool: Pool) -> None:
    """The form token is the session's token, so it fits any request."""
    page, browser = await signed_in.open(), signed_in.party.browser
    for changes in (
        {"prompt": "login"},
        {"max_age": "0"},
        {"acr_values": "mfa", "claims": '{"id_token":{"acr":{"essential":true,"value":"mfa"}}}'},
    ):
        await run_sql(pool, older_sessions("1 minute"))
        await signed_in.open(**changes)
        consent = browser.path.replace("/sign-in", "/consent")
        answer = await browser.send(consent, form_token=form_token(page), answer="continue")
        assert is_step(leads_to(answer), "sign-in"), changes
    assert await run_sql(pool, "select count(*) from authorization_codes") == [(0,)]


# max_age


async def test_max_age_asks_for_a_new_sign_in_if_the_session_is_older(signed_in: OpenIdClient, user: Account, clock: FakeClock) -> None:
    await signed_in.agree_before(user)
    clock.advance(timedelta(seconds=60))
    assert "code" in await signed_in.authorize(max_age="60")
    assert error(await signed_in.open(max_age="59", prompt="none")) == "login_required"
    path = leads_to(await signed_in.sign_in_again(await signed_in.open(max_age="59")))
    tokens = await signed_in.party.exchange(result(await signed_in.party.browser.open(path))["code"])
    assert (await signed_in.id_claims(tokens.json))["auth_time"] == int(clock.now().timestamp())


@pytest.mark.parametrize("fresh", [True, False])
async def test_the_application_gets_the_proofs_of_the_last_sign_in_of_the_browser(
    signed_in: OpenIdClient, user: Account, clock: FakeClock, ports: Ports, pool: Pool, *, fresh: bool
) -> None:
    """A reauthentication counts for max_age. The client checks `auth_time` against it (OpenID Connect Core section 3.1.3.7)."""
    await signed_in.agree_before(user)
    clock.advance(timedelta(hours=1))
    at = clock.now()
    [[session_id]] = await run_sql(pool, "select id from sessions where browser_hash is not null")
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.session_sign_ins.reauthenticate(session_id, user.id, (first_proof("websuite", at, is_fresh=fresh),))
    clock.advance(timedelta(seconds=30))
    tokens = await signed_in.party.exchange((await signed_in.authorize(max_age="60" if fresh else None))["code"])
    claims = await signed_in.id_claims(tokens.json)
    assert (claims["auth_time"], claims["acr"], "amr" in claims) == (int(at.timestamp()), "pwd", False)
    stored = await run_sql(pool, "select proofs -> 0 ->> 'provider', fresh from sessions where service_id is not null")
    assert stored == [("websuite", fresh)]


async def test_max_age_0_is_met_by_one_sign_in(signed_in: OpenIdClient, user: Account, clock: FakeClock) -> None:
    """The user needs some time for the page, and the browser for the way back: this must not start again (RFC 9700, loops)."""
    await signed_in.agree_before(user)
    clock.advance(timedelta(seconds=9))
    page = await signed_in.open(max_age="0")
    clock.advance(timedelta(seconds=9))
    path = leads_to(await signed_in.sign_in_again(page))
    clock.advance(timedelta(seconds=9))
    assert result(await signed_in.party.browser.open(path)).keys() == {"code"}


@pytest.mark.parametrize("max_age", ["-1", "1.5", "soon", "0x10", "٣", "9" * 11])
async def test_an_impossible_max_age_is_an_invalid_request(signed_in: OpenIdClient, max_age: str) -> None:
    assert error(await signed_in.open(max_age=max_age)) == "invalid_request"


async def test_the_longest_max_age_is_accepted(signed_in: OpenIdClient) -> None:
    assert "code" in await signed_in.authorize(max_age="9" * 10)


# Hints


async def test_an_id_token_hint_names_the_user(signed_in: OpenIdClient, user: Account, ports: Ports, clock: FakeClock) -> None:
    hint = (await signed_in.tokens())["id_token"]
    assert "code" in await signed_in.authorize(id_token_hint=hint, prompt="none")
    clock.advance(timedelta(days=20))
    assert "code" in await signed_in.authorize(id_token_hint=hint, prompt="none"), "an expired one is one, too"
    bob = await add_account(ports, "bob@example.com")
    await sign_in_browser(signed_in.party, bob)
    await signed_in.agree_before(bob)
    assert error(await signed_in.open(id_token_hint=hint, prompt="none")) == "login_required"
    page = await signed_in.open(id_token_hint=hint)
    assert "<h1>Sign in" in page.text
    path = leads_to(await signed_in.sign_in_again(page))
    tokens = await signed_in.party.exchange(result(await signed_in.party.browser.open(path))["code"])
    assert (await signed_in.id_claims(tokens.json))["sub"] == str(user.id)


async def test_another_user_than_the_hinted_one_gets_no_code(signed_in: OpenIdClient, user: Account, ports: Ports, pool: Pool) -> None:
    """A new sign-in does not help either, so that an application does not mix up two users (section 3.1.2.2)."""
    hint = (await signed_in.tokens())["id_token"]
    bob = await add_account(ports, "bob@example.com")
    await signed_in.agree_before(bob)
    await run_sql(pool, "delete from authorization_codes")
    browser = signed_in.party.browser
    browser.cookies.clear()
    page = await signed_in.open(id_token_hint=hint)
    path = leads_to(await browser.fill(page, email="bob@example.com", password=PASSWORD))
    assert error(await browser.open(path)) == "login_required"
    assert await run_sql(pool, "select count(*) from authorization_codes") == [(0,)]


async def test_a_hint_that_is_no_id_token_of_this_application_is_refused(
    signed_in: OpenIdClient, user: Account, other_tenant: Tenant
) -> None:
    tokens = await signed_in.tokens()
    other = OpenIdClient(await add_relying_party(other_tenant, signed_in.party.browser, "elsewhere"))
    await sign_in_browser(other.party, user)
    hint_of_another = (await other.tokens())["id_token"]
    await sign_in_browser(signed_in.party, user)
    head, body, signature = tokens["id_token"].split(".")
    hints = (hint_of_another, tokens["access_token"], f"{head}.{body}.{signature[::-1]}", f"{head}.{body}.", "garbage", "a.b.c")
    for hint in hints:
        assert error(await signed_in.open(id_token_hint=hint)) == "invalid_request", hint[:40]


async def test_a_login_hint_fills_in_the_address(shop: OpenIdClient, user: Account) -> None:
    page = await shop.open(login_hint="ada@example.com")
    assert 'value="ada@example.com"' in page.text
    page = await shop.open(login_hint='"><script>alert(1)</script>')
    assert "<script>alert" not in page.text
    await sign_in_browser(shop.party, user)
    await shop.agree_before(user)
    assert "code" in await shop.authorize(login_hint="eve@example.com"), "it is only a hint"


async def test_ui_locales_are_accepted(signed_in: OpenIdClient) -> None:
    assert "code" in await signed_in.authorize(ui_locales="fr-CA fr en", display="page", unknown="parameter")


async def test_the_platform_itself_takes_the_parameters_too(shop: OpenIdClient, user: Account) -> None:
    """Without a frontend, the browser continues at the account page."""
    await sign_in_browser(shop.party, user)
    browser = shop.party.browser
    assert leads_to(await browser.open(f"/auth/authorize?{urlencode({'max_age': 3600})}")) == HOME
    assert (await browser.open("/auth/authorize?prompt=login")).status == 200
    assert (await browser.open("/auth/authorize?prompt=nothing")).status == 400
    assert BASE_URL not in (await browser.open("/auth/authorize?prompt=nothing")).headers.get("Location", "")
