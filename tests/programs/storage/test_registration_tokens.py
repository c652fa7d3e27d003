"""The statements about registration tokens: fields, conditions, order, and isolation."""

from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.kernel.callers import OrganizationStatus
from core.kernel.values import digest
from core.programs.model.registration_tokens import RegistrationToken, RegistrationTokenRecord
from tests.support.builders import add_member, run_sql
from tests.support.rows import DAY, HOUR, NOW, SECOND, account, add, within


def token(org: UUID, creator: UUID, **changes: Any) -> RegistrationToken:
    plain = RegistrationToken(
        id=uuid4(), org_id=org, name="Agents", prefix="gthr_abcdef", uses_left=2, expires_at=NOW + DAY, created_by=creator, created_at=NOW
    )
    return replace(plain, **changes)


async def store(storage: Postgres, one: RegistrationToken, text: str = "secret") -> RegistrationToken:
    await within(storage, lambda tx: tx.registration_tokens.add(one, digest(text)))
    return one


@pytest.fixture
async def creator(storage: Postgres, pool: Pool, acme: UUID) -> UUID:
    user = (await add(storage, account())).id
    await add_member(pool, acme, user, "admin", confirmed=True)
    return user


async def test_a_token_is_found_by_its_hash_and_in_its_organization(
    storage: Postgres, acme: UUID, other_tenant: UUID, creator: UUID
) -> None:
    second = await store(storage, token(acme, creator, created_at=NOW + SECOND), "second")
    first = await store(storage, token(acme, creator, expires_at=None, last_used_at=NOW), "first")
    await store(storage, token(other_tenant, creator), "other")
    async with storage.reading() as read:
        tokens = read.registration_tokens
        assert await tokens.by_hash(digest("first"), NOW) == RegistrationTokenRecord(first, OrganizationStatus.ACTIVE)
        assert await tokens.by_hash(digest("unknown"), NOW) is None
        assert await tokens.of_org(acme) == [first, second]
        assert await tokens.by_id(acme, first.id) == first
        assert await tokens.by_id(other_tenant, first.id) is None


async def test_a_use_counts_once(storage: Postgres, acme: UUID, other_tenant: UUID, creator: UUID) -> None:
    one = await store(storage, token(acme, creator))
    used = [await within(storage, lambda tx: tx.registration_tokens.use(acme, one.id, NOW + HOUR)) for _ in range(3)]
    assert used == [True, True, False]
    assert not await within(storage, lambda tx: tx.registration_tokens.use(other_tenant, one.id, NOW))
    async with storage.reading() as read:
        assert await read.registration_tokens.by_id(acme, one.id) == replace(one, uses_left=0, last_used_at=NOW + HOUR)


@pytest.mark.parametrize(
    "change",
    [
        "update memberships set role = 'member'",
        "update memberships set confirmed_at = null",
        "delete from memberships",
        "update users set deactivated_at = created_at",
        "update users set anonymized_at = created_at",
        "update registration_tokens set expires_at = created_at",
        "update registration_tokens set uses_left = 0",
    ],
)
async def test_a_token_works_while_its_creator_may_create_applications(
    storage: Postgres, pool: Pool, acme: UUID, creator: UUID, change: str
) -> None:
    one = await store(storage, token(acme, creator))
    await run_sql(pool, change)
    assert not await within(storage, lambda tx: tx.registration_tokens.use(acme, one.id, NOW))
    async with storage.reading() as read:
        assert await read.registration_tokens.by_hash(digest("secret"), NOW) is None


async def test_only_a_token_of_the_organization_is_removed(storage: Postgres, acme: UUID, other_tenant: UUID, creator: UUID) -> None:
    one = await store(storage, token(acme, creator))
    await within(storage, lambda tx: tx.registration_tokens.remove(other_tenant, one.id))
    async with storage.reading() as read:
        assert await read.registration_tokens.of_org(acme) == [one]
    await within(storage, lambda tx: tx.registration_tokens.remove(acme, one.id))
    async with storage.reading() as read:
        assert await read.registration_tokens.of_org(acme) == []
