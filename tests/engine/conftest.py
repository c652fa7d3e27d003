"""Fixtures for the database engine tests."""

from tests.support.storage_fixtures import *  # noqa: F403
