"""Uploaded images: an owner has one image, found by its key, and gone with its owner or when the field's value changes."""

from typing import Final
from uuid import UUID

import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.accounts.model.profiles import NO_PROFILE, Profile
from core.kernel.causes import SYSTEM
from core.kernel.connections import PLATFORM_CONNECTIONS, WEBSUITE
from core.kernel.images import LARGE, SMALL, ImageAddress, ImageOwner, NewImage
from core.tenancy.model.settings import BrandingSettings
from tests.support.builders import add_organization, run_sql
from tests.support.rows import NOW
from tests.support.services import add_service

ADDRESS: Final = "https://sso.example/images/{}/256"
CONNECTION: Final = PLATFORM_CONNECTIONS[WEBSUITE][0]


def image(name: str) -> NewImage:
    return NewImage(b"small " + name.encode(), b"large " + name.encode(), name)


async def put(storage: Postgres, owner: ImageOwner, name: str) -> None:
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.images.put(owner, image(name), NOW)


async def keys(pool: Pool) -> set[str]:
    return {row[0] for row in await run_sql(pool, "select key from images")}


@pytest.fixture
async def owners(storage: Postgres, pool: Pool, user: UUID) -> dict[str, ImageOwner]:
    """An owner of every kind, with an image. The image's key is the kind's name."""
    org = await add_organization(pool, "acme")
    service = await add_service(pool, org)
    owners = {
        "user": ImageOwner(user_id=user),
        "organization": ImageOwner(org_id=org),
        "service": ImageOwner(org_id=org, service_id=service),
        "connection": ImageOwner(connection_id=CONNECTION),
    }
    for name, owner in owners.items():
        await put(storage, owner, name)
    return owners


async def test_an_image_is_found_by_its_key_and_by_its_owner(storage: Postgres, owners: dict[str, ImageOwner]) -> None:
    async with storage.reading() as read:
        for name in owners:
            assert await read.images.content(ImageAddress(name, SMALL)) == (b"small " + name.encode(), name == "user")
            assert await read.images.content(ImageAddress(name, LARGE)) == (b"large " + name.encode(), name == "user")
        assert await read.images.content(ImageAddress("unknown", SMALL)) is None
        user, org = owners["user"].user_id, owners["organization"].org_id
        assert user is not None
        assert org is not None
        assert await read.images.of_user(user) == b"large user"
        assert await read.images.of_user(org) is None
        assert await read.images.keys([user, org, CONNECTION]) == {user: "user", org: "organization", CONNECTION: "connection"}
        assert await read.images.keys([]) == {}


async def test_a_new_image_replaces_the_one_of_its_owner_only(storage: Postgres, pool: Pool, owners: dict[str, ImageOwner]) -> None:
    for name, owner in owners.items():
        await put(storage, owner, f"new {name}")
    assert await keys(pool) == {f"new {name}" for name in owners}


async def test_an_image_is_removed_for_its_owner_only(storage: Postgres, pool: Pool, owners: dict[str, ImageOwner]) -> None:
    other = await add_organization(pool, "other")
    async with storage.transaction(by=SYSTEM) as tx:
        assert not await tx.images.remove(ImageOwner(org_id=other, service_id=owners["service"].service_id)), "of another organization"
        for owner in owners.values():
            assert await tx.images.remove(owner)
            assert not await tx.images.remove(owner)
    assert await keys(pool) == set()


async def test_another_picture_or_logo_removes_the_uploaded_one(storage: Postgres, pool: Pool, owners: dict[str, ImageOwner]) -> None:
    user, org = owners["user"].user_id, owners["organization"].org_id
    assert user is not None
    assert org is not None
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.accounts.set_profile(user, Profile("Ada", ADDRESS.format("user")), NOW)
        await tx.branding.put(org, BrandingSettings(ADDRESS.format("organization"), "#0b5d66"), NOW)
    assert await keys(pool) == {*owners}
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.accounts.set_profile(user, NO_PROFILE, NOW)
        await tx.branding.put(org, BrandingSettings("https://cdn.acme.example/logo.png"), NOW)
    assert await keys(pool) == {"service", "connection"}


async def test_an_image_goes_with_its_owner(pool: Pool, owners: dict[str, ImageOwner]) -> None:
    await run_sql(pool, "delete from services")
    assert await keys(pool) == {"user", "organization", "connection"}
    await run_sql(pool, "delete from organizations")
    await run_sql(pool, "delete from users")
    assert await keys(pool) == {"connection"}
