"""Fixtures for the storage tests."""

from tests.support.storage_fixtures import *  # noqa: F403
