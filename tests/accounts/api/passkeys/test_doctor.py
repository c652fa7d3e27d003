"""How `gatehouse doctor` checks passkeys that were made for another host, and platform owners' factors."""

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest

from adapters.postgres.engine.pool import Pool
from core.kernel.causes import SYSTEM
from core.kernel.display import format_day
from core.kernel.outbound import Reply, SendFailed, SendFailure
from core.kernel.policy import Policy
from core.kernel.sign_in_policy.rules import Concerned, Rule, Rules
from core.kernel.values import new_id
from core.tenancy.model.sign_in_policies import SignInPolicy
from entrypoints.doctor import Finding, Health
from entrypoints.doctor.passkey_checks import check_owners, check_rp_id
from ports import Ports
from tests.support.builders import BASE_URL, add_account, run_sql
from tests.support.passkeys.users import RP_ID, add_passkeys

NEW = "https://id.example.com"
FILE = "https://old.example/.well-known/webauthn"
EXPECTED = f'their host is old.example. {FILE} must serve {{"origins": ["{NEW}"]}}'


@dataclass
class FakeSender:
    """A sender that gives this answer to every request."""

    answer: Reply | SendFailed
    url: str | None = None

    async def get(self, url: str, within: float, **_: Any) -> Reply:
        self.url = url
        if isinstance(self.answer, SendFailed):
            raise self.answer
        return self.answer

    async def post(self, url: str, body: bytes, headers: Any, within: float, **_: Any) -> Reply:
        raise AssertionError("nothing is posted")


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


async def store_policy(ports: Ports, due_at: datetime | None) -> None:
    """Store the platform's policy, which asks for a second factor."""
    rules = Rules(second_factor=frozenset({Concerned.EVERYONE}), due_at={} if due_at is None else {Rule.SECOND_FACTOR: due_at})
    policy = SignInPolicy(id=new_id(), org_id=None, service_id=None, rules=rules, changed_at=ports.clock.now(), changed_by=None)
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.sign_in_policies.put(policy)


async def test_platform_owners_with_only_a_password_are_named(ports: Ports, pool: Pool) -> None:
    now = ports.clock.now()
    assert await check_owners(ports.storage, ports.policy, BASE_URL, now) == []
    for name in ("ada", "grace"):
        account = await add_account(ports, f"{name}@example.com")
        await run_sql(pool, "update users set is_platform_owner = true where id = %s", account.id)
    text = "ada@example.com, grace@example.com have no second factor and no passkey"

    async def text_of() -> str:
        [finding] = await check_owners(ports.storage, ports.policy, BASE_URL, now)
        assert (finding.subject, finding.health) == ("platform owners", Health.WARNING)
        return finding.text

    assert (await text_of()).startswith(f"{text}. A stolen password opens the platform.")
    await store_policy(ports, now + timedelta(days=7))
    assert await text_of() == f"{text}. From {format_day(now + timedelta(days=7))} on, the pages of the platform open only with one"
    await store_policy(ports, None)
    assert await text_of() == f"{text}, so the pages of the platform are closed to them until they set one up"
    await run_sql(pool, "update users set mfa_enabled_at = now() where email = 'ada@example.com'")
    assert (await text_of()).startswith("grace@example.com has no second factor")
    [(grace,)] = await run_sql(pool, "select id from users where email = 'grace@example.com'")
    await add_passkeys(pool, grace, "earlier.example.com")
    await run_sql(pool, "update users set passkey_second_at = now() where id = %s", grace)
    assert (await text_of()).startswith("grace@example.com has no second factor"), "the passkey does not work here"
    await add_passkeys(pool, grace, RP_ID)
    assert await check_owners(ports.storage, ports.policy, BASE_URL, now) == [
        Finding("platform owners", Health.GOOD, "all have a second factor or a passkey"),
    ]
    await run_sql(pool, "update users set passkey_second_at = null where id = %s", grace)
    assert (await text_of()).startswith("the password alone signs in to the accounts of grace@example.com."), "also beside a passkey"
    await run_sql(pool, "update users set password_hash = null where id = %s", grace)
    [finding] = await check_owners(ports.storage, ports.policy, BASE_URL, now)
    assert finding.health is Health.GOOD
