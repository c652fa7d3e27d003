"""Fixtures of the tests of the database engine."""

from tests.support.storage_fixtures import *  # noqa: F403
