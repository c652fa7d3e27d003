"""The browser of the tests of the running service."""

from tests.proof.e2e.conftest import browser, chromium

__all__ = ["browser", "chromium"]
