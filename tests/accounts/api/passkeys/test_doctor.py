"""The check of `gatehouse doctor` of passkeys that were made for another host."""

import json
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest

from adapters.postgres.engine.pool import Pool
from core.kernel.outbound import Reply, SendFailed, SendFailure
from core.kernel.policy import Policy
from entrypoints.findings import Finding, Health
from entrypoints.passkey_checks import check_rp_id
from ports import Ports
from tests.support.builders import add_account, run_sql

NEW = "https://id.example.com"
FILE = "https://old.example/.well-known/webauthn"
EXPECTED = f'their host is old.example. {FILE} must serve {{"origins": ["{NEW}"]}}'


@dataclass
class FakeSender:
    """A sender whose every request gets this answer."""

    answer: Reply | SendFailed
    url: str | None = None

    async def get(self, url: str, within: float) -> Reply:
        self.url = url
        if isinstance(self.answer, SendFailed):
            raise self.answer
        return self.answer

    async def post(self, url: str, body: bytes, headers: Any, within: float) -> Reply:
        raise AssertionError("nothing is posted")


async def add_passkeys(pool: Pool, user_id: UUID, *rp_ids: str) -> None:
    for rp_id in rp_ids:
        await run_sql(
            pool,
            """
            insert into passkeys
                (id, user_id, name, credential_id, public_key, algorithm, rp_id, sign_count, aaguid, backup_eligible, created_at)
            values (gen_random_uuid(), %s, 'Key', sha256(random()::text::bytea), '', -7, %s, 0, gen_random_uuid(), true, now())""",
            user_id,
            rp_id,
        )


async def examine(ports: Ports, answer: Reply | SendFailed, base_url: str = NEW, **policy: Any) -> tuple[list[Finding], str | None]:
    """Return the findings, and the URL that was read."""
    sender = FakeSender(answer)
    return await check_rp_id(ports.storage, sender, Policy(**policy), base_url), sender.url


def listing(*origins: str) -> Reply:
    return Reply(200, json.dumps({"origins": origins}).encode())


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (listing("https://other.example", NEW), None),
        (listing("https://id.example.com.evil.example"), f"it does not list {NEW}"),
        (Reply(200, b'{"origins": "https://id.example.com"}'), f"it does not list {NEW}"),
        (Reply(200, b"[]"), f"it does not list {NEW}"),
        (Reply(200, b"<html>"), "its answer is not JSON"),
        (Reply(200, b"[" * 60_000), "its answer is not JSON"),
        (Reply(301, b""), "it answered 301"),
        (SendFailed(SendFailure.NOT_RESOLVED), "the host name was not resolved"),
    ],
)
async def test_the_file_of_the_old_host_is_read(
    ports: Ports, pool: Pool, user: Any, answer: Reply | SendFailed, problem: str | None
) -> None:
    await run_sql(pool, "insert into issuer (url, rp_id) values ('https://old.example', 'old.example')")
    await add_passkeys(pool, user.id, "old.example", "old.example")
    findings, url = await examine(ports, answer)
    assert url == FILE
    if problem is None:
        expected = Finding("passkeys", Health.GOOD, f"{EXPECTED}, and does. Without it, 1 user would set up new ones")
    else:
        advice = "Serve it, or set SSO_PASSKEY_RP_ID to a host of your own pages. Without it, 1 user must set up new ones"
        expected = Finding("passkeys", Health.WARNING, f"{EXPECTED}, but {problem}. {advice}")
    assert findings == [expected]


async def test_users_whose_passkeys_work_nowhere_are_counted(ports: Ports, pool: Pool, user: Any) -> None:
    await add_passkeys(pool, user.id, "old.example", "id.example.com")
    await add_passkeys(pool, (await add_account(ports, "grace@example.com")).id, "old.example", "localhost")
    await add_passkeys(pool, (await add_account(ports, "joan@example.com")).id, "old.example")
    findings, url = await examine(ports, Reply(404, b""))
    assert url is None, "no other host is asked"
    advice = "which do not work here: they sign in another way, and add new ones"
    assert findings == [
        Finding("passkeys", Health.WARNING, f"1 user has passkeys for localhost only, {advice}"),
        Finding("passkeys", Health.WARNING, f"2 users have passkeys for old.example only, {advice}"),
    ]


async def test_other_installations_have_nothing_to_check(ports: Ports, pool: Pool, user: Any) -> None:
    await add_passkeys(pool, user.id, "id.example.com", "example.com")
    for base_url, policy in [
        (NEW, {}),
        (NEW, {"passkey_rp_id": "example.com"}),
        (NEW, {"frontend_url": "https://app.example.org"}),
        ("http://127.0.0.1:8080", {}),
    ]:
        assert await examine(ports, Reply(404, b""), base_url, **policy) == ([], None)
