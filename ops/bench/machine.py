"""The machine and the software of a measurement."""

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Final

PACKAGES: Final = (
    "trio", "hypercorn", "h11", "quart", "quart-trio", "quart-schema", "pydantic", "psycopg", "pyjwt", "cryptography",
    "argon2-cffi", "argon2-cffi-bindings", "structlog", "prometheus-client",
)  # fmt: skip


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model"):
            return value.strip()
    return platform.machine()


def memory_gb() -> float:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30


def system() -> str:
    return f"{platform.freedesktop_os_release().get('PRETTY_NAME', platform.system())}, Linux {platform.release()}"


def file_system(directory: Path) -> str:
    result = subprocess.run(["stat", "-f", "-c", "%T", str(directory)], capture_output=True, text=True, check=False)
    return result.stdout.strip() or "unknown"


def packages() -> str:
    return ", ".join(f"{name} {version(name)}" for name in PACKAGES)


def revision(root: Path) -> str:
    """Return the commit, with a mark if the files differ from it, or an empty string without git."""
    try:
        result = subprocess.run(["git", "-C", str(root), "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return result.stdout.strip()
