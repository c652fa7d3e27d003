"""Load by wrk, which takes little of the processor itself."""

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ops.bench.processes import Child, Unfit

_SCRIPT = Path(__file__).with_name("requests.lua")
_ANSWER_WITHIN = 10  # seconds


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a load."""

    method: str
    path: str
    token: str = ""
    body: Mapping[str, Any] | None = None
    key: str = ""  # of a service
    signature: str = ""  # of the payment provider, on exactly this body

    def line(self) -> str:
        """As requests.lua reads it."""
        body = "" if self.body is None else json.dumps(self.body)
        return "\t".join((self.method, self.path, self.token, self.key, self.signature, body)) + "\n"


@dataclass(frozen=True, slots=True)
class Load:
    """What wrk saw; every answer was a success."""

    requests: int
    seconds: float
    p50: float  # milliseconds
    p99: float

    @property
    def rate(self) -> float:
        return self.requests / self.seconds


@dataclass(frozen=True, slots=True)
class Wrk:
    """How wrk is used: as many connections at once, each with one request under way at any time."""

    connections: int
    threads: int = 1

    def drive(self, address: str, requests: Sequence[Request], seconds: int, *, once: bool = False) -> Load:
        """Send `requests` in turn for so many seconds, or once each in at most that time. Raises Unfit unless every answer is a success."""
        with self.driving(address, requests, seconds, once=once) as running:
            return running.result(seconds + 2 * _ANSWER_WITHIN)

    @contextmanager
    def driving(self, address: str, requests: Sequence[Request], seconds: int, *, once: bool = False) -> Iterator["Running"]:
        """The same in the background; ask `result` before the block ends, which ends wrk too."""
        with tempfile.TemporaryDirectory(prefix="gatehouse-wrk-") as directory:
            file = Path(directory, "requests")
            file.write_text("".join(request.line() for request in requests))
            command = ["wrk", f"-t{self.threads}", f"-c{self.connections}", f"-d{seconds}s", f"--timeout={_ANSWER_WITHIN}s"]
            command += ["-s", str(_SCRIPT), address, "--", str(file), str(self.threads), "once" if once else "again"]
            with Child(command, os.environ, Path(directory, "output")) as child:
                yield Running(child, self.threads if once else 0)


@dataclass(frozen=True, slots=True)
class Running:
    """wrk at work."""

    child: Child
    ends: int  # how often it says that it has come to the end of its requests

    def result(self, patience: float) -> Load:
        """What it saw, once it has ended. Raises Unfit."""
        while self.ends and self.child.exit_code is None:
            if self.child.said().count("end\n") >= self.ends:
                self.child.interrupt()
                break
            time.sleep(0.05)
        if self.child.wait(patience) != 0:
            raise Unfit(f"wrk failed: {self.child.last_words()}.")
        return load_from(self.child.said())


def load_from(said: str) -> Load:
    """The load of wrk's output. Raises Unfit where something went wrong in it."""
    seen = json.loads(said.strip().splitlines()[-1])
    requests = int(seen["requests"])
    if seen["status"]:
        raise Unfit(f"{seen['status']} of {requests} answers were no success (status 400 or above).")
    failed = {kind: seen[kind] for kind in ("connect", "read", "write", "timeout") if seen[kind]}
    if failed:
        told = ", ".join(f"{count} {kind}" for kind, count in failed.items())
        raise Unfit(f"wrk saw failures on its sockets beside {requests} answers: {told}.")
    if not requests:
        raise Unfit("There was not a single answer.")
    return Load(requests, seen["microseconds"] / 1e6, seen["p50"] / 1e3, seen["p99"] / 1e3)


def wrk_version() -> str:
    """Raises Unfit if there is no wrk."""
    if shutil.which("wrk") is None:
        raise Unfit("The benchmark needs wrk: on Debian, apt-get install wrk as root.")
    said = subprocess.run(["wrk", "-v"], capture_output=True, text=True, check=False)  # it ends with 1 whatever it is asked
    found = re.search(r"wrk \S*?(\d[\w.+-]*)", said.stdout + said.stderr)
    return found[1] if found else "of unknown version"
