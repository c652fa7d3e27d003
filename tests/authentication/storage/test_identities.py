"""Every statement on linked identities: fields, users, contexts and token encryption."""

from dataclasses import replace
from uuid import UUID, uuid4

import psycopg.errors
import pytest

from adapters.postgres.authentication.identities import access_token_context
from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.applications.model.users import LinkedIdentity
from core.authentication.model.identities import LinkedPlace, ProviderToken, ServiceOAuthCredentials
from core.kernel.connections import PLATFORM_CONNECTIONS, ConnectionSlug
from ports.crypto import SealBroken
from tests.support.builders import make_vault, run_sql
from tests.support.identities import add_identity
from tests.support.rows import DAY, EVE, HOUR, NOW, account, add, within
from tests.support.services import add_service

FIRST, OTHER, _ = PLATFORM_CONNECTIONS


async def of_person(storage: Postgres, user: UUID, service: UUID | None = None) -> list[LinkedIdentity]:
    async with storage.reading() as read:
        return await read.identities.list_of_user(user, service)


async def places(storage: Postgres, user: UUID) -> list[LinkedPlace]:
    async with storage.reading() as read:
        return await read.identities.list_places(user)


async def token(storage: Postgres, user: UUID, service: UUID | None = None, provider: ConnectionSlug = FIRST) -> ProviderToken | None:
    async with storage.reading() as read:
        return await read.identities.load_provider_token(user, service, provider)


async def remove(storage: Postgres, user: UUID, service: UUID, provider: ConnectionSlug = FIRST) -> bool:
    return await within(storage, lambda tx: tx.identities.remove(user, service, provider))


async def test_identities_are_found_by_user_and_context(storage: Postgres, pool: Pool, acme: UUID, other_tenant: UUID) -> None:
    user, eve = [(await add(storage, account(email))).id for email in ("ada@example.com", EVE)]
    shop, foreign_shop = await add_service(pool, acme), await add_service(pool, other_tenant)
    await add_identity(pool, user, FIRST, subject="1", email="ada@codehost.example", linked_at=NOW)
    await add_identity(pool, user, OTHER, subject="2", linked_at=NOW - HOUR)
    await add_identity(pool, user, FIRST, shop, subject="3", linked_at=NOW - DAY)
    await add_identity(pool, eve, FIRST, foreign_shop, subject="4", linked_at=NOW)
    assert await of_person(storage, user) == [
        LinkedIdentity(OTHER, "2", None, NOW - HOUR),
        LinkedIdentity(FIRST, "1", "ada@codehost.example", NOW),
    ]
    assert await of_person(storage, user, shop) == [LinkedIdentity(FIRST, "3", None, NOW - DAY)]
    assert await of_person(storage, eve, foreign_shop) == [LinkedIdentity(FIRST, "4", None, NOW)]
    for target, service in ((user, foreign_shop), (eve, shop), (user, uuid4())):
        assert await of_person(storage, target, service) == []
        assert await remove(storage, target, service) is False
    assert await of_person(storage, eve) == [] == await of_person(storage, uuid4())
    assert await places(storage, user) == [LinkedPlace(OTHER), LinkedPlace(FIRST), LinkedPlace(FIRST, acme, shop, "Shop")]
    own = ServiceOAuthCredentials(FIRST, "id", NOW)
    await within(storage, lambda tx: tx.oauth_credentials.put(acme, shop, own, "secret"))
    await within(storage, lambda tx: tx.oauth_credentials.put(other_tenant, foreign_shop, replace(own, provider=OTHER), "secret"))
    assert (await places(storage, user))[-1] == LinkedPlace(FIRST, acme, shop, "Shop", has_credentials=True)
    assert await places(storage, eve) == [LinkedPlace(FIRST, other_tenant, foreign_shop, "Shop")]
    await run_sql(pool, "update organizations set status = 'suspended' where id = %s", other_tenant)
    assert await places(storage, eve) == []
    assert await remove(storage, user, shop, OTHER) is False
    assert await remove(storage, user, shop) is True
    assert await of_person(storage, user, shop) == []
    assert await run_sql(pool, "select provider_user_id from identities order by 1") == [("1",), ("2",), ("4",)]


async def test_identities_of_a_provider_are_found_and_removed_in_all_contexts(
    storage: Postgres, pool: Pool, acme: UUID, other_tenant: UUID
) -> None:
    user, eve = [(await add(storage, account(email))).id for email in ("ada@example.com", EVE)]
    shop, foreign_shop = await add_service(pool, acme), await add_service(pool, other_tenant)
    for target, provider, service in (
        (user, FIRST, None),
        (user, FIRST, foreign_shop),
        (user, OTHER, shop),
        (eve, FIRST, None),
        (eve, FIRST, shop),
    ):
        await add_identity(pool, target, provider, service)
    async with storage.reading() as read:
        assert await read.identities.list_providers(user) == sorted([FIRST, OTHER])
        assert await read.identities.list_providers(eve) == [FIRST]
        assert await read.identities.list_providers(uuid4()) == []
    assert set(await within(storage, lambda tx: tx.identities.remove_everywhere(user, FIRST, None))) == {None, foreign_shop}
    assert await within(storage, lambda tx: tx.identities.remove_everywhere(user, FIRST, None)) == []
    rows = await run_sql(pool, "select user_id, provider, service_id from identities")
    assert set(rows) == {(user, OTHER, shop), (eve, FIRST, None), (eve, FIRST, shop)}


async def test_all_identities_of_a_user_are_removed_together(storage: Postgres, pool: Pool, acme: UUID) -> None:
    user, eve = [(await add(storage, account(email))).id for email in ("ada@example.com", EVE)]
    shop = await add_service(pool, acme)
    for target, provider, service in ((user, FIRST, None), (user, OTHER, None), (user, FIRST, shop), (eve, FIRST, shop)):
        await add_identity(pool, target, provider, service)
    await within(storage, lambda tx: tx.identities.remove_all(user))
    assert await run_sql(pool, "select user_id from identities") == [(eve,)]


async def test_a_user_has_one_identity_per_provider_and_context(storage: Postgres, pool: Pool, acme: UUID) -> None:
    user, shop = (await add(storage, account())).id, await add_service(pool, acme)
    for service in (None, shop):
        await add_identity(pool, user, FIRST, service)
        with pytest.raises(psycopg.errors.UniqueViolation):
            await add_identity(pool, user, FIRST, service)


async def test_a_token_is_read_as_it_was_stored(storage: Postgres, pool: Pool, acme: UUID) -> None:
    user, eve = [(await add(storage, account(email))).id for email in ("ada@example.com", EVE)]
    shop = await add_service(pool, acme)
    await add_identity(pool, user, FIRST, token="of ada", expires_at=NOW, scopes=["repo", "user"])
    await add_identity(pool, user, FIRST, shop, token="of ada in the shop")
    await add_identity(pool, user, OTHER)
    await add_identity(pool, eve, FIRST, token="of eve")
    assert await token(storage, user) == ProviderToken("of ada", NOW, ("repo", "user"), can_be_renewed=True)
    assert await token(storage, user, shop) == ProviderToken("of ada in the shop", None, (), can_be_renewed=True)
    assert await token(storage, eve) == ProviderToken("of eve", None, (), can_be_renewed=True)
    misses = ((user, None, OTHER), (eve, shop, FIRST), (user, shop, OTHER), (uuid4(), None, FIRST), (user, uuid4(), FIRST))
    assert [await token(storage, *of) for of in misses] == [None] * len(misses)


async def test_a_token_is_encrypted_for_its_identity_and_column(storage: Postgres, pool: Pool) -> None:
    user, eve = [(await add(storage, account(email))).id for email in ("ada@example.com", EVE)]
    name = await add_identity(pool, user, token="a token of ada")
    await add_identity(pool, eve, token="a token of eve")
    rows = await run_sql(pool, "select access_token, refresh_token from identities")
    assert not any(b"token" in value for row in rows for value in row)
    assert make_vault().open(
        (await run_sql(pool, "select access_token from identities where id = %s", name))[0][0], access_token_context(str(name))
    )
    moves = ["refresh_token", "(select i.access_token from identities i where i.user_id <> identities.user_id)"]
    for move in moves:
        await run_sql(pool, f"update identities set access_token = {move} where id = %s", name)  # noqa: S608
        with pytest.raises(SealBroken):
            await token(storage, user)
