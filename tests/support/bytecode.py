"""The environment of interpreters that tests start."""

import os
from typing import Final

from tests.support.database import roomy_directory

# Shared by all runs, because its files are found by the path and time of their sources.
_BYTECODE: Final = roomy_directory() / f"gatehouse-bytecode-{os.getuid()}"


def inherited() -> dict[str, str]:
    """Return our environment. With PYTHONDONTWRITEBYTECODE every interpreter would compile everything again, so
    bytecode then goes to a directory outside the project."""
    environment = dict(os.environ)
    if environment.pop("PYTHONDONTWRITEBYTECODE", None):
        environment["PYTHONPYCACHEPREFIX"] = str(_BYTECODE)
    return environment
