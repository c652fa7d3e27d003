"""How logs are redacted that are too long for a single transaction."""

from typing import Final
from uuid import UUID

import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.privacy import Privacy
from core.accounts import accounts
from core.accounts.model.accounts import Account
from core.kernel.causes import SYSTEM
from core.kernel.errors import StorageDown
from core.kernel.values import new_id
from core.maintenance import housekeeping
from core.maintenance.model import housekeeping as housekeeping_model
from core.maintenance.model import housekeeping as model_housekeeping
from ports import Ports
from tests.privacy.api.anonymization.data import DELETED_TABLES, account_row, anonymize, columns_with, count_rows, request_anonymization
from tests.support.builders import EMAIL, Api, run_concurrently, run_sql
from tests.support.platform import Platform
from tests.support.tenants import Tenant

ENTRIES: Final = 23  # in every log
HOME_ADDRESS: Final = "203.0.113.77"


@pytest.fixture
async def long_logs(pool: Pool, acme: Tenant, user: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    """Add more entries about the user to every log than a batch redacts."""
    monkeypatch.setattr(housekeeping_model, "FIRST_REDACTION", 3)
    monkeypatch.setattr(model_housekeeping, "REDACTION_BATCH", 7)
    monkeypatch.setattr(model_housekeeping, "BATCH", 5)
    mfa = "insert into mfa_events (id, user_id, actor_id, impersonator_id, event_type, success, address, agent, created_at)"
    audit = """
        insert into audit_log
            (id, org_id, action, target_type, target_id, actor_id, impersonator_id, address, agent, details, created_at) """
    random_id, user_id, admin = "gen_random_uuid()", f"'{user.id}'", f"'{acme.people['admin'].id}'"
    origin = f"'{HOME_ADDRESS}', 'a browser'"
    # Three entries with the same time
    times = f"now() - number / 3 * interval '1 second' from generate_series(1, {ENTRIES}) number"
    statements = (
        f"""
        insert into login_events (id, user_id, provider, success, address, agent, city, country, created_at)
        select {random_id}, {user_id}, 'password', true, {origin}, 'London', 'GB', {times}""",
        f"{mfa} select {random_id}, {user_id}, null, null, 'mfa_verify_success', true, {origin}, {times}",
        f"{mfa} select {random_id}, {admin}, {user_id}, null, 'mfa_disabled', true, {origin}, {times}",
        f"{mfa} select {random_id}, {admin}, null, {user_id}, 'mfa_disabled', true, {origin}, {times}",
        f"{audit} select {random_id}, '{acme.org}', 'x', 'user', 'x', {user_id}, null, {origin}, '{{}}', {times}",
        f"{audit} select {random_id}, '{acme.org}', 'x', 'user', 'x', {admin}, {user_id}, {origin}, '{{}}', {times}",
        f"{audit} select {random_id}, null, 'security.password.changed', 'user', {user_id}, null, null, {origin}, '{{}}', {times}",
        f"""
        insert into privacy_log (id, event_type, user_id, actor_id, address, agent, created_at)
        select {random_id}, 'user_anonymized', {random_id}, {user_id}, {origin}, {times}""",
        # Entries about other users
        f"""
        insert into login_events (id, user_id, provider, success, address, agent, created_at)
        values ({random_id}, {admin}, 'password', true, '198.51.100.7', 'a browser', now())""",  # noqa: S608
        f"{audit} values ({random_id}, '{acme.org}', 'x', 'user', 'x', {admin}, null, '198.51.100.7', 'a browser', '{{}}', now())",
    )
    for statement in statements:
        await run_sql(pool, statement)


async def count_unredacted(pool: Pool) -> int:
    """Return how many log entries still have the user's address."""
    counts = [
        (await run_sql(pool, f"select count(*) from {table} where address = %s", HOME_ADDRESS))[0][0]  # noqa: S608
        for table in ("login_events", "mfa_events", "audit_log", "privacy_log")
    ]
    return sum(counts)


async def check_redacted(pool: Pool) -> None:
    for text in (HOME_ADDRESS, "London"):
        assert await columns_with(pool, text) == set()
    assert await columns_with(pool, "198.51.100.7") == {"login_events.address", "audit_log.address"}
    assert await run_sql(pool, "select * from blankings") == []


@pytest.mark.slow
async def test_long_logs_are_redacted_before_the_response(api: Api, pool: Pool, acme: Tenant, user: Account, long_logs: None) -> None:
    assert await count_unredacted(pool) == ENTRIES * len(housekeeping_model.PersonalLog)
    await anonymize(api, user.id, acme.token("owner"))
    await check_redacted(pool)
    sizes = await run_sql(pool, "select count(*) from login_events group by xmin")
    assert max(size for (size,) in sizes) <= housekeeping_model.REDACTION_BATCH, "each transaction is short"


@pytest.fixture
async def interrupted_anonymization(api: Api, acme: Tenant, user: Account, long_logs: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anonymize the user in a process that crashes right after the commit."""

    async def fail(*_: object) -> None:
        raise StorageDown

    with monkeypatch.context() as patch:
        patch.setattr(housekeeping, "finish_redaction", fail)
        assert (await request_anonymization(api, user.id, acme.token("owner"))).status == 500


@pytest.mark.slow
async def test_the_account_is_anonymized_before_its_logs_are_redacted(
    api: Api, pool: Pool, acme: Tenant, user: Account, interrupted_anonymization: None
) -> None:
    assert await columns_with(pool, EMAIL) == set()
    assert await count_rows(pool, user.id, *DELETED_TABLES) == dict.fromkeys(DELETED_TABLES, 0)
    assert await count_unredacted(pool) == (ENTRIES - housekeeping_model.FIRST_REDACTION) * len(housekeeping_model.PersonalLog)


@pytest.mark.slow
async def test_the_housekeeper_redacts_the_rest_after_a_crash(ports: Ports, pool: Pool, interrupted_anonymization: None) -> None:
    rest = await count_unredacted(pool)
    assert await housekeeping.sweep(ports, new_id()) == {"blankings": rest}
    await check_redacted(pool)
    assert await housekeeping.sweep(ports, new_id()) is None, "another process holds the lease"


@pytest.mark.slow
async def test_a_second_request_redacts_the_rest(
    api: Api, pool: Pool, acme: Tenant, user: Account, interrupted_anonymization: None
) -> None:
    before = await account_row(pool, user.id)
    await anonymize(api, user.id, acme.token("owner"))
    await check_redacted(pool)
    assert await account_row(pool, user.id) == before
    assert len(await acme.webhook_events()) == 1


@pytest.mark.slow
async def test_the_rest_is_redacted_even_if_the_account_is_deleted(
    ports: Ports, pool: Pool, user: Account, interrupted_anonymization: None
) -> None:
    await run_sql(pool, "delete from memberships where user_id = %s", user.id)
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await accounts.delete_account(tx, user.id, ports.clock.now())
    assert await count_unredacted(pool) > 0
    assert await housekeeping.sweep(ports, new_id()) is not None
    await check_redacted(pool)


@pytest.mark.slow
async def test_an_export_before_the_redaction_ends_is_redacted(
    api: Api, pool: Pool, platform: Platform, user: Account, interrupted_anonymization: None
) -> None:
    answer = await api.get(f"/api/privacy/export/{user.id}", token=platform.token)
    assert await count_unredacted(pool) > 0
    assert len(answer.json["login_events"]) == answer.json["login_events_count"] == ENTRIES
    keys = ("ip_address", "user_agent", "geo_city", "geo_country")
    assert {tuple(login[key] for key in keys) for login in answer.json["login_events"]} == {("0.0.0.0", "anonymized", None, None)}  # noqa: S104


@pytest.mark.slow
async def test_concurrent_requests_redact_each_entry_once(
    api: Api, ports: Ports, pool: Pool, acme: Tenant, user: Account, monkeypatch: pytest.MonkeyPatch, interrupted_anonymization: None
) -> None:
    rest, redacted_count = await count_unredacted(pool), 0
    redact = Privacy.redact

    async def count_redactions(self: Privacy, user_id: UUID, log: housekeeping_model.PersonalLog, limit: int) -> int:
        nonlocal redacted_count
        entries = await redact(self, user_id, log, limit)
        redacted_count += entries
        return entries

    monkeypatch.setattr(Privacy, "redact", count_redactions)

    async def act(number: int) -> object:
        return (
            await housekeeping.sweep(ports, new_id())
            if number % 4 == 0
            else (await request_anonymization(api, user.id, acme.token("owner"))).status
        )

    answers = await run_concurrently(12, act)
    assert [answer for answer in answers if isinstance(answer, int)] == [200] * 9
    await check_redacted(pool)
    assert redacted_count == rest
