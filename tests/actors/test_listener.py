"""Notifications wake the right actor, a new connection wakes all actors, and a lost or silent connection is noticed."""

from functools import partial

import psycopg
import pytest
import structlog
import trio
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from actors.listener import listener
from actors.mailbox import Mailbox
from actors.supervisor import supervise
from adapters.postgres.engine.listen import listen
from adapters.postgres.engine.pool import Pool
from core.kernel.errors import StorageDown
from tests.support.waiting import PATIENCE


async def execute(conninfo: str, statement: str) -> None:
    """Execute a statement on another connection."""

    def run() -> None:
        with psycopg.connect(conninfo, autocommit=True) as connection:
            connection.execute(statement.encode())

    await trio.to_thread.run_sync(run)


async def wait_for_post(mailbox: Mailbox) -> None:
    assert await mailbox.wait(PATIENCE), "there was no post"


async def test_a_notification_wakes_the_actor_of_its_channel(conninfo: str) -> None:
    one, other = Mailbox(), Mailbox()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(listener, partial(listen, conninfo), {"one": one, "other": other})
        await wait_for_post(one)  # every actor looks once when the listening begins
        await wait_for_post(other)
        await execute(conninfo, "notify one")
        await wait_for_post(one)
        assert not await other.wait(0.02)
        nursery.cancel_scope.cancel()


@pytest.mark.slow
async def test_after_a_lost_connection_every_actor_looks_again(conninfo: str) -> None:
    mailbox = Mailbox()
    with structlog.testing.capture_logs() as log:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(supervise, "listener", partial(listener, partial(listen, conninfo), {"one": mailbox}))
            await wait_for_post(mailbox)
            await execute(
                conninfo,
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where application_name = 'gatehouse listen' and datname = current_database()",
            )
            await wait_for_post(mailbox)
            await execute(conninfo, "notify one")
            await wait_for_post(mailbox)
            nursery.cancel_scope.cancel()
    assert [entry["event"] for entry in log] == ["actor_met_outage"]


async def test_payloads_are_passed_on_and_notifications_of_the_same_process_are_not(conninfo: str, pool: Pool) -> None:
    with trio.fail_after(PATIENCE):
        async with listen(conninfo, ["one"], is_own=pool.owns) as notifications:
            async with pool.connection() as connection:
                await connection.row("select pg_notify('one', 'own')")
            await execute(conninfo, "notify one, 'other'")
            assert await anext(notifications) == ("one", "other")


async def test_a_connection_that_still_answers_stays(conninfo: str) -> None:
    with trio.fail_after(PATIENCE):
        async with listen(conninfo, ["one"], check_every=0.01) as notifications:
            with trio.move_on_after(0.1):
                await anext(notifications)
                pytest.fail("there was no notification")


async def test_a_connection_that_is_silently_dead_is_noticed(conninfo: str) -> None:
    address = conninfo_to_dict(conninfo)
    path = f"{address['host']}/.s.PGSQL.{address.get('port', 5432)}"
    lost = trio.Event()

    async def forward(source: trio.SocketStream, target: trio.SocketStream) -> None:
        async for data in source:
            if not lost.is_set():
                await target.send_all(data)

    async def proxy(client: trio.SocketStream) -> None:
        if lost.is_set():
            return
        async with await trio.open_unix_socket(path) as server, trio.open_nursery() as nursery:
            nursery.start_soon(forward, client, server)
            await forward(server, client)
            nursery.cancel_scope.cancel()

    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            [listening] = await nursery.start(partial(trio.serve_tcp, proxy, 0, host="127.0.0.1"))
            host, port = listening.socket.getsockname()
            through = make_conninfo(conninfo, host=host, port=port)
            async with listen(through, ["one"], check_every=0.01, check_timeout=0.05) as notifications:
                lost.set()
                with pytest.raises(StorageDown):
                    await anext(notifications)
            nursery.cancel_scope.cancel()


async def test_a_server_that_is_down_is_an_outage() -> None:
    with pytest.raises(StorageDown):
        async with listen("host=127.0.0.1 port=1", ["one"]):
            pytest.fail("there is no server on port 1")
