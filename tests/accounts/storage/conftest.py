"""Fixtures for the storage tests."""

from uuid import UUID

import pytest

from adapters.postgres.storage import Postgres
from tests.support.rows import EVE, account, add
from tests.support.storage_fixtures import *  # noqa: F403


@pytest.fixture
async def user(storage: Postgres) -> UUID:
    return (await add(storage, account())).id


@pytest.fixture
async def eve(storage: Postgres) -> UUID:
    return (await add(storage, account(EVE))).id
