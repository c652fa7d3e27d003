"""The demo as a fixture."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.proof.e2e.conftest import Start
from tests.proof.e2e.process import CHEAP_HASHES, Service, gatehouse


@pytest.fixture
def demo(service: Start, own_database: dict[str, str], home: Path) -> tuple[Service, dict[str, Any]]:
    """A running service with the demo, and its people."""
    running = service(**own_database).start()
    filled = gatehouse(home, "demo", "--json", SSO_BASE_URL=running.address, **CHEAP_HASHES, **own_database)
    assert filled.returncode == 0, filled.stderr
    return running, json.loads(filled.stdout)
