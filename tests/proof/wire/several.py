"""A minimal service with several processes.

Every response is the worker process's id. Events are printed on standard output.
"""

import argparse
import errno
import os
import signal
import socket
import sys
import time
from pathlib import Path

import trio

from entrypoints import workers
from entrypoints.http.edge.middleware import Receive, Send
from entrypoints.http.edge.protocol.listening import listen
from entrypoints.http.edge.protocol.request_checks import Scope
from entrypoints.http.edge.protocol.server import Server
from entrypoints.supervision import ParentLink, Supervisor, send_heartbeats

fork = os.fork


async def work(listening: socket.socket, parent: ParentLink, *, stubborn: bool) -> None:
    interrupts = 0
    shutdown = trio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            for _ in range(2):
                await send({"type": f"{(await receive())['type']}.complete"})
            return
        body = str(os.getpid()).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
        await send({"type": "http.response.body", "body": body})

    async def await_orphanhood() -> None:
        await parent.wait_until_gone()
        if not stubborn:
            shutdown.set()

    async def await_signal() -> None:
        nonlocal interrupts
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
            async for number in signals:
                if number == signal.SIGHUP:
                    print_line(f"reload {os.getpid()}")
                    parent.ready()
                    continue
                interrupts += number == signal.SIGINT
                print_line(f"{signal.Signals(number).name} {os.getpid()} {interrupts}")
                if not stubborn:
                    shutdown.set()

    def report_start() -> None:
        print_line(f"up {os.getpid()}")
        parent.ready()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send_heartbeats, parent)
        nursery.start_soon(await_orphanhood)
        nursery.start_soon(await_signal)
        server = Server(app=app, keep_alive=60)
        await server.serve([listening], shutdown=shutdown, shutdown_grace=1, on_started=report_start)
        nursery.cancel_scope.cancel()


def start_slowly() -> None:
    print_line("starting")
    time.sleep(0.5)  # a signal arrives while the worker still has its parent's handlers


def fail_once() -> int:
    os.fork = fork
    raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))


def print_line(line: str) -> None:
    os.write(1, f"{line}\n".encode())  # whole lines, even if several processes write at once


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=2)
    parser.add_argument("--stubborn", action="store_true")
    parser.add_argument("--broken", action="store_true")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--slow", action="store_true")
    options = parser.parse_args()
    workers.BACKOFF = 0.02
    if options.slow:
        workers.SECOND_INT_GRACE = 0.1
        os.register_at_fork(after_in_child=start_slowly)
    if options.no_memory:
        os.fork = fail_once
    with listen("127.0.0.1:0")[0] as listening:
        print_line(f"port {listening.getsockname()[1]}")

        def start(parent: ParentLink) -> int:
            if options.full:
                sys.stdout = Path("/dev/full").open("w")  # noqa: SIM115 (until the process ends)
                sys.stdout.write("this cannot be flushed")
            if options.broken:
                return 3
            trio.run(lambda: work(listening, parent, stubborn=options.stubborn))
            return 0

        code = workers.run_workers(
            options.count,
            start,
            [listening],
            Supervisor.from_environment(),
            workers.Hooks(on_death=lambda pid: print_line(f"dead {pid}")),
            term_grace=1.0 if options.stubborn else 10.0,
            int_grace=3600.0,  # so that no worker ends by the deadline after Ctrl-C
        )
    print_line("over")
    sys.exit(code)


if __name__ == "__main__":
    main()
