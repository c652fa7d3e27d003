"""The demo as a fixture."""

import json
from typing import Any

import pytest

from tests.proof.e2e.conftest import SharedService
from tests.proof.e2e.process import CHEAP_HASHES, Service, gatehouse


@pytest.fixture(scope="module")
def people(shared: SharedService) -> str:
    """The demo's people in JSON. The shared service has the demo from its start."""
    running = shared.service.start()
    own = {name: running.settings[name] for name in ("SSO_DATABASE_URL", "SSO_ENCRYPTION_KEYS")}
    filled = gatehouse(running.home, "demo", "--json", SSO_BASE_URL=running.address, **CHEAP_HASHES, **own)
    assert filled.returncode == 0, filled.stderr
    return filled.stdout


@pytest.fixture
def demo(people: str, running: Service) -> tuple[Service, dict[str, Any]]:
    """A running service with the demo, and its people, for modules with SETTINGS."""
    return running, json.loads(people)
