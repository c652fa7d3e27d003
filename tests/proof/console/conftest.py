"""The world of the access tests, and the browser of the tests of the running service."""

from tests.proof.access.conftest import conninfo, dns, ports, world, world_database
from tests.proof.e2e.conftest import browser, chromium

__all__ = ["browser", "chromium", "conninfo", "dns", "ports", "world", "world_database"]
