"""LISTEN and NOTIFY on a driver connection."""

from contextlib import aclosing

import pytest
import trio
import trio.testing
from psycopg import errors

from tests.engine.sessions import session
from tests.support.waiting import PATIENCE


async def test_notification_arrives_on_another_connection(blank: str) -> None:
    async with session(blank) as listener, session(blank) as speaker:
        await listener.execute("listen news")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(speaker.run, "select pg_notify('news', 'first'), pg_notify('news', 'second')")
            async with aclosing(listener.notifies()) as notifications:
                payloads = [(await anext(notifications)).payload for _ in range(2)]
        assert payloads == ["first", "second"]
        assert await listener.row("select 1") == (1,)


async def test_a_notification_is_sent_with_the_commit(blank: str) -> None:
    async with session(blank) as listener, session(blank) as speaker:
        await listener.execute("listen news")
        speaker.begin()
        await speaker.run("notify news, 'held'")
        async with aclosing(listener.notifies(timeout=0.05)) as notifications:
            assert [notification async for notification in notifications] == []
        await speaker.commit()
        async with aclosing(listener.notifies(timeout=PATIENCE, stop_after=1)) as notifications:
            assert [notification.payload async for notification in notifications] == ["held"]


async def test_listening_can_be_canceled_and_continued(blank: str) -> None:
    async with session(blank) as listener, session(blank) as speaker:
        await listener.execute("listen news")
        with trio.move_on_after(0.02) as scope:
            async with aclosing(listener.notifies()) as notifications:
                await anext(notifications)
        assert scope.cancelled_caught
        assert not listener.closed
        await speaker.run("notify news, 'later'")
        async with aclosing(listener.notifies()) as notifications:
            assert (await anext(notifications)).payload == "later"


async def test_a_timeout_of_zero_returns_notifications_that_have_arrived(blank: str) -> None:
    async with session(blank) as listener, session(blank) as speaker:
        await listener.execute("listen news")
        await speaker.run("notify news, 'waiting'")
        await trio.lowlevel.wait_readable(listener.fileno())
        async with aclosing(listener.notifies(timeout=0)) as notifications:
            assert [notification.payload async for notification in notifications] == ["waiting"]


async def test_a_listener_notices_that_the_server_ended_its_session(blank: str) -> None:
    async with session(blank) as listener, session(blank) as other:
        await listener.execute("listen news")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(other.run, "select pg_terminate_backend(%(pid)s)", {"pid": listener.info.backend_pid})
            with pytest.raises(errors.OperationalError):
                async with aclosing(listener.notifies()) as notifications:
                    await anext(notifications)
