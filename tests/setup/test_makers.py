"""A set-up link ends with its maker's rights: the member's or the service account's."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from tests.programs.service_accounts import Robot, add_robot
from tests.setup.test_links import SIEM, STEPS, path_of, token_of
from tests.support.browser import FakeBrowser
from tests.support.builders import Answer, run_sql
from tests.support.platform import Platform
from tests.support.tenants import Tenant

Maker = Callable[[Tenant, Platform, Robot], Awaitable[Answer]]


async def of_a_robot(method: str, acme: Tenant, robot: Robot, body: dict[str, Any] | None = None) -> Answer:
    return await acme.api.call(method, robot.path, body, token=acme.token("owner"))


async def look_as_owner(acme: Tenant, link: dict[str, Any]) -> dict[str, Any]:
    return dict((await acme.api.get(f"{acme.path}/setup-links/{link['id']}", token=acme.token("owner"))).json)


def deactivate(acme: Tenant, platform: Platform, name: str) -> Awaitable[Answer]:
    return platform.api.post(f"/api/platform/users/{acme.id(name)}/deactivate", {"reason": "stolen"}, token=platform.token)


ROLE: Final = {"slug": "integrator", "name": "Integrator", "capabilities": ["integrations.manage"]}
# Acts that end a maker's rights: the member "admin", the member "member" with a custom role, or a service account
LOST_RIGHTS: Final[dict[str, tuple[str, Maker]]] = {
    "demotion": ("admin", lambda acme, platform, robot: acme.set_role("owner", "admin", "member")),
    "removal": ("admin", lambda acme, platform, robot: acme.remove("owner", "admin")),
    "leaving": ("admin", lambda acme, platform, robot: acme.api.post(f"{acme.path}/leave", token=acme.token("admin"))),
    "deletion": ("admin", lambda acme, platform, robot: acme.api.delete("/api/user", token=acme.token("admin"))),
    "deactivation": ("admin", lambda acme, platform, robot: deactivate(acme, platform, "admin")),
    "anonymization": (
        "admin",
        lambda acme, platform, robot: platform.api.delete(f"/api/privacy/forget/{acme.id('admin')}", token=platform.token),
    ),
    "deactivation of a custom role": ("member", lambda acme, platform, robot: deactivate(acme, platform, "member")),
    "a narrower role": (
        "member",
        lambda acme, platform, robot: acme.api.patch(
            f"{acme.path}/roles/integrator?confirm=true", {"capabilities": ["members.view"]}, token=acme.token("owner")
        ),
    ),
    "a lost grant": ("robot", lambda acme, platform, robot: of_a_robot("PATCH", acme, robot, {"granted_capabilities": []})),
    "a lower role": ("robot", lambda acme, platform, robot: of_a_robot("PATCH", acme, robot, {"role": "member"})),
    "the end of the account": ("robot", lambda acme, platform, robot: of_a_robot("DELETE", acme, robot)),
}
STOPS_ROBOT: Final = ("demotion", "removal", "deactivation", "anonymization")  # acts by other people against its owner


@pytest.mark.parametrize("end", LOST_RIGHTS)
async def test_a_link_ends_with_the_rights_of_its_maker(app: QuartTrio, acme: Tenant, platform: Platform, pool: Pool, end: str) -> None:
    maker, lose = LOST_RIGHTS[end]
    assert (await acme.api.post(f"{acme.path}/roles", ROLE, token=acme.token("owner"))).status == 201
    assert (await acme.set_role("owner", "member", "integrator")).status == 200
    robot = await add_robot(acme, "owner", owner_id=acme.id("admin"), granted_capabilities=["integrations.manage"])
    body = {"name": "Globex", "kind": "embedded", "parts": ["connection", "siem"]}
    links, readers = {}, {}
    for name, token in {**{name: acme.token(name) for name in ("owner", "admin", "member")}, "robot": robot.token}.items():
        created = await acme.api.post(f"{acme.path}/setup-links", body, token=token)
        assert created.status == 201, created.text
        links[name], readers[name] = created.json, FakeBrowser(app)
        await readers[name].fill(await readers[name].open(path_of(links[name])), token=token_of(links[name]))
        assert (await readers[name].submit(f"{STEPS}/siem", STEPS, **SIEM)).status == 303
    lost = await lose(acme, platform, robot)
    assert lost.status in (200, 204), lost.text
    ended = {name for name, reader in readers.items() if (await reader.open(STEPS)).status == 401}
    assert ended == {maker, *(("robot",) if end in STOPS_ROBOT else ())}
    states = {name: await look_as_owner(acme, link) for name, link in links.items()}
    assert {name for name, details in states.items() if details["state"] == "ended"} == ended
    assert {name for name, details in states.items() if not details["proposals"]} == ended, "no admin applies what it proposed"
    recorded = await run_sql(pool, "select 1 from audit_log where action = 'setup_link.ended' and org_id = %s", acme.org)
    assert len(recorded) == len(ended)
