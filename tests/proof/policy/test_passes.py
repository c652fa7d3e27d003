"""The passes for an application that requires a connection, for its organization, and for another application: none is good elsewhere."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.kernel.proofs import first_proof
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.proof.policy.test_paths import PATHS
from tests.proof.policy.world import ALLOWED, CALLBACK, STATES, STEP_UP, World, new_world
from tests.support.builders import Api, run_sql
from tests.support.connections.proofs import CONNECTION, connection_proof, write_proofs
from tests.support.saml import add_application
from tests.support.services import add_service_user, verify_domain

OF_SHOP: Final = UUID(int=60)
BY_DOMAIN: Final = {"required_connections": {"example.com": {"id": str(CONNECTION), "slug": "okta"}}}
BY_SHOP: Final = {"required_connection": {"id": str(OF_SHOP), "slug": "entra"}}
IDLE: Final = {"session_idle_minutes": 5}
OF_ORGANIZATION: Final = ("API", "selection", "console", "creation of a personal token")
OF_APPLICATION: Final = (
    *("authorization", "silent authorization", "SAML", "passive SAML", "SAML without a request", "SAML over the API"),
    *("approval of a device", "approval of a device in a browser"),
)
OF_ITS_SESSIONS: Final = ("code", "device", "refresh of an application")


@pytest.fixture
async def shop(api: Api, app: QuartTrio, ports: Ports, pool: Pool, clock: FakeClock) -> World:
    """Acme requires Okta for Ada's address, and its application Shop requires Entra ID."""
    world = await new_world(api, app, ports, pool, clock)
    await verify_domain(pool, world.org, "example.com")
    await world.enter(STATES["bare"])
    await world.put(BY_DOMAIN)
    await world.put(BY_SHOP, service=world.service)
    return world


@pytest.fixture
async def board(shop: World) -> World:
    """Another application of Acme, without its own rules, in the same browser."""
    application = await add_application(shop.ports, shop.pool, shop.org, "acme", "board")
    await add_service_user(shop.ports, application.id, shop.ada.id, signed_in=False)
    await run_sql(shop.pool, "update services set redirect_uris = %s where id = %s", [CALLBACK], application.id)
    [(client_id,)] = await run_sql(shop.pool, "select client_id from services where id = %s", application.id)
    world = replace(shop, application=application, client_id=client_id)
    world.browser = shop.browser
    return world


async def come_through(world: World, connections: Mapping[UUID, datetime]) -> None:
    """Give Ada's sessions a password now, and sign-ins at these connections at these times."""
    through = [connection_proof(world.org, at, connection=connection) for connection, at in connections.items()]
    await write_proofs(world.pool, world.ada.id, (first_proof("password", world.clock.now()), *through))


async def walk(world: World, name: str) -> str:
    if name == "page of factors":  # it judges the session
        return ALLOWED if (await world.browser.open("/app/enroll?org=acme&service=shop")).status < 400 else "not allowed"
    if name == "refresh":  # belongs to the API session, which takes other paths, too
        assert world.session is not None, "the user is signed in"
        return await PATHS[name].walk(world, world.session.refresh_token)
    return await PATHS[name].walk(world, await PATHS[name].prepare(world))


@pytest.mark.slow
async def test_no_pass_is_good_at_another_place(shop: World, board: World) -> None:
    """A path alone gives its passes. Then the paths elsewhere ask for the second connection."""
    at_shop = ((*OF_APPLICATION, *OF_ITS_SESSIONS, "page of factors"), shop, OF_SHOP)
    at_board, at_acme = (OF_APPLICATION, board, CONNECTION), (OF_ORGANIZATION, shop, CONNECTION)
    to_shop = [(name, shop) for name in OF_APPLICATION]
    to_others = [(name, shop) for name in (*OF_ORGANIZATION, "refresh")] + [(name, board) for name in OF_APPLICATION]
    wrong = list[str]()
    for (names, world, connection), elsewhere in ((at_shop, to_others), (at_board, to_shop), (at_acme, to_shop)):
        for name in names:
            await run_sql(shop.pool, "delete from policy_passes")
            await come_through(shop, {connection: shop.clock.now()})
            if (outcome := await walk(world, name)) != ALLOWED:
                wrong.append(f"{name} of {world.application.slug}: {outcome}")
            for other, there in elsewhere:
                if (outcome := await walk(there, other)) != STEP_UP:
                    wrong.append(f"{other} of {there.application.slug} after {name} of {world.application.slug}: {outcome}")
    assert not wrong, "\n".join(wrong)


async def test_uses_of_one_place_do_not_renew_the_idle_time_of_another(shop: World, board: World, clock: FakeClock) -> None:
    """So a sign-in at a place opens no other place again. An application without such a rule shares its uses with the organization."""
    start = clock.now()
    await shop.put({**BY_DOMAIN, **IDLE})
    await come_through(shop, {CONNECTION: start, OF_SHOP: start})
    seen = [await walk(shop, "console"), await walk(shop, "authorization")]
    for minutes in (4, 4):
        clock.advance(timedelta(minutes=minutes))
        seen.append(await walk(shop, "authorization"))
    assert seen == [ALLOWED] * 4
    assert [await walk(shop, "console"), await walk(board, "authorization")] == [STEP_UP, STEP_UP]
    clock.advance(timedelta(minutes=6))
    await come_through(shop, {OF_SHOP: start, CONNECTION: clock.now()})
    assert [await walk(board, "authorization"), await walk(shop, "console")] == [ALLOWED, ALLOWED]
    assert await walk(shop, "authorization") == STEP_UP


async def test_an_application_that_lets_a_listed_user_in_hides_no_use_of_break_glass(shop: World, pool: Pool) -> None:
    """Ada came through the application's connection, so her first request in the console breaks the glass."""
    await run_sql(pool, "insert into break_glass_users (org_id, user_id) values (%s, %s)", shop.org, shop.ada.id)
    uses = "select details ->> 'connection' from audit_log where action = 'break_glass.used'"
    await come_through(shop, {OF_SHOP: shop.clock.now()})
    assert (await walk(shop, "authorization"), await run_sql(pool, uses)) == (ALLOWED, [])
    assert (await walk(shop, "console"), await run_sql(pool, uses)) == (ALLOWED, [("okta",)])
