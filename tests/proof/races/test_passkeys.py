"""Races for an account's ways in: requests at once take away all but the last way (security PK-8)."""

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from ports import Ports
from tests.support.builders import Answer, Api, run_concurrently, run_sql
from tests.support.passkeys.users import PASSKEYS, PasskeyUser, start_login, verify_second

pytestmark = pytest.mark.slow

ROUNDS = range(5)


async def added(holder: PasskeyUser, number: int) -> list[str]:
    """Add passkeys from more authenticators, and return their ids."""
    return [(await PasskeyUser(holder.api, holder.token).add())["id"] for _ in range(number)]


async def test_of_the_last_passkeys_one_stays(api: Api, holder: PasskeyUser, pool: Pool) -> None:
    await run_sql(pool, "update users set password_hash = null")
    for _ in ROUNDS:
        await added(holder, 3)
        ids = [each["id"] for each in await holder.listed()]

        async def delete(number: int, ids: list[str] = ids) -> int:
            return (await api.delete(f"{PASSKEYS}/{ids[number]}", token=holder.token)).status

        statuses = await run_concurrently(len(ids), delete)
        assert {204} <= {*statuses} <= {204, 400, 401}, "after a deletion, the session may need a passkey that is left (PK-12)"
        [(counted, left)] = await run_sql(pool, "select passkey_count, (select count(*) from passkeys) from users")
        assert counted == left == len(ids) - statuses.count(204) >= 1
        await run_sql(pool, "delete from passkeys; update users set passkey_count = 0; delete from former_passkeys")


async def test_of_a_password_and_a_passkey_one_stays(api: Api, holder: PasskeyUser, user: Account, pool: Pool) -> None:
    [(password,)] = await run_sql(pool, "select password_hash from users where id = %s", user.id)
    for _ in ROUNDS:
        [passkey] = await added(holder, 1)
        paths = ("/api/user/password", f"{PASSKEYS}/{passkey}")

        async def remove(number: int, paths: tuple[str, ...] = paths) -> int:
            return (await api.delete(paths[number], token=holder.token)).status

        assert sorted(await run_concurrently(2, remove)) == [204, 400]
        await run_sql(pool, "update users set password_hash = %s", password)
        for left in await holder.listed():
            assert (await api.delete(f"{PASSKEYS}/{left['id']}", token=holder.token)).status == 204


async def test_a_second_factor_that_is_turned_off_meanwhile_ends_the_sign_in_or_completes_it(
    api: Api, holder: PasskeyUser, ports: Ports, pool: Pool
) -> None:
    """The two orders are possible. Afterwards, nothing is left from the second factor."""
    for _ in ROUNDS:
        await holder.add_key()
        login = await start_login(api)

        async def act(number: int, login: dict[str, object] = login) -> Answer:
            if number == 0:
                return await verify_second(api, login, holder.authenticator)
            return await api.call("PUT", f"{PASSKEYS}/second-factor", {"enabled": False}, token=holder.token)

        verified, turned_off = await run_concurrently(2, act)
        assert (verified.status in (200, 401), turned_off.status) == (True, 200), verified.text
        assert await run_sql(pool, "select passkey_second_at, (select count(*) from backup_codes) from users") == [(None, 0)]
        holder.authenticator.credentials.clear()
