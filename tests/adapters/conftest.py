"""The fixtures of storage, for the adapters that are tested with a database."""

from tests.support.storage_fixtures import *  # noqa: F403
