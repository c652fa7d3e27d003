"""The browser for tests with a running service."""

from tests.proof.e2e.conftest import browser, chromium

__all__ = ["browser", "chromium"]
