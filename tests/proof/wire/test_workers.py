"""Several processes on one socket: dead workers are replaced, SIGTERM stops all, and no process
stays behind."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from tests import ROOT
from tests.proof.wire.wire import Client
from tests.support.waiting import PATIENCE, eventually

pytestmark = pytest.mark.slow


class Service:
    def __init__(self, process: trio.Process) -> None:
        assert process.stdout is not None
        self.process = process
        self._lines = process.stdout
        self._buffer = b""
        self.printed: list[str] = []
        self.port = 0

    async def tells(self, start: str, count: int = 1) -> list[str]:
        """Return the rest of the first lines that begin with `start`."""
        with trio.fail_after(PATIENCE):
            while len(found := [line.removeprefix(start).strip() for line in self.printed if line.startswith(start)]) < count:
                data = await self._lines.receive_some(65536)
                assert data, f"it ended after {self.printed}"
                *lines, self._buffer = (self._buffer + data).split(b"\n")
                self.printed += [line.decode() for line in lines]
        return found

    async def ask(self, path: str) -> bytes:
        stream = await trio.open_tcp_stream("127.0.0.1", self.port)
        async with stream:
            return (await Client(stream).get(path)).body

    async def ends(self) -> int:
        with trio.fail_after(PATIENCE):
            return await self.process.wait()


@asynccontextmanager
async def service(*arguments: str) -> AsyncIterator[Service]:
    process = await trio.lowlevel.open_process(
        [sys.executable, "-m", "tests.proof.wire.several", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    service = Service(process)
    try:
        service.port = int((await service.tells("port"))[0])
        yield service
    finally:
        if process.returncode is None:
            process.kill()  # this ends the workers too
            with trio.CancelScope(shield=True):
                await process.wait()


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_sigterm_stops_all_processes() -> None:
    async with service("--count", "3") as several:
        pids = [int(pid) for pid in await several.tells("up", 3)]
        assert len(set(pids)) == 3
        assert int(await several.ask("/")) in pids
        several.process.send_signal(signal.SIGTERM)
        assert await several.ends() == 0
        assert sorted(await several.tells("dead", 3)) == sorted(str(pid) for pid in pids)
        assert not any(is_alive(pid) for pid in pids)
        assert len(await several.tells("SIGTERM", 3)) == 3


async def test_a_worker_that_dies_is_replaced() -> None:
    async with service() as several:
        pids = await several.tells("up", 2)
        os.kill(int(pids[0]), signal.SIGKILL)
        assert await several.tells("dead") == [pids[0]]
        new = (await several.tells("up", 3))[2]
        assert new not in pids
        assert (await several.ask("/")).decode() in (pids[1], new)
        several.process.send_signal(signal.SIGTERM)
        assert await several.ends() == 0


async def test_workers_do_not_outlive_their_parent() -> None:
    async with service() as several:
        pids = [int(pid) for pid in await several.tells("up", 2)]
        several.process.kill()
        await eventually(lambda: not any(is_alive(pid) for pid in pids), "the workers are gone")
        with pytest.raises(OSError, match="connect"):
            await several.ask("/")


async def test_ctrl_c_in_a_terminal_reaches_each_worker_once() -> None:
    async with service() as several:
        pids = [int(pid) for pid in await several.tells("up", 2)]
        os.killpg(several.process.pid, signal.SIGINT)  # the terminal signals all processes in the foreground
        assert await several.ends() == 0
        assert sorted(await several.tells("SIGINT", 2)) == sorted(f"{pid} 1" for pid in pids)
        assert not any(is_alive(pid) for pid in pids)


async def test_a_second_ctrl_c_ends_at_once() -> None:
    async with service("--stubborn") as several:
        pids = [int(pid) for pid in await several.tells("up", 2)]
        several.process.send_signal(signal.SIGINT)
        await several.tells("SIGINT", 2)
        several.process.send_signal(signal.SIGINT)
        await several.tells("SIGINT", 4)
        assert await several.ends() == 1
        assert not any(is_alive(pid) for pid in pids)


async def test_a_worker_that_does_not_stop_in_time_is_killed() -> None:
    async with service("--stubborn") as several:
        pids = [int(pid) for pid in await several.tells("up", 2)]
        several.process.send_signal(signal.SIGTERM)
        assert await several.ends() == 1
        assert not any(is_alive(pid) for pid in pids)


async def test_an_interrupt_while_workers_start_leaves_no_traceback() -> None:
    async with service() as several:
        await several.tells("starting", 2)
        several.process.send_signal(signal.SIGINT)
        await several.tells("over")
        assert await several.ends() == 0
        assert "Traceback (most recent call last):" not in several.printed


async def test_workers_that_cannot_start_end_the_service_with_their_exit_code() -> None:
    async with service("--broken", "--count", "1") as several:
        assert await several.ends() == 3
        assert len(await several.tells("dead", 5)) == 5
