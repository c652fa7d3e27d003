"""An application's sign-in page, which offers only ways that its policy accepts."""

import re
from dataclasses import replace
from typing import Any

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.applications.model.services import Service
from core.authentication.flow.model import Flow
from core.federation.connections import platform_requests
from core.federation.connections.routing import KnownRoutes
from core.kernel.connections import CODEHOST, WEBSUITE, ConnectionSlug
from core.kernel.values import digest, new_secret
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.proof.policy.world import World, new_world
from tests.support.browser import leads_to, main_of
from tests.support.builders import PASSWORD, Answer, Api, add_invitation, run_sql
from tests.support.direct import change_ports

PASSWORD_FIELD, EMAIL, PASSKEY, PROVIDER = 'name="password"', "Email me a code", 'data-passkey="get"', "Continue with "
EVERY = {"password", "email", "passkey", "provider"}
ALL = {"password": PASSWORD_FIELD, "email": EMAIL, "passkey": PASSKEY, "provider": PROVIDER}


@pytest.fixture
async def world(api: Api, app: QuartTrio, ports: Ports, pool: Pool, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> World:
    """The platform can sign users in by email and at two identity providers."""
    monkeypatch.setattr(platform_requests, "available_providers", two_providers)
    change_ports(app, policy=replace(ports.policy, email_sign_in=True))
    return await new_world(api, app, ports, pool, clock)


async def two_providers(*_: object) -> list[ConnectionSlug]:
    return [WEBSUITE, CODEHOST]


def offered(page: Answer) -> tuple[set[str], set[str]]:
    """Return the ways that the page offers, and the ways that it folds away."""
    text, _, folded = main_of(page).partition("<details")
    return tuple({name for name, mark in ALL.items() if mark in part} for part in (text, folded))  # type: ignore[return-value]


@pytest.mark.parametrize("protocol", ["oauth", "saml"])
@pytest.mark.parametrize(
    ("document", "shown", "folded"),
    [
        ({}, EVERY, set()),
        ({"second_factor": ["everyone"]}, EVERY, set()),
        ({"phishing_resistant": ["admins"]}, EVERY, set()),
        ({"methods": ["passkey"]}, {"passkey"}, EVERY - {"passkey"}),
        ({"phishing_resistant": ["everyone"]}, {"passkey"}, EVERY - {"passkey"}),
        ({"methods": ["passkey", "provider:websuite"]}, {"passkey", "provider"}, EVERY - {"passkey"}),
        ({"methods": ["password", "totp"]}, {"password"}, set()),
        ({"methods": ["email", "passkey"]}, {"email", "passkey"}, set()),
        ({"methods": ["passkey"], "due_at": {"methods": "2099-01-01T00:00:00Z"}}, EVERY, set()),
    ],
    ids=lambda value: " ".join(sorted(value)) or "none",
)
async def test_the_page_offers_what_the_policy_accepts(
    world: World, protocol: str, document: dict[str, Any], shown: set[str], folded: set[str]
) -> None:
    if document:
        await world.put(document)
    path = leads_to(await world.authorize()) if protocol == "oauth" else await world.browser.start_sign_on(world.application)
    page = await world.browser.open(path)
    assert offered(page) == (shown, folded)


async def test_an_application_that_requires_passkeys_folds_the_other_ways(world: World) -> None:
    await run_sql(world.pool, "update services set required_acr = 'phr'")
    page = await world.browser.open(leads_to(await world.authorize()))
    assert offered(page) == ({"passkey"}, EVERY - {"passkey"})
    assert '<a href="/app/account/security">Create a passkey in your account</a> first' in main_of(page)
    await run_sql(world.pool, "update services set required_acr = 'mfa'")
    assert offered(await world.browser.open(leads_to(await world.authorize()))) == (EVERY, set())


async def test_a_request_that_requires_passkeys_folds_the_other_ways(world: World) -> None:
    claims = '{"id_token": {"acr": {"essential": true, "values": ["phr"]}}}'
    page = await world.browser.open(leads_to(await world.authorize(scope="openid", response_type="code", claims=claims)))
    assert offered(page) == ({"passkey"}, EVERY - {"passkey"})


async def test_a_user_without_a_passkey_signs_in_another_way_and_sets_one_up(world: World) -> None:
    await world.put({"methods": ["passkey"]})
    page = await world.browser.open(leads_to(await world.authorize()))
    wrong = await world.browser.fill(page, email=world.ada.email, password="a wrong password")
    assert re.search("<details[^>]* open>", wrong.text), "the page shows the error"
    target = leads_to(await world.browser.fill(page, email=world.ada.email, password=PASSWORD))
    page = await world.browser.open(target, follows=False)
    assert leads_to(page).startswith("/app/enroll")


@pytest.mark.parametrize(
    ("document", "accepts"), [({}, True), ({"methods": ["passkey"]}, False), ({"methods": ["email", "passkey"]}, False)], ids=str
)
async def test_new_users_learn_that_a_password_does_not_open_the_application(world: World, document: dict[str, Any], accepts: bool) -> None:
    """The password opens the account, in which they set up another way. The invitation page asks for none."""
    if document:
        await world.put(document)
    await run_sql(world.pool, "update services set access_policy = 'anyone'")
    page = await world.browser.open(leads_to(await world.authorize(prompt="create")))
    assert "Create your account" in main_of(page)
    assert ("doesn't accept passwords" not in main_of(page)) is accepts
    token = new_secret()
    await add_invitation(world.ports, world.org, "new@example.com", token_hash=digest(token), inviter_token_hash=digest(new_secret()))
    page = await world.browser.open(f"/app/invitations/accept?token={token}")
    assert ("Choose a password" in main_of(page), "You need no password" in main_of(page)) == (accepts, not accepts)


async def test_rules_of_the_application_count_with_those_of_its_organization(world: World) -> None:
    await world.put({"methods": ["password", "passkey"]})
    await world.put({"methods": ["passkey", "email"]}, service=world.service)
    page = await world.browser.open(leads_to(await world.authorize()))
    assert offered(page) == ({"passkey"}, EVERY - {"passkey"})


@pytest.mark.parametrize(
    ("document", "is_offered"),
    [
        ({}, True),
        ({"methods": ["password", "passkey"]}, True),
        ({"phishing_resistant": ["everyone"]}, False),
        ({"methods": ["passkey"]}, False),
        ({"second_factor": ["everyone"]}, False),
        ({"methods": ["passkey"], "due_at": {"methods": "2099-01-01T00:00:00Z"}}, False),
    ],
    ids=str,
)
async def test_no_passkey_is_offered_where_the_page_of_the_policy_follows(world: World, document: dict[str, Any], is_offered: bool) -> None:
    await world.put(document)
    page = await world.browser.open(leads_to(await world.authorize()))
    after = leads_to(await world.browser.fill(page, email=world.ada.email, password=PASSWORD, can_passkey="yes"))
    assert after.startswith("/app/passkey") is is_offered
    if not is_offered:
        assert leads_to(await world.browser.open(after, follows=False)).startswith("/app/enroll")


@pytest.mark.parametrize("silent", [[], [WEBSUITE]], ids=["no provider", "one that cannot ask"])
async def test_the_page_speaks_of_missing_providers_only_where_there_are_some(
    world: World, monkeypatch: pytest.MonkeyPatch, silent: list[ConnectionSlug]
) -> None:
    async def providers(_ports: Ports, _known: KnownRoutes, flow: Flow, _service: Service | None) -> list[ConnectionSlug]:
        return [] if flow.wants_fresh else silent

    monkeypatch.setattr(platform_requests, "available_providers", providers)
    page = await world.browser.open(leads_to(await world.authorize(prompt="login")))
    assert "asks you to sign in again" in main_of(page)
    assert ("isn't shown here" in main_of(page)) is bool(silent)
