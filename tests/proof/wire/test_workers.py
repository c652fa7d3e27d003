"""Several processes on one socket: dead workers are replaced, and SIGTERM stops all processes."""

import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from tests import ROOT
from tests.fakes.supervisor import NotifySocket
from tests.proof.e2e.conftest import launcher_ends
from tests.proof.e2e.launcher import Forked, launcher
from tests.proof.wire.wire import Client
from tests.support.waiting import PATIENCE, eventually

__all__ = ["launcher_ends"]

pytestmark = pytest.mark.slow


class Service:
    def __init__(self, process: Forked, stdout: trio.lowlevel.FdStream) -> None:
        self.process = process
        self.lines: list[str] = []  # on the standard output
        self._stdout = stdout
        self._buffer = b""
        self.port = 0

    async def wait_for_lines(self, start: str, count: int = 1) -> list[str]:
        """Wait for `count` lines that begin with `start`. Return the rests from all such lines."""
        with trio.fail_after(PATIENCE):
            while len(rests := [line.removeprefix(start).strip() for line in self.lines if line.startswith(start)]) < count:
                data = await self._stdout.receive_some(65536)
                assert data, f"it ended after {self.lines}"
                *complete, self._buffer = (self._buffer + data).split(b"\n")
                self.lines += [line.decode() for line in complete]
        return rests

    async def ask(self, path: str) -> bytes:
        stream = await trio.open_tcp_stream("127.0.0.1", self.port)
        async with stream:
            return (await Client(stream).get(path)).body

    async def wait(self) -> int:
        """Wait until the parent ends. Return its exit code."""
        return await trio.to_thread.run_sync(self.process.wait, PATIENCE)


@asynccontextmanager
async def service(*arguments: str, **variables: str) -> AsyncIterator[Service]:
    (reader, writer), nothing = os.pipe(), os.open(os.devnull, os.O_RDONLY)
    try:
        process = launcher().launch(
            arguments, program="several", home=ROOT, environment={**os.environ, **variables}, streams=[nothing, writer, writer]
        )
    finally:
        os.close(nothing)
        os.close(writer)
    async with trio.lowlevel.FdStream(reader) as stdout:
        service = Service(process, stdout)
        try:
            service.port = int((await service.wait_for_lines("port"))[0])
            yield service
        finally:
            process.kill()  # this ends the workers too
            process.wait(PATIENCE)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_sigterm_stops_all_processes() -> None:
    async with service("--count", "3") as several:
        pids = [int(pid) for pid in await several.wait_for_lines("up", 3)]
        assert len(set(pids)) == 3
        assert int(await several.ask("/")) in pids
        several.process.send_signal(signal.SIGTERM)
        assert await several.wait() == 0
        assert sorted(await several.wait_for_lines("dead", 3)) == sorted(str(pid) for pid in pids)
        assert not any(is_alive(pid) for pid in pids)
        assert len(await several.wait_for_lines("SIGTERM", 3)) == 3


async def test_a_worker_that_dies_is_replaced() -> None:
    async with service() as several:
        pids = await several.wait_for_lines("up", 2)
        os.kill(int(pids[0]), signal.SIGKILL)
        assert await several.wait_for_lines("dead") == [pids[0]]
        new = (await several.wait_for_lines("up", 3))[2]
        assert new not in pids
        assert (await several.ask("/")).decode() in (pids[1], new)
        several.process.send_signal(signal.SIGTERM)
        assert await several.wait() == 0


async def test_workers_do_not_outlive_their_parent() -> None:
    async with service() as several:
        pids = [int(pid) for pid in await several.wait_for_lines("up", 2)]
        several.process.kill()
        await eventually(lambda: not any(is_alive(pid) for pid in pids), "the workers are gone")
        with pytest.raises(OSError, match="connect"):
            await several.ask("/")


async def test_ctrl_c_in_a_terminal_reaches_each_worker_once() -> None:
    async with service() as several:
        pids = [int(pid) for pid in await several.wait_for_lines("up", 2)]
        os.killpg(several.process.pid, signal.SIGINT)  # the terminal signals all processes in the foreground
        assert await several.wait() == 0
        assert sorted(await several.wait_for_lines("SIGINT", 2)) == sorted(f"{pid} 1" for pid in pids)
        assert not any(is_alive(pid) for pid in pids)


async def test_a_second_ctrl_c_ends_at_once() -> None:
    async with service("--stubborn") as several:
        pids = [int(pid) for pid in await several.wait_for_lines("up", 2)]
        several.process.send_signal(signal.SIGINT)
        await several.wait_for_lines("SIGINT", 2)
        several.process.send_signal(signal.SIGINT)
        await several.wait_for_lines("SIGINT", 4)
        assert await several.wait() == 1
        assert not any(is_alive(pid) for pid in pids)


async def test_a_worker_that_does_not_stop_in_time_is_killed() -> None:
    async with service("--stubborn") as several:
        pids = [int(pid) for pid in await several.wait_for_lines("up", 2)]
        several.process.send_signal(signal.SIGTERM)
        assert await several.wait() == 1
        assert not any(is_alive(pid) for pid in pids)


async def test_an_interrupt_while_workers_start_leaves_no_traceback() -> None:
    async with service("--slow") as several:
        await several.wait_for_lines("starting", 2)
        # It also reaches the new workers, and must not count as the parent's second and third signal.
        os.killpg(several.process.pid, signal.SIGINT)
        await several.wait_for_lines("over")
        assert await several.wait() == 0
        assert "Traceback (most recent call last):" not in several.lines


async def test_workers_that_cannot_start_end_the_service_with_their_exit_code() -> None:
    async with service("--broken", "--count", "1") as several:
        assert await several.wait() == 3
        assert len(await several.wait_for_lines("dead", 5)) == 5


async def test_a_worker_that_cannot_write_its_output_ends_only_itself() -> None:
    async with service("--full", "--broken", "--count", "1") as several:
        assert await several.wait() == 3  # 1, if a worker ran on as the parent
        assert len(await several.wait_for_lines("dead", 5)) == 5


async def test_a_worker_that_cannot_be_forked_is_started_later() -> None:
    async with service("--no-memory", "--count", "2") as several:
        pids = await several.wait_for_lines("up", 2)
        assert (await several.ask("/")).decode() in pids
        several.process.send_signal(signal.SIGTERM)
        assert await several.wait() == 0


@pytest.mark.parametrize("is_abstract", [True, False], ids=["abstract", "path"])
async def test_the_supervisor_learns_of_start_reload_and_stop(is_abstract: bool) -> None:
    with NotifySocket(is_abstract=is_abstract) as supervisor:
        async with service("--count", "2", **supervisor.variables()) as several:
            pids = sorted(await several.wait_for_lines("up", 2))
            assert await trio.to_thread.run_sync(supervisor.receive_until, "READY=1")
            several.process.send_signal(signal.SIGHUP)
            reloading = await trio.to_thread.run_sync(supervisor.receive)
            assert reloading.keys() == {"RELOADING", "MONOTONIC_USEC"}
            assert 0 < int(reloading["MONOTONIC_USEC"]) <= time.monotonic_ns() // 1000
            assert await trio.to_thread.run_sync(supervisor.receive) == {"READY": "1"}
            assert sorted(await several.wait_for_lines("reload", 2)) == pids
            several.process.send_signal(signal.SIGTERM)
            assert await trio.to_thread.run_sync(supervisor.receive) == {"STOPPING": "1"}
            assert await several.wait() == 0
            assert sorted(await several.wait_for_lines("dead", 2)) == pids


async def test_the_watchdog_gets_no_heartbeat_while_a_worker_is_blocked() -> None:
    with NotifySocket() as supervisor:
        async with service("--count", "2", **supervisor.variables(watchdog=2)) as several:
            pids = await several.wait_for_lines("up", 2)
            assert await trio.to_thread.run_sync(supervisor.receive_until, "READY=1", "WATCHDOG=1")
            os.kill(int(pids[0]), signal.SIGSTOP)
            problem = f"STATUS=These workers do not respond: [{pids[0]}]."
            await trio.to_thread.run_sync(supervisor.receive_until, problem)
            assert (await several.ask("/")).decode() == pids[1]
            os.kill(int(pids[0]), signal.SIGCONT)
            assert "WATCHDOG=1" not in await trio.to_thread.run_sync(supervisor.receive_until, "STATUS=Serving.")
            assert await trio.to_thread.run_sync(supervisor.receive_until, "WATCHDOG=1")
            assert await several.wait_for_lines("up", 2) == pids
