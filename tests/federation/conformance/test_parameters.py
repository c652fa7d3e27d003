"""Basic OP and Form Post Basic OP: the parameters that decide how the user authenticates."""

from datetime import timedelta

from tests.fakes.outside import FakeClock
from tests.federation.conformance.client import NEEDS_USER, Client, Grant
from tests.support.builders import EMAIL


def check_same_sign_in(first: Grant, second: Grant) -> None:
    """Check that the user answered no page the second time, and that both ID tokens have the same sign-in."""
    assert (len(first.outcome.sign_in_pages), second.outcome.questions) == (1, 0)
    assert (second.claims["sub"], second.claims["auth_time"]) == (first.claims["sub"], first.claims["auth_time"])


def check_later_sign_in(first: Grant, second: Grant) -> None:
    """Check that the user signed in again."""
    assert (len(first.outcome.sign_in_pages), len(second.outcome.sign_in_pages)) == (1, 1)
    assert second.claims["sub"] == first.claims["sub"]
    assert second.claims["auth_time"] > first.claims["auth_time"]


async def check_ignored(client: Client, **parameters: str) -> None:
    """Check that a parameter causes no error: the user signs in as without it."""
    grant = await client.sign_in(**parameters)
    assert (len(grant.outcome.sign_in_pages), grant.outcome.consent_pages) == (1, 1)


async def test_oidcc_display_page(client: Client) -> None:
    """display=page causes no error."""
    await check_ignored(client, display="page")


async def test_oidcc_display_popup(client: Client) -> None:
    """display=popup causes no error."""
    await check_ignored(client, display="popup")


async def test_oidcc_prompt_login(client: Client, clock: FakeClock) -> None:
    """With prompt=login, a signed-in user signs in again, and auth_time is later."""
    first = await client.sign_in()
    clock.advance(timedelta(seconds=1))
    check_later_sign_in(first, await client.sign_in(prompt="login"))


async def test_oidcc_prompt_none_not_logged_in(client: Client) -> None:
    """With prompt=none and no session, the application gets an error and its 128-character state, and the user sees no page."""
    outcome = await client.open(prompt="none", state="s" * 128)
    assert client.error_of(outcome) in NEEDS_USER
    assert outcome.questions == 0


async def test_oidcc_prompt_none_logged_in(client: Client, clock: FakeClock) -> None:
    """With prompt=none and a session, the application gets a code for the same sign-in, and the user sees no page."""
    first = await client.sign_in()
    clock.advance(timedelta(seconds=1))
    check_same_sign_in(first, await client.sign_in(prompt="none"))


async def test_oidcc_max_age_1(client: Client, clock: FakeClock) -> None:
    """With max_age=1, a user who signed in two seconds ago signs in again, and auth_time is the new sign-in's time."""
    first = await client.sign_in()
    clock.advance(timedelta(seconds=2))
    second = await client.sign_in(max_age="1")
    check_later_sign_in(first, second)
    assert second.claims["auth_time"] == int(clock.now().timestamp())


async def test_oidcc_max_age_10000(client: Client, clock: FakeClock) -> None:
    """With max_age=10000, a user who signed in a second ago sees no page, and auth_time stays."""
    first = await client.sign_in(max_age="15000")
    clock.advance(timedelta(seconds=1))
    check_same_sign_in(first, await client.sign_in(max_age="10000"))


async def test_oidcc_ensure_request_with_unknown_parameter_succeeds(client: Client) -> None:
    """An unknown parameter is ignored."""
    await check_ignored(client, extra="foobar")


async def test_oidcc_id_token_hint(client: Client, clock: FakeClock) -> None:
    """With prompt=none and the signed-in user's ID token as id_token_hint, the application gets a code for the same sign-in."""
    first = await client.sign_in()
    clock.advance(timedelta(seconds=1))
    check_same_sign_in(first, await client.sign_in(prompt="none", id_token_hint=first.tokens["id_token"]))


async def test_oidcc_login_hint(client: Client) -> None:
    """login_hint causes no error. The hinted address is filled in on the sign-in page."""
    grant = await client.sign_in(login_hint=EMAIL)
    [page] = grant.outcome.sign_in_pages
    assert f'value="{EMAIL}"' in page
    client.person.browser.cookies.clear()
    await client.sign_in(login_hint="buffy@gatehouse.test")


async def test_oidcc_ui_locales(client: Client) -> None:
    """ui_locales causes no error. The pages are in English, the only language that the metadata lists."""
    await check_ignored(client, ui_locales="se")
    assert (await client.configuration())["ui_locales_supported"] == ["en"]


async def test_oidcc_claims_locales(client: Client) -> None:
    """claims_locales causes no error."""
    await check_ignored(client, claims_locales="se")


async def test_oidcc_ensure_request_with_acr_values_succeeds(client: Client) -> None:
    """With all supported classes in acr_values, the ID token's `acr` is a requested class."""
    classes = (await client.configuration())["acr_values_supported"]
    grant = await client.sign_in(acr_values=" ".join(classes))
    assert grant.claims["acr"] in classes
