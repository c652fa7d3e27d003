"""Tests with a user of 40,000 logins: a streamed export, and an anonymization in short transactions."""

import os
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace

import pytest
import trio
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.accounts_rules import Account
from core.maintenance import log_redaction_rules
from ports import Ports
from tests.proof.wire.wire import serving
from tests.support import database
from tests.support.builders import Api, add_account, run_sql, sign_in
from tests.support.direct import change_ports
from tests.support.platform import Platform

LOGINS = 40_000
MEMORY = 4 * 1024 * 1024  # the limit for the stream; the response alone is more than twice as large
WAIT = 60.0  # seconds, with traced allocations


@pytest.fixture
def conninfo() -> Iterator[str]:
    """Use a separate database, so that other tests need not empty it."""
    with database.Database(os.environ[database.SERVER_VARIABLE]) as own:
        yield own.conninfo


@pytest.fixture
async def user(ports: Ports, pool: Pool) -> Account:
    account = await add_account(ports, "ada@example.com", None)
    many = """
        insert into login_events (id, user_id, provider, success, address, agent, risk_score, risk_factors, city, country, created_at)
        select gen_random_uuid(), %s, 'password', true, '203.0.113.9', 'Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101', 30,
               '{new_device}', 'London', 'GB', now() - number / 3 * interval '1 minute'
        from generate_series(1, %s) as number"""
    await run_sql(pool, many, account.id, LOGINS)
    await run_sql(pool, "analyze login_events")
    return account


@pytest.mark.slow
async def test_a_large_export_streams_in_bounded_memory(app: QuartTrio, ports: Ports, user: Account) -> None:
    change_ports(app, policy=replace(ports.policy, export_login_events=2 * LOGINS))
    token = (await sign_in(ports, user)).access_token
    request = f"GET /api/privacy/export/{user.id} HTTP/1.1\r\nHost: test\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\r\n"
    mark, found, size, tail, end = b'"risk_score":30', 0, 0, b"", b""
    async with serving(app) as server, server.client() as client:  # type: ignore[arg-type]
        tracemalloc.start()
        try:
            await client.send(request.encode())
            with trio.fail_after(WAIT):
                while data := await client.stream.receive_some(65536):
                    found += (tail + data).count(mark) - tail.count(mark)
                    size += len(data)
                    tail = bytes((tail + data)[-len(mark) :])
                    end = bytes((end + data)[-200:])
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert found == LOGINS
    assert end.endswith(b"\r\n0\r\n\r\n")
    assert b'"passkeys":[]}' in end
    assert size > 250 * LOGINS
    assert peak < MEMORY, f"{peak / 2**20:.1f} MiB"


@pytest.mark.slow
async def test_large_logs_are_redacted_in_short_transactions(api: Api, pool: Pool, user: Account, platform: Platform) -> None:
    answer = await api.delete(f"/api/privacy/forget/{user.id}", token=platform.token)
    assert answer.status == 200, answer.text
    rows = "select address, agent, city, country, count(*) from login_events where user_id = %s group by 1, 2, 3, 4"
    assert await run_sql(pool, rows, user.id) == [("0.0.0.0", "anonymized", None, None, LOGINS)]  # noqa: S104
    by_transaction = """
        select count(*), e.xmin = u.xmin from login_events e join users u on u.id = e.user_id where u.id = %s group by e.xmin, u.xmin"""
    counts = await run_sql(pool, by_transaction, user.id)
    assert {count for count, anonymizes in counts if anonymizes} == {log_redaction_rules.FIRST}
    assert max(count for count, _ in counts) <= log_redaction_rules.BATCH
    assert await run_sql(pool, "select * from blankings") == []
