"""Privacy with large logs: redactions by index and in short transactions, and a streamed export."""

import tracemalloc
from dataclasses import replace

import pytest
import trio
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from adapters.postgres.privacy import (
    END_INVITATIONS,
    INVITATION_EVENTS,
    INVOLVED_ORGANIZATIONS,
    LOG_REDACTIONS,
    REDACT_JOINS,
    REMOVE_EMAILS,
)
from adapters.postgres.storage import Postgres
from core.accounts.model.accounts import Account
from core.kernel.values import Email
from core.maintenance.model import housekeeping
from core.maintenance.model.housekeeping import PersonalLog
from ports import Ports
from tests.proof.volume.plans import PLAN_MODES, plan_nodes, rows_of
from tests.proof.wire.wire import serving
from tests.support.builders import Api, add_account, add_invitation, add_member, add_organization, run_sql, sign_in
from tests.support.direct import change_ports
from tests.support.platform import Platform
from tests.support.rows import ADA, EVE, NOW, SECOND, account, add, mail, queue

pytestmark = pytest.mark.slow

PLACEHOLDER = Email("anonymized-1@deleted.local")
LOGINS = 24_000
MEMORY = 4 * 1024 * 1024  # the limit for the stream; the response alone is larger
WAIT = 60.0  # seconds, with traced allocations
MANY = 5000


@pytest.fixture
async def user_with_many_logins(ports: Ports, pool: Pool) -> Account:
    account = await add_account(ports, "ada@example.com", None)
    logins = """
        insert into login_events (id, user_id, provider, success, address, agent, risk_score, risk_factors, city, country, created_at)
        select gen_random_uuid(), %s, 'password', true, '203.0.113.9', 'Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101', 30,
               '{new_device}', 'London', 'GB', now() - number / 3 * interval '1 minute'
        from generate_series(1, %s) as number"""
    await run_sql(pool, logins, account.id, LOGINS)
    await run_sql(pool, "analyze login_events")
    return account


@pytest.mark.parametrize("mode", PLAN_MODES)
async def test_redaction_reads_only_the_users_entries_of_large_logs(storage: Postgres, ports: Ports, pool: Pool, mode: str) -> None:
    await add(storage, user := account(ADA), eve := account(EVE))
    acme = await add_organization(pool, "acme")
    await add_member(pool, acme, user.id)
    entries = """
        insert into audit_log (id, org_id, action, target_type, target_id, actor_id, impersonator_id, address, details, created_at)
        select gen_random_uuid(), case when number %% 10 > 0 then %s::uuid end,
               (array['user.invited', 'security.password.changed'])[number %% 2 + 1], 'user', gen_random_uuid(),
               case when number %% 3 > 0 then gen_random_uuid() end, case when number %% 7 = 0 then gen_random_uuid() end, '203.0.113.9',
               '{}', now() - number * interval '1 second'
        from generate_series(1, %s) number"""
    await run_sql(pool, entries, acme, MANY)
    mfa = """
        insert into mfa_events (id, user_id, event_type, success, actor_id, impersonator_id, created_at)
        select gen_random_uuid(), %s, 'mfa_verify_success', true, gen_random_uuid(), gen_random_uuid(), now() from generate_series(1, %s)"""
    await run_sql(pool, mfa, eve.id, MANY)
    mails = """
        insert into mails (id, kind, address, created_at, due_at, finished_at, outcome)
        select gen_random_uuid(), 'password_changed', number || '@example.com', now(), now(), now(), 'sent'
        from generate_series(1, %s) number"""
    await run_sql(pool, mails, MANY)
    invitations = """
        insert into invitations (id, org_id, email, role, invited_by, status, token_hash, expires_at, created_at, ended_at)
        select gen_random_uuid(), %s, number || '@example.com', 'member', gen_random_uuid(), 'accepted', number::text::bytea, now(), now(),
               now()
        from generate_series(1, %s) number"""
    await run_sql(pool, invitations, acme, MANY)
    for org, actor, target in ((acme, user.id, "x"), (None, user.id, "x"), (None, None, str(user.id)), (acme, None, str(user.id))):
        insert = """
            insert into audit_log (id, org_id, action, target_type, target_id, actor_id, address, details, created_at)
            values (gen_random_uuid(), %s, 'security.password.changed', 'user', %s, %s, '203.0.113.9', '{}', now())"""
        await run_sql(pool, insert, org, target, actor)
    await add_invitation(ports, acme, ADA)
    await queue(storage, mail(address=ADA))
    await run_sql(pool, "analyze audit_log, mfa_events, mails, invitations, memberships")
    parameters = {"user_id": user.id, "email": ADA}
    nodes = []
    for log in PersonalLog:
        nodes += await plan_nodes(pool, LOG_REDACTIONS[log], {**parameters, "log": log, "limit": 1000}, mode)
    nodes += await plan_nodes(pool, REDACT_JOINS, parameters, mode)
    assert max(map(rows_of, nodes)) < MANY // 10
    assert await run_sql(pool, "select count(*) from audit_log where agent = 'anonymized'") == [(4,)]
    assert max(map(rows_of, await plan_nodes(pool, INVOLVED_ORGANIZATIONS, parameters, mode))) < MANY // 10
    end_parameters = {"placeholder": PLACEHOLDER, "locked": [acme], "names": INVITATION_EVENTS, "now": NOW + SECOND, **parameters}
    assert max(map(rows_of, await plan_nodes(pool, END_INVITATIONS, end_parameters, mode))) < MANY // 10
    assert await run_sql(pool, "select count(*) from invitations where email = %s", PLACEHOLDER) == [(1,)]
    assert max(map(rows_of, await plan_nodes(pool, REMOVE_EMAILS, parameters, mode))) < MANY // 10
    assert await run_sql(pool, "select count(*) from mails") == [(MANY,)]


async def test_a_large_export_streams_in_bounded_memory(app: QuartTrio, ports: Ports, user_with_many_logins: Account) -> None:
    change_ports(app, policy=replace(ports.policy, export_login_events=2 * LOGINS))
    token = (await sign_in(ports, user_with_many_logins)).access_token
    lines = [f"GET /api/privacy/export/{user_with_many_logins.id} HTTP/1.1", "Host: test", "Connection: close"]
    request = "\r\n".join([*lines, f"Authorization: Bearer {token}", "", ""])
    mark, matches, size, tail, end = b'"risk_score":30', 0, 0, b"", b""
    async with serving(app) as server, server.client() as client:  # type: ignore[arg-type]
        tracemalloc.start()
        try:
            await client.send(request.encode())
            with trio.fail_after(WAIT):
                while data := await client.stream.receive_some(65536):
                    matches += (tail + data).count(mark) - tail.count(mark)
                    size += len(data)
                    tail = bytes((tail + data)[-len(mark) :])
                    end = bytes((end + data)[-200:])
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert matches == LOGINS
    assert end.endswith(b"\r\n0\r\n\r\n")
    assert (
        b'"consents":[],"application_blocks":[],"former_memberships":[],"application_roles":[],"groups":[],"attributes":[],"service_accounts":[],'
        in end
    )
    assert size > MEMORY
    assert peak < MEMORY, f"{peak / 2**20:.1f} MiB"


async def test_large_logs_are_redacted_in_short_transactions(
    api: Api, pool: Pool, user_with_many_logins: Account, platform: Platform
) -> None:
    user = user_with_many_logins
    answer = await api.delete(f"/api/privacy/forget/{user.id}", token=platform.token)
    assert answer.status == 200, answer.text
    rows = "select address, agent, city, country, count(*) from login_events where user_id = %s group by 1, 2, 3, 4"
    assert await run_sql(pool, rows, user.id) == [("0.0.0.0", "anonymized", None, None, LOGINS)]  # noqa: S104
    by_transaction = """
        select count(*), e.xmin = u.xmin from login_events e join users u on u.id = e.user_id where u.id = %s group by e.xmin, u.xmin"""
    counts = await run_sql(pool, by_transaction, user.id)
    assert {count for count, anonymizes in counts if anonymizes} == {housekeeping.FIRST_REDACTION}
    assert max(count for count, _ in counts) <= housekeeping.REDACTION_BATCH
    assert await run_sql(pool, "select * from blankings") == []
