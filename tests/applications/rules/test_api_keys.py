"""The API key format, key permissions, and the final comparison.

The rules are decision 104, and security K-1, K-2.
"""

import re
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import pytest

from core.applications import api_keys
from core.applications.model import api_keys as api_keys_model
from core.applications.model.api_keys import (
    ApiKeyInvalid,
    ApiKeyRecord,
    DuplicatePermission,
    NoPermissions,
    UnknownPermission,
    generate_key,
    parse_permissions,
)
from core.kernel.callers import OrganizationStatus, ServiceContext
from core.kernel.causes import SYSTEM
from core.kernel.roles import Permission
from core.kernel.values import digest
from tests.tables import table

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ports import Ports

NOW = datetime(2026, 3, 14, tzinfo=UTC)
SERVICE = ServiceContext(
    id=UUID(int=1),
    slug="shop",
    client_id=UUID(int=2),
    is_public=False,
    org_id=UUID(int=3),
    org_slug="acme",
    status=OrganizationStatus.ACTIVE,
)


@table(("environment", "start"), [(None, "sk_"), ("live", "sk_live_"), ("test", "sk_test_")])
def test_a_key_is_a_prefix_and_256_random_bits(environment: str | None, start: str) -> None:
    key, prefix = generate_key(environment)
    assert re.fullmatch(f"{start}[a-z2-7]{{6}}", prefix)
    assert re.fullmatch(f"{prefix}_[A-Za-z0-9_-]{{43}}", key)


def test_keys_are_unique() -> None:
    keys = [generate_key() for _ in range(200)]
    assert len({key for key, _ in keys}) == 200
    assert len({prefix for _, prefix in keys}) > 190
    assert len(max(generate_key("live"))) < api_keys_model.MAX_KEY_LENGTH


def test_permissions_keep_their_order() -> None:
    assert parse_permissions(["write:service", "read:users"]) == (Permission.WRITE_SERVICE, Permission.READ_USERS)
    assert parse_permissions([*Permission]) == tuple(Permission)


def test_a_key_needs_a_permission() -> None:
    with pytest.raises(NoPermissions):
        parse_permissions([])


def test_duplicate_permissions_are_refused() -> None:
    with pytest.raises(DuplicatePermission):
        parse_permissions(["read:users", "write:users", "read:users"])


@table("name", ["", "read", "read:everything", "READ:USERS", "read:users ", "*", "admin"])
def test_unknown_permissions_are_refused(name: str) -> None:
    with pytest.raises(UnknownPermission) as refusal:
        parse_permissions(["read:users", name])
    assert all(permission in refusal.value.message for permission in Permission)


@dataclass
class FixedRecord:
    """A storage that returns this record for every key."""

    record_: ApiKeyRecord

    @asynccontextmanager
    async def reading(self) -> "AsyncIterator[Any]":
        yield SimpleNamespace(api_keys=self)

    async def by_hash(self, key_hash: bytes, now: datetime) -> ApiKeyRecord:
        return self.record_


async def test_the_record_from_the_index_is_compared_again() -> None:
    key, _ = generate_key()
    record = ApiKeyRecord(UUID(int=4), digest(key), frozenset(Permission), NOW, SERVICE)
    ports = cast("Ports", SimpleNamespace(storage=FixedRecord(record), clock=SimpleNamespace(now=lambda: NOW)))
    caller = await api_keys.authenticate(ports, SYSTEM, key, Permission.READ_USERS)
    assert caller.key_id == record.key_id
    with pytest.raises(ApiKeyInvalid):
        await api_keys.authenticate(ports, SYSTEM, generate_key()[0], Permission.READ_USERS)
