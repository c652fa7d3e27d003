"""The sandbox that the unit for systemd makes for the service, in a root directory without systemd."""

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.release.bare_root import ROOT, BareRoot

UNIT: Final = "usr/lib/systemd/system/gatehouse.service"
# Prints which attempts are refused.
PROBE: Final = """
import ctypes, json, os

def refuses(attempt):
    try:
        return attempt() == -1 and ctypes.get_errno() == 1
    except OSError as error:
        return error.errno in (1, 2)

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_ssize_t
memory = ctypes.c_void_p(libc.mmap(None, 4096, 3, 0x22, -1, 0))
print(json.dumps({
    "executable memory": refuses(lambda: libc.mmap(None, 4096, 7, 0x22, -1, 0)),
    "memory that becomes executable": refuses(lambda: libc.mprotect(memory, 4096, 5)),
    "another owner": refuses(lambda: os.chown(".", -1, -1)),
    "another user": refuses(lambda: os.setuid(os.getuid())),
    "other processors": refuses(lambda: os.sched_setaffinity(0, os.sched_getaffinity(0))),
    "memory of the machine": refuses(lambda: os.stat("/proc/meminfo")),
    "groups of the machine": os.stat("/etc/shadow").st_gid == 65534,
    "lower priority": refuses(lambda: os.setpriority(os.PRIO_PROCESS, 0, 1)),
    "batches": refuses(lambda: os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))),
}))
"""


def allowed_calls(unit: Path) -> list[str]:
    allowed: set[str] = set()
    for excludes, names in re.findall(r"^SystemCallFilter=(~?)(.*)$", unit.read_text(), re.MULTILINE):
        calls = {call for name in names.split() for call in calls_of(name)}
        allowed = allowed - calls if excludes else allowed | calls
    return sorted(allowed)


def calls_of(name: str) -> set[str]:
    """Return the calls in a set such as `@resources`, which can contain other sets, or the call itself."""
    if not name.startswith("@"):
        return {name}
    output = subprocess.run(["systemd-analyze", "syscall-filter", name], check=True, capture_output=True, text=True).stdout
    members = [line.strip() for line in output.splitlines()[1:]]
    return {call for member in members if member and not member.startswith("#") for call in calls_of(member)}


@contextmanager
def sandboxed(debian: BareRoot) -> Iterator[None]:
    """Run all commands as the installed unit's user, and in its sandbox, until the end of the block."""
    [user] = re.findall(r"^gatehouse:x:(\d+):", (debian.folder / "etc/passwd").read_text(), re.MULTILINE)
    program = Path(__file__).with_name("enter_sandbox.py")
    usual, debian.change_root = (
        debian.change_root,
        ["python3", "-I", str(program), ROOT, json.dumps(allowed_calls(debian.folder / UNIT)), user],
    )
    try:
        yield
    finally:
        debian.change_root = usual


def open_points(unit: Path) -> set[str]:
    """Return the points that `systemd-analyze security` still finds open."""
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(unit)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {line.split()[1] for line in output.splitlines() if line.startswith("✗")}
