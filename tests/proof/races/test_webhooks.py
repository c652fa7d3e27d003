"""Concurrent webhook changes: names, the limit and secrets (security W-6, Z-4)."""

import pytest

from adapters.postgres.engine.pool import Pool
from core.kernel.policy import Policy
from tests.eventing.api.webhooks import FULL, call, create_webhook
from tests.support.builders import Answer, run_concurrently, run_sql
from tests.support.tenants import Tenant

pytestmark = pytest.mark.slow

AT_ONCE = 20

MAX_WEBHOOKS = Policy().webhooks_per_organization


async def test_one_of_several_concurrent_requests_gets_the_name(acme: Tenant, pool: Pool) -> None:
    async def act(_: int) -> Answer:
        return await call(acme, "POST", "", FULL)

    answers = await run_concurrently(AT_ONCE, act)
    assert sorted(answer.status for answer in answers) == [200] + [400] * (AT_ONCE - 1)
    assert await run_sql(pool, "select count(*) from webhooks") == [(1,)]
    assert await run_sql(pool, "select count(*) from audit_log where action = 'webhook.created'") == [(1,)]


async def test_concurrent_requests_respect_the_limit(acme: Tenant, pool: Pool) -> None:
    insert = """
        insert into webhooks (id, org_id, name, url, events, is_active, secret, created_at, updated_at)
        select gen_random_uuid(), %s, 'hook ' || n, 'https://x.example', '{user.invited}', true, '', now(), now()
        from generate_series(1, %s) n"""
    await run_sql(pool, insert, acme.org, MAX_WEBHOOKS - 3)

    async def act(number: int) -> Answer:
        return await call(acme, "POST", "", {**FULL, "name": f"One of many {number}"})

    answers = await run_concurrently(AT_ONCE, act)
    assert sorted(answer.status for answer in answers) == [200] * 3 + [400] * (AT_ONCE - 3)
    assert await run_sql(pool, "select count(*) from webhooks") == [(MAX_WEBHOOKS,)]


async def test_one_of_several_concurrent_requests_deletes_the_webhook(acme: Tenant, pool: Pool) -> None:
    webhook = await create_webhook(acme)

    async def act(number: int) -> Answer:
        if number % 2:
            return await call(acme, "DELETE", f"/{webhook['id']}")
        return await call(acme, "POST", f"/{webhook['id']}/rotate-secret")

    answers = await run_concurrently(AT_ONCE, act)
    assert {answer.status for answer in answers} <= {200, 404}
    assert [answer.json for answer in answers if answer.status == 200].count({}) == 1
    assert await run_sql(pool, "select (select count(*) from webhooks), (select count(*) from deleted_webhooks)") == [(0, 1)]
    secrets = [answer.json["secret"] for answer in answers if answer.status == 200 and "secret" in answer.json]
    assert len(set(secrets)) == len(secrets)
