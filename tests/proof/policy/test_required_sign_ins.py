"""A sign-in's age where an organization requires a connection: only a sign-in there is young enough (security SP-9)."""

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.kernel.proofs import Method, Proof, Proofs, first_proof
from core.kernel.roles import OWNER, Capability
from core.kernel.sign_in_age import SignInAge
from entrypoints.http.edge.access.declaration import Access, access_of
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.proof.access.calls import routes
from tests.proof.policy.test_required_connection import BY_DOMAIN, START, list_for_break_glass, verify_domain
from tests.proof.policy.world import STATES, World, new_world
from tests.support.browser import form_token
from tests.support.builders import Answer, Api, application, run_sql
from tests.support.connections.proofs import connection_proof, write_proofs

ACCESS: Final = {route: access_of(view) for route, view in routes(application())}
AGES: Final = {SignInAge.FRESH: timedelta(minutes=10), SignInAge.RECENT: timedelta(minutes=60)}
LEAVING: Final = "POST /api/organizations/<org_slug>/leave"  # it asks no organization's policy
# Removing rules that keep the owner out asks none either, by the API and by the page (`tests/tenancy/api/policy/test_imposed_rules.py`).
WITHOUT_POLICY: Final = (
    LEAVING,
    "DELETE /api/organizations/<org_slug>/sign-in-policy/imposed-rules",
    "POST /app/organizations/<org_slug>/sign-in-policy/imposed-rules",
)
SECOND: Final = timedelta(seconds=1)
TOKEN: Final = {"name": "Export", "scopes": ["members:read"], "org_slug": "acme"}
NEW_TOKEN: Final = "/app/account/personal-tokens/new"


@pytest.fixture
async def world(api: Api, app: QuartTrio, ports: Ports, pool: Pool, clock: FakeClock) -> World:
    """Ada owns Acme, which requires her connection. She has a password."""
    world = await new_world(api, app, ports, pool, clock, OWNER)
    await verify_domain(world, "example.com")
    await world.enter(STATES["bare"])
    await world.put(BY_DOMAIN)
    return world


def acts() -> Iterator[tuple[str, Access, SignInAge]]:
    """Yield every operation in an organization that asks for a sign-in's age. The last operation deletes the organization."""
    last = "DELETE /api/organizations/<org_slug>"
    for route in sorted(ACCESS, key=lambda route: (route == last, route)):
        access, age = ACCESS[route], ACCESS[route].row(route.partition(" ")[0]).age
        if access.name in ("member", "member_page") and age is not SignInAge.ANY and route not in WITHOUT_POLICY:
            yield route, access, age


async def send(world: World, route: str, token: str) -> Answer:
    """Send a request without fields. The age is checked before it is read."""
    method, _, path = route.partition(" ")
    parts = [str(uuid4()) if part.endswith("_id>") else "x" if part.startswith("<") else part for part in path.split("/")]
    parts[3] = "acme"
    await run_sql(world.pool, "delete from rates")
    if path.startswith("/app/"):
        return await world.browser.send("/".join(parts), form_token=token)
    return await world.api.call(method, "/".join(parts), {}, token=world.token)


def asks(answer: Answer) -> str | None:
    """Return the connection, or the account's own sign-in, that the answer asks for."""
    location = urlsplit(answer.headers.get("Location", ""))
    if location.path == "/app/reauthenticate":
        query = parse_qs(location.query)
        return " ".join(["page", *query.get("policy", []), *query.get("age", [])])
    challenge = answer.headers.get("WWW-Authenticate", "")
    if answer.status != 401 or 'error="insufficient_user_authentication"' not in challenge:
        return None
    assert answer.json.get("authorization_url", START).partition("?")[0].endswith(START)
    max_age = re.search(r'max_age="(\d+)"', challenge)
    return f"{answer.json.get('connection', 'own')} {max_age.group(1) if max_age else 'mfa'}"


def own(at: datetime) -> Proof:
    return first_proof("password", at)


def silent(proof: Proof) -> Proof:
    """Return the proof from a sign-in for which the identity provider may not have asked the user."""
    return replace(proof, is_fresh=False)


@pytest.mark.slow
async def test_each_act_in_the_organization_needs_a_young_sign_in_at_the_connection(world: World, pool: Pool) -> None:
    """Every act is tried with a new password, and with a sign-in at the connection that is too old.

    The access decorator treats other proofs alike at all routes with the same needs, so a single route of every kind tries them.
    """
    now, wrong, tried = world.clock.now(), list[str](), set[object]()
    await write_proofs(pool, world.ada.id, (own(now), connection_proof(world.org, now)))
    token = form_token(await world.browser.open("/app/organizations/acme/groups/new"))
    walked = list(acts())
    for route, access, age in walked:
        is_page, limit = " /app/" in route, AGES[age]
        too_old = connection_proof(world.org, now - limit - SECOND)
        expected = f"page acme {age.value}" if is_page else f"okta {int(limit.total_seconds())}"
        await write_proofs(pool, world.ada.id, (own(now), too_old))
        if (seen := asks(await send(world, route, token))) != expected:
            wrong.append(f"{route} with a fresh password: {seen} instead of {expected}")
        is_of_owner = access.capability is Capability.ORGANIZATION_OWN
        if (needs := (access.name, is_of_owner, access.row(route.partition(" ")[0]))) in tried:
            continue
        tried.add(needs)
        old, young = own(now - timedelta(days=1)), connection_proof(world.org, now - limit)
        await write_proofs(pool, world.ada.id, (old, young))
        expected_of_old = None if not is_of_owner else "page" if is_page else f"own {int(limit.total_seconds())}"
        if (seen := asks(await send(world, route, token))) != expected_of_old:
            wrong.append(f"{route} with an old password and a young sign-in at the connection: {seen} instead of {expected_of_old}")
        expected_of_silent = f"page acme {age.value}" if is_page else f"own {int(limit.total_seconds())}"
        await write_proofs(pool, world.ada.id, (own(now - limit - SECOND), silent(young)))
        if (seen := asks(await send(world, route, token))) != expected_of_silent:
            wrong.append(f"{route} with an old password and a silent sign-in: {seen} instead of {expected_of_silent}")
        await write_proofs(pool, world.ada.id, (own(now - limit), silent(young)))
        if (seen := asks(await send(world, route, token))) is not None:
            wrong.append(f"{route} with both: {seen}")
    assert not wrong, "\n".join(wrong)
    assert len(walked) > 150
    await write_proofs(pool, world.ada.id, (own(now), too_old))
    assert asks(await send(world, LEAVING, token)) is None


async def test_each_change_that_uses_break_glass_is_reported(world: World, pool: Pool) -> None:
    """A new name, and inviting a member, too."""
    await list_for_break_glass(world)
    now = world.clock.now()
    await write_proofs(pool, world.ada.id, (own(now), connection_proof(world.org, now - timedelta(minutes=61))))
    invitation = {"email": "member@example.com", "role": "member"}
    requests: list[tuple[str, str, Any]] = [
        ("PATCH", "/api/organizations/acme", {"name": "Acme Works"}),
        ("POST", "/api/organizations/acme/invitations", invitation),
        ("POST", "/api/organizations/acme/invitations/bulk", {"invitations": [{**invitation, "email": "another@example.com"}]}),
    ]
    for method, path, body in requests:
        await run_sql(pool, "delete from break_glass_uses")
        assert (await world.api.call(method, path, body, token=world.token)).status in (200, 201), path
    used = "select details ->> 'connection' from audit_log where action = 'break_glass.used'"
    assert await run_sql(pool, used) == [("okta",)] * 3


async def test_the_api_names_the_age_and_what_helps(world: World, pool: Pool) -> None:
    """The policy has no rule about the lifetime."""
    now = world.clock.now()
    for proofs, advice in (
        (
            (own(now), connection_proof(world.org, now - timedelta(minutes=61))),
            "of the last 60 minutes here. Sign in again",
        ),
        ((own(now - timedelta(minutes=61)), silent(connection_proof(world.org, now))), "with your password or a passkey"),
    ):
        await write_proofs(pool, world.ada.id, proofs)
        answer = await world.api.call("POST", "/api/organizations/acme/groups", {}, token=world.token)
        assert (answer.status, answer.json.get("rule"), advice in answer.json["error"]) == (401, None, True), answer.text


async def test_the_options_of_the_api_name_the_ways_that_count_beside_a_silent_sign_in(world: World, pool: Pool) -> None:
    """No code by email counts, also if it was the last sign-in. In an organization that requires no connection, it does."""
    now = world.clock.now()
    by_email = (first_proof("email", now), silent(connection_proof(world.org, now)))
    for document, age, expected in (
        (BY_DOMAIN, 0, (["password"], True)),
        (BY_DOMAIN, 30, (["password"], True)),
        (BY_DOMAIN, 61, (["password", "email"], True)),
        ({}, 0, (["password", "email"], False)),
    ):
        await world.put(document)
        proofs = (own(now - timedelta(hours=2)), *(replace(proof, at=now - timedelta(minutes=age)) for proof in by_email))
        await write_proofs(pool, world.ada.id, proofs)
        options = (await world.api.get("/api/auth/reauthenticate", token=world.token)).json
        assert (options["methods"], options["needs_first_factor"]) == expected, (document, age)


async def test_a_personal_access_token_needs_it_too(world: World, pool: Pool) -> None:
    """The own account's token needs none."""
    now = world.clock.now()
    await write_proofs(pool, world.ada.id, (own(now), connection_proof(world.org, now)))
    page = await world.browser.open(f"{NEW_TOKEN}?org_slug=acme")
    typed = {"form_token": form_token(page), "form_key": "k" * 22, "name": "Export", "expires_in_days": "366", "scope:members:read": "yes"}
    await write_proofs(pool, world.ada.id, (own(now), connection_proof(world.org, now - timedelta(minutes=11))))
    assert asks(await world.api.post("/api/user/personal-tokens", TOKEN, token=world.token)) == "okta 600"
    asked = await world.browser.send(NEW_TOKEN, **typed, org_slug="acme")
    assert asks(asked) == "page acme fresh"
    assert await run_sql(pool, "select 1 from sessions where personal_token") == []
    of_account = {"name": "Export", "scopes": ["account:read"]}
    assert (await world.api.post("/api/user/personal-tokens", of_account, token=world.token)).status == 200
    await write_proofs(pool, world.ada.id, (own(now), connection_proof(world.org, now)))
    assert (await world.api.post("/api/user/personal-tokens", TOKEN, token=world.token)).status == 200
    kept = await world.browser.open(asked.headers["Location"])
    assert (kept.status, 'name="kept_form"' in kept.text) == (200, True)


def _states(world: World, now: datetime) -> list[tuple[str, Proofs, bool, str | None]]:
    """Return the proofs for states with a second factor and break glass, whether Ada is listed, and the answer to an act."""
    old, through = now - timedelta(minutes=61), connection_proof(world.org, now)
    asked_before, again = replace(connection_proof(world.org, old), vouched_at=now), replace(silent(through), at=old, vouched_at=now)
    return [
        ("silent", (silent(through), own(now)), False, None),
        ("silent alone", (own(old), silent(through)), False, "own 3600"),
        ("silent, with a code by email", (own(old), first_proof("email", now), silent(through)), False, "own 3600"),
        (
            "silent, with a sign-in at a provider of the platform",
            (own(old), first_proof("websuite", now), silent(through)),
            False,
            "own 3600",
        ),
        ("silent, with a code of the app", (own(old), Proof(Method.TOTP, now), silent(through)), False, "own 3600"),
        ("silent, with a passkey", (Proof(Method.PASSKEY, now, user_verified=True), silent(through)), False, None),
        ("silent, with a security key", (own(old), Proof(Method.PASSKEY, now), silent(through)), False, "own 3600"),
        ("silent again, after it asked", (own(old), asked_before), False, "own 3600"),
        ("silent again, after it asked, with a password", (own(now), asked_before), False, None),
        ("silent again, with a password", (own(now), again), False, None),
        ("silent long ago", (own(now), silent(connection_proof(world.org, old))), False, "okta 3600"),
        ("without the second factor", (own(now), through), False, "own mfa"),
        ("with the second factor", (own(now), Proof(Method.TOTP, now), through), False, None),
        ("a second factor that is too old", (own(old), Proof(Method.TOTP, old), connection_proof(world.org, now)), False, "own mfa"),
        ("listed, with a fresh password", (own(now), Proof(Method.TOTP, now), connection_proof(world.org, old)), True, None),
        ("listed, with an old password", (own(old), Proof(Method.TOTP, old), connection_proof(world.org, old)), True, "own 3600"),
    ]


async def test_the_second_factors_of_the_policy_and_break_glass_count_as_for_the_policy(world: World, pool: Pool) -> None:
    await world.enter(STATES["code used"])
    wrong, now = list[str](), world.clock.now()
    for name, proofs, is_listed, expected in _states(world, now):
        await world.put(BY_DOMAIN if name.startswith("silent") else {**BY_DOMAIN, "second_factor": ["everyone"]})
        await list_for_break_glass(world, is_listed=is_listed)
        admitted = (own(now), Proof(Method.TOTP, now), connection_proof(world.org, now))
        await write_proofs(pool, world.ada.id, admitted)
        assert (await world.api.get("/api/organizations/acme/members", token=world.token)).status == 200
        await write_proofs(pool, world.ada.id, proofs)
        answer = await world.api.call("POST", "/api/organizations/acme/groups", {}, token=world.token)
        if (seen := asks(answer)) != expected:
            wrong.append(f"{name}: {seen} instead of {expected}")
    assert not wrong, "\n".join(wrong)
    used = "select count(*)::int from audit_log where action = 'break_glass.used'"
    assert await run_sql(pool, used) == [(1,)], "of the state that break glass let in"
