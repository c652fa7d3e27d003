"""Changes to the caller's account that wait for a lock while their session ends (security J-4, Z-5)."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import pytest

from adapters.postgres.engine.pool import Pool
from ports import Ports
from tests.support.builders import NEW_PASSWORD, PASSWORD, Answer, Api, add_account, run_during, run_sql, sign_in
from tests.support.refusals import UNAUTHORIZED, refused

CHANGES: Final[Mapping[str, Callable[[Api, str], Awaitable[Answer]]]] = {
    "address": lambda api, token: api.patch("/api/user", {"email": "new@example.com"}, token=token),
    "password": lambda api, token: api.post(
        "/api/user/change-password", {"current_password": PASSWORD, "new_password": NEW_PASSWORD}, token=token
    ),
    "second factor": lambda api, token: api.post("/api/user/mfa/setup", token=token),
    "no second factor": lambda api, token: api.delete("/api/user/mfa", token=token),
    "organization": lambda api, token: api.post("/api/organizations", {"slug": "acme", "name": "Acme"}, token=token),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_session_that_ends_during_the_request_changes_nothing(api: Api, ports: Ports, pool: Pool, change: str) -> None:
    account = await add_account(ports)
    token = (await sign_in(ports, account)).access_token
    before = await run_sql(pool, "select * from users")
    changes = [
        ("select 1 from users where id = %s for no key update", (account.id,)),
        ("update sessions set ended_at = now() where user_id = %s", (account.id,)),
    ]
    assert refused(await run_during(pool, changes, lambda: CHANGES[change](api, token))) == UNAUTHORIZED
    assert await run_sql(pool, "select * from users") == before
    assert await run_sql(pool, "select 1 from mfa union all select 1 from organizations union all select 1 from mails") == []


async def test_an_account_anonymized_during_the_request_keeps_its_placeholder_address(api: Api, ports: Ports, pool: Pool) -> None:
    account = await add_account(ports)
    token = (await sign_in(ports, account)).access_token
    anonymization = ("update users set email = 'anonymized-1@deleted.local', anonymized_at = now() where id = %s", (account.id,))
    assert refused(await run_during(pool, [anonymization], lambda: CHANGES["address"](api, token))) == UNAUTHORIZED
    assert await run_sql(pool, "select email from users") == [("anonymized-1@deleted.local",)]


async def test_a_password_replaced_during_the_request_is_not_replaced_again(api: Api, ports: Ports, pool: Pool) -> None:
    account = await add_account(ports)
    token = (await sign_in(ports, account)).access_token
    replaced = ("update users set password_hash = 'replaced' where id = %s", (account.id,))
    assert refused(await run_during(pool, [replaced], lambda: CHANGES["password"](api, token))) == UNAUTHORIZED
    assert await run_sql(pool, "select password_hash from users") == [("replaced",)]
