"""A required connection on every path to a session or a token, and break glass, which is the only way around it."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

import pytest
from quart_trio import QuartTrio

from adapters.postgres.authentication.sign_in_proofs import columns_of
from adapters.postgres.engine.pool import Pool
from core.kernel.proofs import Method, Proof, Proofs, first_proof
from core.kernel.roles import ADMIN, MEMBER
from entrypoints.http.api.provisioning.protocol import PATCH_URN
from ports import Ports
from tests.authentication.api.test_connection_sessions import open_session
from tests.fakes.outside import FakeClock
from tests.proof.policy.test_paths import PATHS
from tests.proof.policy.world import ALLOWED, REFUSED, STATES, STEP_UP, World, new_world, outcome_of, outcome_of_page
from tests.support.browser import form_token
from tests.support.builders import Answer, Api, add_account, add_member, run_concurrently, run_sql, sign_in
from tests.support.connections.proofs import CONNECTION, connection_proof, merged, write_proofs

OTHER: Final = UUID(int=7)
REQUIRED: Final = {"id": str(CONNECTION), "slug": "okta"}
BY_DOMAIN: Final = {"required_connections": {"example.com": REQUIRED}}
BY_APPLICATION: Final = {"required_connection": REQUIRED}
MEMBERS: Final = "/api/organizations/acme/members"
START: Final = f"/auth/connections/{CONNECTION}/start"
OF_ORGANIZATION: Final = ("API", "selection", "console", "creation of a personal token", "personal token", "refresh")
OF_APPLICATION: Final = (
    *("code", "refresh of an application", "approval of a device", "approval of a device in a browser", "device", "authorization"),
    *("silent authorization", "SAML", "passive SAML", "SAML without a request", "SAML over the API", "password"),
)
SOME_PATHS: Final = frozenset(
    {"API", "creation of a personal token", "personal token", "refresh", "code", "authorization", "SAML", "password"}
)
SAYS: Final = {  # tokens need a proof by the account itself, break glass is for people, and a new sign-in has its own proofs
    ("password", "the connection"): STEP_UP,
    ("password", "the connection and a password"): STEP_UP,
    ("creation of a personal token", "the connection"): STEP_UP,
    ("personal token", "listed"): REFUSED,
}


@pytest.fixture
async def world(api: Api, app: QuartTrio, ports: Ports, pool: Pool, clock: FakeClock) -> World:
    """Ada's address is at a domain that Acme has verified."""
    world = await new_world(api, app, ports, pool, clock)
    await verify_domain(world, "example.com")
    await world.enter(STATES["bare"])
    return world


async def verify_domain(world: World, domain: str, org: UUID | None = None) -> None:
    sql = "insert into domains (org_id, domain, challenge, verified_at, created_at) values (%s, %s, 'challenge', now(), now())"
    await run_sql(world.pool, sql, org or world.org, domain)


async def list_for_break_glass(world: World, *, is_listed: bool = True) -> None:
    await run_sql(world.pool, "delete from break_glass_users")
    if is_listed:
        await run_sql(world.pool, "insert into break_glass_users (org_id, user_id) values (%s, %s)", world.org, world.ada.id)


def _passkey(now: datetime) -> Proof:
    return Proof(Method.PASSKEY, now, user_verified=True, phishing_resistant=True)


def states(world: World, now: datetime) -> Mapping[str, tuple[Proofs, bool, str]]:
    """Return the proofs for every state, whether Ada is listed for break glass, and the outcome.

    `tests/kernel/rules/test_required_connections.py` has all states.
    """
    return {
        "passkey": ((_passkey(now),), False, STEP_UP),
        "the connection": ((connection_proof(world.org, now),), False, ALLOWED),
        "the connection and a password": (merged(world.org, now), False, ALLOWED),
        "listed": ((first_proof("password", now),), True, ALLOWED),
    }


@pytest.mark.slow
@pytest.mark.parametrize("document", [BY_DOMAIN, BY_APPLICATION])
async def test_no_path_opens_anything_without_the_required_connection(world: World, document: Mapping[str, Any], pool: Pool) -> None:
    wrong, now = list[str](), world.clock.now()
    service = world.service if document is BY_APPLICATION else None
    for state, (proofs, is_listed, outcome) in states(world, now).items():
        await list_for_break_glass(world, is_listed=is_listed)
        names = OF_APPLICATION if service else (*OF_ORGANIZATION, *OF_APPLICATION)
        for name in names if outcome is STEP_UP else SOME_PATHS.intersection(names):
            await write_proofs(pool, world.ada.id, (first_proof("password", now),))
            await world.put({}, service=service)
            prepared = await PATHS[name].prepare(world)
            await write_proofs(pool, world.ada.id, proofs)
            await run_sql(pool, "update sessions set proofs = %s where personal_token", columns_of(proofs)["proofs"])
            await world.put(document, service=service)
            expected = SAYS.get((name, state), PATHS[name].says.get(outcome, outcome))
            if (seen := await PATHS[name].walk(world, prepared)) != expected:
                wrong.append(f"{name}, {state}: {seen} instead of {expected}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
async def test_twenty_requests_of_break_glass_are_reported_once_to_all_admins_and_platform_owners(
    world: World, ports: Ports, pool: Pool
) -> None:
    for name, role in (("grace", ADMIN), ("eve", MEMBER)):
        await add_member(pool, world.org, (await add_account(ports, f"{name}@example.com")).id, role, confirmed=True)
    owner = await add_account(ports, "root@example.org")
    await run_sql(pool, "update users set is_platform_owner = true where id = %s", owner.id)
    await list_for_break_glass(world)
    await world.put(BY_DOMAIN)

    async def act(number: int) -> str:
        if number % 2:
            return outcome_of_page(await world.browser.open("/app/organizations/acme"))
        return outcome_of(await world.api.get(MEMBERS, token=world.token))

    assert set(await run_concurrently(20, act)) == {ALLOWED}
    code = await world.code()  # the application's session is part of the browser's session
    assert (await world.exchange(code)).status == 200
    mailed = await run_sql(pool, "select address, count(*)::int from mails where kind = 'break_glass_used' group by 1 order by 1")
    assert mailed == [("ada@example.com", 2), ("grace@example.com", 2), ("root@example.org", 2)], (
        "one session of the API, and one of the browser"
    )
    log = "select org_id, actor_id, target_id, details ->> 'connection' from audit_log where action = 'break_glass.used'"
    assert await run_sql(pool, log) == [(world.org, world.ada.id, str(world.ada.id), "okta")] * 2


async def test_a_browser_is_led_to_the_connection_and_a_program_is_told_its_address(world: World) -> None:
    await world.put(BY_DOMAIN)
    refused = await world.api.get(MEMBERS, token=world.token)
    told = {name: refused.json[name] for name in ("rule", "connection", "authorization_url", "organization")}
    assert (refused.status, told) == (
        401,
        {"rule": "required_connection", "connection": "okta", "authorization_url": f"http://gatehouse.test{START}", "organization": "Acme"},
    )
    assert 'error="insufficient_user_authentication"' in refused.headers["WWW-Authenticate"]
    page = await world.browser.open("/app/organizations/acme/members")
    confirmation = page.headers["Location"]
    assert (await world.browser.open(confirmation, follows=False)).headers["Location"].startswith(f"{START}?next=%2Fapp%2Freauthenticate")
    flow = (await world.authorize()).headers["Location"]
    led = (await follow(world, flow)).headers["Location"]
    assert urlsplit(led).path == START
    assert parse_qs(urlsplit(led).query)["flow"][0] in flow


@pytest.mark.slow
async def test_a_requirement_saved_during_requests_leaves_nothing_open(world: World) -> None:
    """Sessions, refreshes and codes meet the save. After it, no session opens the organization."""
    await world.put({})
    sessions = [await sign_in(world.ports, world.ada, world.org) for _ in range(20)]
    codes = [await world.code() for _ in range(5)]
    granted = list[str]()

    async def act(number: int) -> None:
        if number == 10:
            await world.put(BY_DOMAIN)
        elif number % 4 == 0:
            answer = await world.exchange(codes[number // 4])
            granted.extend([answer.json["refresh_token"]] if answer.status == 200 else [])
        elif number % 2:
            await world.api.get(MEMBERS, token=sessions[number].access_token)
        else:
            await world.api.post("/api/auth/refresh", {"refresh_token": sessions[number].refresh_token})

    await run_concurrently(20, act)
    for session in sessions:
        assert outcome_of(await world.api.get(MEMBERS, token=session.access_token)) == STEP_UP
    for refresh_token in granted:
        assert outcome_of(await world.send("/auth/token", grant_type="refresh_token", refresh_token=refresh_token)) == STEP_UP


async def test_a_directory_that_blocks_a_listed_user_takes_break_glass_away(world: World, pool: Pool) -> None:
    directory: Any = await PATHS["SCIM"].prepare(world)
    await list_for_break_glass(world)
    await world.put(BY_DOMAIN)
    assert outcome_of(await world.api.get(MEMBERS, token=world.token)) == ALLOWED
    change = {"schemas": [PATCH_URN], "Operations": [{"op": "replace", "path": "active", "value": False}]}
    assert (await world.api.call("PATCH", f"/scim/v2/Users/{world.ada.id}", change, token=directory)).status == 200
    assert (await world.api.get(MEMBERS, token=world.token)).status in (401, 403)
    assert await run_sql(pool, "select 1 from break_glass_users") == []


async def test_a_form_waits_while_its_user_signs_in_at_the_connection(world: World, clock: FakeClock) -> None:
    """The sign-in begins another session in the browser."""
    page = "/app/organizations/acme/groups/new"
    token = form_token(await world.browser.open(page))
    await world.put(BY_DOMAIN)
    asked = (await world.browser.send(page, form_token=token, name="Engineers")).headers["Location"]
    assert asked.startswith("/app/reauthenticate?form=")
    proof, cookies = connection_proof(world.org, clock.now()), world.browser.cookies
    cookies["gatehouse-session"] = await open_session(world.ports, world.ada, proof, cookies["gatehouse-session"])
    kept = await world.browser.open(asked)
    assert (kept.status, 'name="kept_form"' in kept.text) == (200, True), kept.text


async def follow(world: World, location: str) -> Answer:
    """Return the first answer that leads away from the flow's pages."""
    answer = await world.browser.open(location, follows=False)
    while answer.headers.get("Location", "").startswith("/app/flow/"):
        answer = await world.browser.open(answer.headers["Location"], follows=False)
    return answer
