"""The platform's policy: on its pages, its API and impersonations, for people only, and nowhere else."""

from typing import Any

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.proof.policy.world import ALLOWED, ENROLL, REFUSED, STATES, STEP_UP, new_world, outcome_of, outcome_of_page
from tests.support.browser import main_of
from tests.support.builders import Api, add_account, add_platform_owner, run_sql, sign_in
from tests.support.programs import add_credential, add_service_account

ADMINS = {"second_factor": ["everyone"]}
NETWORKS = {"second_factor": ["everyone"], "admin_networks": ["198.51.100.0/24"]}
STRICT = {"second_factor": ["everyone"], "phishing_resistant": ["everyone"]}


@pytest.mark.parametrize(
    ("document", "state", "outcome"),
    [
        (ADMINS, "bare", ENROLL),
        (ADMINS, "code left out", STEP_UP),
        (ADMINS, "code used", ALLOWED),
        (STRICT, "code used", ENROLL),
        (STRICT, "passkey left out", STEP_UP),
        (STRICT, "passkey used", ALLOWED),
        (NETWORKS, "code used", REFUSED),
    ],
)
async def test_platform_owners_meet_the_policy_of_the_platform(
    api: Api, app: QuartTrio, ports: Ports, pool: Pool, clock: FakeClock, document: dict[str, Any], state: str, outcome: str
) -> None:
    """Their own account, their organizations, programs and sign-ins to the platform go on."""
    world = await new_world(api, app, ports, pool, clock)
    await run_sql(pool, "update users set is_platform_owner = true where id = %s", world.ada.id)
    robot = await add_service_account(pool, None, world.ada.id)
    program = await add_credential(pool, api, robot, None)
    await world.enter(STATES[state])
    await world.put_on_platform(document)
    other = await add_account(ports, "grace@example.com")
    impersonate = f"/api/platform/impersonate/{other.id}"
    assert {
        "API": outcome_of(await api.get("/api/platform/organizations", token=world.token)),
        "page": outcome_of_page(await world.browser.open("/app/platform/organizations")),
        "impersonation": outcome_of(await api.post(impersonate, {"reason": "Ticket 4711"}, token=world.token)),
        "program": outcome_of(await api.get("/api/platform/organizations", token=await program.token())),
        "organization": outcome_of_page(await world.browser.open("/app/organizations/acme")),
        "account": (await world.browser.open("/app/account")).status,
    } == {"API": outcome, "page": outcome, "impersonation": outcome, "program": ALLOWED, "organization": ALLOWED, "account": 200}
    if outcome == ENROLL:
        assert "Gatehouse requires a" in main_of(await world.browser.open("/app/enroll"))


async def test_the_policy_of_the_platform_is_only_for_its_owners(
    api: Api, app: QuartTrio, ports: Ports, pool: Pool, clock: FakeClock
) -> None:
    world = await new_world(api, app, ports, pool, clock)
    await world.enter(STATES["bare"])
    await world.put_on_platform({**ADMINS, "due_at": {"second_factor": "2999-01-01T00:00:00Z"}})
    for path in ("/app/enroll", "/app/reauthenticate?policy=*"):
        answer = await world.browser.open(path, follows=False)
        assert (answer.status, "Gatehouse requires" in answer.text) == (303, False)
    await run_sql(pool, "update users set is_platform_owner = true where id = %s", world.ada.id)
    assert "Gatehouse requires a" in main_of(await world.browser.open("/app/enroll"))


@pytest.mark.parametrize("is_second", [False, True])
async def test_a_present_key_is_offered_as_the_second_factor(
    api: Api, app: QuartTrio, ports: Ports, pool: Pool, clock: FakeClock, is_second: bool
) -> None:
    world = await new_world(api, app, ports, pool, clock)
    await world.enter(STATES["bare"])
    since = clock.now() if is_second else None
    await run_sql(pool, "update users set security_key_count = 1, passkey_second_at = %s where id = %s", since, world.ada.id)
    await world.put(ADMINS)
    page = await world.browser.open("/app/enroll?org=acme", follows=False)
    assert (page.status, "as second factor" in page.text) == ((303, False) if is_second else (200, True))


async def test_no_policy_of_an_organization_binds_an_impersonator(
    api: Api, app: QuartTrio, ports: Ports, pool: Pool, clock: FakeClock
) -> None:
    world = await new_world(api, app, ports, pool, clock)
    await world.put({"phishing_resistant": ["everyone"], "admin_networks": ["198.51.100.0/24"]})
    owner = await sign_in(ports, await add_platform_owner(ports))
    path, reason = f"/api/platform/impersonate/{world.ada.id}", {"reason": "Ticket 4711"}
    started = (await api.post(path, reason, token=owner.access_token)).json
    members = await api.get("/api/organizations/acme/members", token=started["access_token"])
    assert members.status == 200, members.text
    assert (await api.post("/api/auth/refresh", {"refresh_token": started["refresh_token"]})).status == 200
