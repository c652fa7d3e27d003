"""A Debian with Python and nothing else, in a directory, without a network but its own loopback."""

import hashlib
import json
import os
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.waiting import until

# In a mount namespace: a file system in memory, with the files that change, and the root directory. No checkout is below /var/local.
MEMORY: Final = "/var/local"
ROOT: Final = f"{MEMORY}/root"
_MOUNT_OVERLAY: Final = (
    f"mount -t tmpfs -o mode=755 none {MEMORY} && mkdir -m 755 {MEMORY}/changes {MEMORY}/work {ROOT}"
    f" && mount -t overlay -o lowerdir={{base}},upperdir={MEMORY}/changes,workdir={MEMORY}/work none {ROOT}"
)
_PORT: Final = 8080
_WEEK: Final = 7 * 24 * 3600  # seconds
_LISTEN: Final = "0A"  # in /proc/net/tcp
PACKAGES: Final = ("python3", "debconf", "mount", "passwd", "usr-is-merged", "util-linux")
# A Python that skips compileall, for a release that is only upgraded: its start compiles the modules that it imports.
QUICK_PYTHON: Final = "/usr/local/bin/quick-python"
QUICK_PYTHON_SCRIPT: Final = '#!/bin/sh\n[ "$3" != compileall ] || exit 0\nexec /usr/bin/python3 "$@"\n'
_SET_LOOPBACK_UP: Final = """
import fcntl, socket, struct
fcntl.ioctl(socket.socket(socket.AF_INET, socket.SOCK_DGRAM), 0x8914, struct.pack("16sh", b"lo", 0x41))  # SIOCSIFFLAGS: up, running
"""
_REQUEST: Final = """
import json, sys, urllib.error, urllib.request
method, url, body, token = json.loads(sys.argv[1])
headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
request = urllib.request.Request(url, None if body is None else json.dumps(body).encode(), headers, method=method)
try:
    with urllib.request.urlopen(request, timeout=30) as answer:
        print(json.dumps([answer.status, answer.read().decode()]))
except urllib.error.HTTPError as answer:
    print(json.dumps([answer.code, answer.read().decode()]))
except OSError as error:
    print(json.dumps([0, str(error)]))
"""


class BareRoot:
    """A copy of a root directory that keeps only the changes, in memory.

    Its programs see its files, its processes and a loopback interface alone.
    """

    def __init__(self, base: Path) -> None:
        prepare = (
            _MOUNT_OVERLAY.format(base=base),
            f"mkdir -p {ROOT}/dev/shm {ROOT}/dev/pts",  # noqa: S108 - in the root directory
            f"mount -t proc none {ROOT}/proc",
            f"mount -t tmpfs none {ROOT}/dev/shm",  # noqa: S108
            f"mount -t devpts -o newinstance,ptmxmode=0666 none {ROOT}/dev/pts",
            "echo ready",
            "exec sleep infinity",
        )
        self._holder = subprocess.Popen(
            ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", " && ".join(prepare)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == "ready\n"
        [self._init] = _children(self._holder)
        self.folder = Path(f"/proc/{self._init}/root{ROOT}")  # as the tests see it
        self.change_root = ["chroot", ROOT]
        self._enter = ["nsenter", "--target", str(self._init), "--net", "--mount", "--pid"]
        self.run("python3", "-c", _SET_LOOPBACK_UP)
        (self.folder / "etc/hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")

    def close(self) -> None:
        """End all its processes, and forget its files."""
        with self._holder:  # closes its output, and waits
            self._holder.kill()

    def add_program(self, path: str, script: str) -> None:
        """Write a program that all users in the root directory can run."""
        program = self.folder / path.lstrip("/")
        program.write_text(script)
        program.chmod(0o755)

    def run(
        self, *command: str, user: str | None = None, succeeds: bool = True, typed: str | None = None, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, as root or as another user. In a terminal, if there is something to type."""
        if typed is not None:
            command = ("script", "--quiet", "--return", "--command", shlex.join(command), "/dev/null")
        process = subprocess.run(
            self._command(*command, user=user, **environment), input=typed, capture_output=True, text=True, check=False
        )
        assert process.returncode == 0 or not succeeds, f"{command}: {process.stdout}{process.stderr}"
        return process

    @contextmanager
    def running(self, *command: str, user: str | None = None, **environment: str) -> Iterator[Path]:
        """Run Gatehouse until the end of the block, and return its output file. It must end well within its time for requests."""
        with tempfile.NamedTemporaryFile("w", suffix=".log") as output:
            process = subprocess.Popen(self._command(*command, user=user, **environment), stdout=output, stderr=output)
            try:
                until(lambda: self._answers(process, Path(output.name)), "Gatehouse answers", 300, pause=0.2)  # to list sockets takes long
                yield Path(output.name)
            finally:
                for child in _children(process):  # `process` is nsenter, which passes no signal on
                    os.kill(child, signal.SIGTERM)
                process.wait(60)

    def _answers(self, process: "subprocess.Popen[bytes]", output: Path) -> bool:
        assert process.poll() is None, output.read_text()
        return self._listens() and self._is_ready()

    def _listens(self) -> bool:
        """Return whether the port is open. This needs no process, unlike a request."""
        sockets = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/{self._init}/net/{name}").read_text().splitlines()]
        return any(address.endswith(f":{_PORT:04X}") and state == _LISTEN for _, address, _, state, *_ in sockets)

    def _is_ready(self) -> bool:
        return self.ask("GET", "/health/ready")[0] == 200

    def ask(self, method: str, path: str, body: Any = None, token: str | None = None) -> tuple[int, Any]:
        """Send a request to Gatehouse. Return the status, or 0 without a connection, and the answer's JSON, or its text."""
        url = path if "://" in path else f"http://localhost:{_PORT}{path}"
        status, text = json.loads(self.run("python3", "-c", _REQUEST, json.dumps([method, url, body, token])).stdout)
        try:
            return status, json.loads(text)
        except ValueError:
            return status, text

    def _command(self, *command: str, user: str | None, **environment: str) -> list[str]:
        settings = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": f"/home/{user}" if user else "/root",
            "LC_ALL": "C.UTF-8",
            **environment,
        }
        switch = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user else []
        return [*self._enter, *self.change_root, "env", "-i", *(f"{name}={value}" for name, value in settings.items()), *switch, *command]


def _children(process: "subprocess.Popen[Any]") -> list[int]:
    children = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):  # other processes end at any time
            if path.read_text().rpartition(")")[2].split()[1] == str(process.pid):
                children.append(int(path.parent.name))
    return children


@cache
def why_without_namespaces() -> str | None:
    """Return why no root directory can have its own namespaces and mounts, as in many containers, or None if it can."""
    if os.geteuid() != 0:
        return "the installation is tested in a root directory of its own, for which the tests must run as root"
    mounts = f"mount -t proc none /proc && mount -t devpts -o newinstance none /dev/pts && {_MOUNT_OVERLAY.format(base='/usr')}"
    probe = ["unshare", "--net", "--mount", "--pid", "--fork", "sh", "-c", mounts]
    allowed = subprocess.run(probe, capture_output=True, text=True, check=False)
    if allowed.returncode != 0:
        return f"the installation is tested in namespaces, which this machine does not allow: {allowed.stderr.strip()}"
    return None


def require_namespaces() -> None:
    """Skip the test where no root directory can have its own namespaces and mounts."""
    if (reason := why_without_namespaces()) is not None:
        pytest.skip(reason)


def create(folder: Path, suite: str) -> None:
    """Unpack a Debian suite with PACKAGES and the user `app`. It is made once a week, and needs root and namespaces."""
    require_namespaces()
    options = (
        "--variant=apt",
        f"--include={','.join(PACKAGES)}",
        "--hook-dir=/usr/share/mmdebstrap/hooks/maybe-merged-usr",
        "--dpkgopt=force-unsafe-io",
        '--aptopt=Acquire::Languages "none"',
        '--customize-hook=chroot "$1" useradd --create-home app',
    )
    recipe = hashlib.sha256(repr((options, datetime.now(UTC).isocalendar()[:2])).encode()).hexdigest()[:16]
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gatehouse"
    caches.mkdir(parents=True, exist_ok=True)
    packed = caches / f"debian-{suite}-{recipe}.tar"
    if not packed.exists():
        for old in caches.glob(f"debian-{suite}-*.tar"):
            if time.time() - old.stat().st_mtime > _WEEK:  # another checkout can use a newer file
                old.unlink(missing_ok=True)
        with tempfile.TemporaryDirectory(dir=caches) as partial:
            subprocess.run(["mmdebstrap", "--quiet", *options, suite, f"{partial}/root.tar"], check=True)
            Path(partial, "root.tar").rename(packed)
    folder.mkdir()
    subprocess.run(["tar", "-xf", packed, "--numeric-owner", "-C", folder], check=True)
