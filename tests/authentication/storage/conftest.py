"""Fixtures for the storage tests."""

from tests.authentication.storage.sign_ins import cast  # noqa: F401
from tests.support.storage_fixtures import *  # noqa: F403
