"""What a measurement depends on: the machine, the software and the settings."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final

from ops.bench import service

PACKAGES: Final = (
    "trio", "hypercorn", "h11", "quart", "quart-trio", "quart-schema", "pydantic", "psycopg", "pyjwt", "cryptography",
    "argon2-cffi", "argon2-cffi-bindings", "structlog", "prometheus-client",
)  # fmt: skip


def facts(directory: Path, elapsed: float, rounds: int, seconds: int, warm_up: int, load_before: str, wrk: str) -> list[str]:
    """Return the facts about a measurement with data in `directory`."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    system = f"{platform.freedesktop_os_release().get('PRETTY_NAME', platform.system())}, Linux {platform.release()}"
    revision = _output("git", "-C", str(service.ROOT), "describe", "--always", "--dirty")  # --dirty marks files that differ from it
    return [
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, revision {revision}, in {elapsed:.0f} s",
        f"{rounds} rounds, raw and ours by turns, {seconds} s each after a warm-up of {warm_up} s; figures are medians of the rounds",
        f"{_processor()}, {len(os.sched_getaffinity(0))} of {os.cpu_count()} cores used, by wrk too; {memory:.0f} GB; "
        f"load average before the start {load_before}",
        f"{system}; data on {_output('stat', '-f', '-c', '%T', str(directory))}, fsync on",
        f"Python {platform.python_version()}, wrk {wrk}, {', '.join(f'{name} {version(name)}' for name in PACKAGES)}",
        f"Argon2 {service.ARGON2_MEMORY_KIB} KiB, {service.ARGON2_TIME_COST} passes, {service.ARGON2_PARALLELISM} lane; "
        f"unless the table says otherwise, {'the PyPI wheel' if service.argon2_in_use() is None else 'built for this processor'}",
        "as deployed: audit, access log (JSON, to a file), metrics and rate limits are on; the factor of the limits is so large that they "
        "refuse no request",
        "a new embedded PostgreSQL for each row, but one for all pages of organizations, one for all rows about end users, and one for all "
        "rows about SCIM users",
    ]


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model"):
            return value.strip()
    return platform.machine()


def _output(*command: str) -> str:
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return "unknown"
    return result.stdout.strip() or "unknown"
