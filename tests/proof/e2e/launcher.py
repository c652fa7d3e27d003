"""Processes of `gatehouse`, and of some test programs, that are forked from a process that has imported everything.

A new interpreter spends most time on imports and on building the routes. A forked process is as real: it has its own process id, process
group, environment, descriptors and exit code, and signals reach it alone. Its environment is not in /proc, so it works in its test's
directory, by which it is found.
"""

import gc
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final, NoReturn

from tests import ROOT

_LARGEST_ORDER: Final = 128 * 1024  # bytes, mostly the environment


class Forked:
    """A forked process, with those parts of `subprocess.Popen` that tests need."""

    def __init__(self, arguments: Sequence[str], status: int) -> None:
        self._arguments = list(arguments)
        self._status = os.fdopen(status, "rb", buffering=0)
        self.pid = int(self._status.readline())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, or None while the process runs."""
        if self.returncode is None and select.select([self._status], [], [], 0)[0]:
            self.returncode = int(self._status.readline())
            self._status.close()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code as soon as the process has ended. Raises: TimeoutExpired."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.poll() is None:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise subprocess.TimeoutExpired(self._arguments, timeout or 0)
            select.select([self._status], [], [], left)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Launcher:
    """The process that forks. It ends with this process, because it then reads the end of their socket."""

    def __init__(self) -> None:
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen([sys.executable, "-m", __name__], cwd=ROOT, stdin=theirs.fileno())

    def launch(
        self, arguments: Sequence[str], *, home: Path, environment: Mapping[str, str], streams: Sequence[int], program: str = "gatehouse"
    ) -> Forked:
        """Run a program with these arguments in its own process group. `streams` become its descriptors 0 to 2."""
        report, status = os.pipe()
        order = {"arguments": [program, *arguments], "home": str(home), "environment": dict(environment)}
        try:
            socket.send_fds(self._orders, [json.dumps(order).encode()], [*streams, status])
        finally:
            os.close(status)
        return Forked([program, *arguments], report)

    def close(self) -> None:
        self._orders.close()
        self._process.wait()


@cache
def launcher() -> Launcher:
    """Return this test process's launcher."""
    return Launcher()


def close() -> None:
    """End this test process's launcher, if any."""
    if launcher.cache_info().currsize:
        launcher().close()
        launcher.cache_clear()


# The launcher's own process


def main() -> bool:
    """Fork for every order until there are no more. Return whether this is a forked process, which continues as its program."""
    orders = socket.socket(fileno=os.dup(0))
    statuses: dict[int, int] = {}  # descriptors for the exit status, by the processes' descriptors
    with selectors.DefaultSelector() as selector:
        selector.register(orders, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is not orders:
                    selector.unregister(key.fd)
                    _report(key.fd, statuses.pop(key.fd), key.data)
                    continue
                message, received, _, _ = socket.recv_fds(orders, _LARGEST_ORDER, 4)
                if not message:
                    return False
                *streams, status = received
                pid = os.fork()
                if pid == 0:
                    selector.close()
                    orders.close()
                    for descriptor in (*statuses, *statuses.values(), status):
                        os.close(descriptor)
                    _become(json.loads(message), streams)
                    return True
                for descriptor in streams:
                    os.close(descriptor)
                process = os.pidfd_open(pid)
                statuses[process] = status
                selector.register(process, selectors.EVENT_READ, pid)
                _write(status, pid)


def _report(process: int, status: int, pid: int) -> None:
    _, ended = os.waitpid(pid, 0)
    _write(status, os.waitstatus_to_exitcode(ended))
    os.close(status)
    os.close(process)


def _write(status: int, number: int) -> None:
    with suppress(BrokenPipeError):  # no test waits for this process
        os.write(status, b"%d\n" % number)


def _become(order: dict[str, object], streams: Sequence[int]) -> None:
    """Take the order's streams, environment and directory, as a new interpreter would have them."""
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.setsid()
    os.chdir(str(order["home"]))
    os.environ.clear()
    os.environ.update(order["environment"])  # type: ignore[call-overload]
    sys.argv = list(order["arguments"])  # type: ignore[call-overload]
    tempfile.tempdir = None  # it is computed again from TMPDIR


class _Checked:
    """The library check, which has already succeeded."""

    def finish(self) -> None:
        pass


def _prepare_once() -> None:
    """Import, read and build once what every start needs, so that forked services share it. A new interpreter does it at every start."""
    import tests.proof.wire.several  # noqa: F401 (before the first fork)
    from adapters.saml import libraries
    from entrypoints import common_passwords, huge_pages, main
    from entrypoints.http import app

    libraries.LibraryCheck().finish()
    libraries.LibraryCheck = _Checked  # type: ignore[assignment,misc]
    routes = app.build_routes()
    app.build_routes = lambda: routes
    main.build_routes = app.build_routes  # type: ignore[attr-defined]
    common_passwords.default_common_passwords()
    huge_pages.collapse = lambda: 0  # copying the memory that these processes share pays after minutes only
    gc.freeze()


def _run_to_the_end() -> NoReturn:
    """Run the program, and end without freeing its objects: that would copy all memory that the forked processes share."""
    try:
        _run()
        code: int | str | None = 0
    except SystemExit as end:
        code = end.code
    except KeyboardInterrupt:
        traceback.print_exc()
        code = 128 + signal.SIGINT
    except BaseException:
        traceback.print_exc()
        code = 1
    if isinstance(code, str):
        print(code, file=sys.stderr)
    if left := [each for each in threading.enumerate() if each is not threading.main_thread() and not each.daemon]:
        print(f"These threads would keep the process alive: {left}", file=sys.stderr)
        code = 1
    with suppress(OSError):  # the output's reader has gone
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code if isinstance(code, int) else code is not None)


def _run() -> None:
    """Run the program with the name in `sys.argv`."""
    from entrypoints import cli
    from tests.proof.wire import several

    match sys.argv[0]:
        case "several":
            several.main()
        case "database":
            _own_database(Path(sys.argv[1]))
        case _:
            cli.main(prog_name="gatehouse")


def _own_database(data: Path) -> None:
    """Run a database server until the standard input ends, and print its connection string."""
    from adapters.postgres.engine import embedded

    with embedded.start(data, durable=False) as running:
        print(running.conninfo, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    _prepare_once()
    if main():
        _run_to_the_end()
