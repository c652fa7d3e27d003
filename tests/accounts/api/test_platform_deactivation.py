"""A platform owner deactivates an account (security I-8)."""

from typing import Any
from uuid import UUID, uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from core.kernel.causes import SYSTEM
from ports import Ports
from tests.accounts.api.platform_paths import SEARCH, UNKNOWN_ID
from tests.accounts.email_changes import EmailChanger, open_proof, undo
from tests.fakes.outside import FakeMailTransport
from tests.support.builders import (
    EMAIL,
    PASSWORD,
    Answer,
    add_account,
    add_member,
    add_organization,
    add_platform_owner,
    deliver,
    run_concurrently,
    run_sql,
)
from tests.support.platform import Platform
from tests.support.refusals import BAD, MISSING, UNAUTHORIZED, refused
from tests.support.scim import GRACE, directory_of, problem
from tests.support.tenants import Tenant

REASON = {"reason": "The account was stolen."}
ENTRIES = "select action, org_id, target_id, actor_id, details from audit_log order by created_at, org_id nulls last"


async def change(platform: Platform, action: str, user: object, body: Any = REASON) -> Answer:
    return await platform.api.post(f"/api/platform/users/{user}/{action}", body, token=platform.token)


async def test_a_deactivation_ends_all_access_until_the_platform_reactivates_the_account(
    platform: Platform, ports: Ports, pool: Pool, sent: FakeMailTransport
) -> None:
    api, user, other = platform.api, await add_account(ports), await add_account(ports, "eve@example.com")
    tokens, others_tokens = (await api.login()).json, (await api.login("eve@example.com", PASSWORD)).json
    flow = """
        insert into sign_in_flows (id, target, request, wants_fresh, keeps_trust, user_id, proofs, proofs_expire_at, begun_at, expires_at)
        values (%s, 'api', '', false, true, %s, '[]', 'infinity', now(), 'infinity')"""
    for account in (user, other):
        await run_sql(pool, flow, uuid4(), account.id)
        await run_sql(
            pool,
            "update devices set trust_hash = %s, trust_expires_at = 'infinity' where user_id = %s",
            account.id.bytes,
            account.id,
        )

    answer = await change(platform, "deactivate", user.id)
    ended = {"message": "The account was deactivated, and its sessions were ended.", "user_id": str(user.id), "is_active": False}
    assert (answer.status, answer.json) == (200, ended)
    assert (await api.get("/api/user", token=tokens["access_token"])).status == 401
    assert (await api.post("/api/auth/refresh", {"refresh_token": tokens["refresh_token"]})).status == 401
    assert refused(await api.login()) == refused(await api.login(password="wrong password")) == UNAUTHORIZED
    assert await run_sql(pool, "select user_id from sign_in_flows") == [(other.id,)]
    assert await run_sql(pool, "select user_id from devices where trust_hash is not null") == [(other.id,)]
    assert (await api.get("/api/user", token=others_tokens["access_token"])).status == 200
    await api.post("/api/auth/forgot-password", {"email": EMAIL})
    await deliver(ports)
    assert [(message.to, message.subject) for message in sent.emails] == [(EMAIL, "Your account was deactivated - Gatehouse")]
    assert "stolen" not in sent.emails[0].text
    [listed] = (await api.get(f"{SEARCH}?email=ada", token=platform.token)).json["users"]
    assert (listed["deactivated_at"] is not None, listed["deactivated_by_platform"]) == (True, True)

    answer = await change(platform, "reactivate", user.id, {"reason": "The owner has it back."})
    assert (answer.status, answer.json) == (200, {"message": "The account is active.", "user_id": str(user.id), "is_active": True})
    assert (await api.get("/api/user", token=tokens["access_token"])).status == 401, "ended sessions stay ended"
    assert (await api.login()).status == 200
    await deliver(ports)
    assert sent.emails[-1].subject == "Your account is active again - Gatehouse"


async def test_the_address_that_a_thief_requested_cannot_be_proved_after_the_reactivation(
    platform: Platform, ports: Ports, sent: FakeMailTransport
) -> None:
    api, user = platform.api, await add_account(ports)
    proof, undo_token = await EmailChanger(api, ports, sent).request((await api.login()).json["access_token"], "eve@example.com")
    for action in ("deactivate", "reactivate"):
        assert (await change(platform, action, user.id)).status == 200
    assert (await open_proof(api, proof)).status == 400
    assert (await undo(api, undo_token)).status == 200, "the user can still remove what the thief set since the request"


async def test_organizations_get_the_event_and_only_the_platform_log_the_reason(platform: Platform, ports: Ports, pool: Pool) -> None:
    user = await add_account(ports)
    confirmed, unconfirmed = await add_organization(pool, "acme"), await add_organization(pool, "twin")
    await add_member(pool, confirmed, user.id, "owner", confirmed=True)
    await add_member(pool, unconfirmed, user.id)
    expected: list[tuple[Any, ...]] = []
    for action in ("deactivate", "reactivate"):
        for _ in range(2):  # the second time nothing changes
            assert (await change(platform, action, user.id)).status == 200
        details = {"whole_account": True, "by_platform": True}
        common = str(user.id), platform.account.id
        expected += [(f"user.{action}d", confirmed, *common, details), (f"user.{action}d", None, *common, REASON)]
    entries = [entry for entry in await run_sql(pool, ENTRIES) if entry[0] != "user.login.success"]
    assert sorted(entries, key=repr) == sorted(expected, key=repr)
    names = await run_sql(pool, "select name, org_id from events where org_id is not null order by name")
    assert names == [("user.deactivated", confirmed), ("user.reactivated", confirmed)]
    assert await run_sql(pool, "select role from memberships where org_id = %s", confirmed) == [("owner",)]


async def test_who_cannot_be_deactivated(platform: Platform, ports: Ports, pool: Pool) -> None:
    user, gone = await add_account(ports), await add_account(ports, "gone@example.com", anonymized_at=ports.clock.now())
    owner = await add_platform_owner(ports, "owner@platform.example")
    for target, body, refusal in (
        (platform.account.id, REASON, BAD),
        (owner.id, REASON, BAD),
        (gone.id, REASON, BAD),
        (UNKNOWN_ID, {}, MISSING),
        (user.id, {}, BAD),
        (user.id, {"reason": " "}, BAD),
    ):
        for action in ("deactivate", "reactivate"):
            if action == "reactivate" and target in (platform.account.id, owner.id):
                continue
            assert refused(await change(platform, action, target, body)) == refusal, (action, target)
    assert await run_sql(pool, "select 1 from users where deactivated_at is not null") == []
    assert (await run_sql(pool, "select 1 from audit_log"), await run_sql(pool, "select 1 from mails")) == ([], [])


async def test_no_directory_brings_back_a_user_that_the_platform_deactivated(acme: Tenant, platform: Platform) -> None:
    directory = await directory_of(acme)
    user_id = (await directory.create_user())["id"]
    assert (await change(platform, "deactivate", user_id)).status == 200

    async def state() -> tuple[Any, ...]:
        [row] = await run_sql(
            acme.pool,
            "select email, deactivated_at is not null, platform_deactivated_at is not null from users where id = %s",
            UUID(user_id),
        )
        return row

    assert (await directory.get(f"/Users/{user_id}"))["active"] is False
    for answer in (
        await directory.activate(user_id),
        await directory.deactivate(user_id),
        await directory.activate(user_id),
        await directory.put(user_id, userName="other@acme.example", active=True),
        await directory.put(user_id, userName=GRACE, active=True),
    ):
        assert (answer.status, answer.json["active"]) == (200, False), answer.text
        assert await state() == (GRACE, True, True)
    assert (await directory.delete(user_id)).status == 204
    assert await state() == (GRACE, True, True), "the account is detached, and not deleted"
    created = await directory.try_create_user()
    assert (created.status, created.json["id"], created.json["active"]) == (201, user_id, False)
    # The mailbox owner could free an account that only a directory deactivated, but not this
    # account.
    async with acme.ports.storage.transaction(by=SYSTEM) as tx:
        assert not await tx.accounts.can_be_freed(UUID(user_id))
    assert (await change(platform, "reactivate", user_id)).json["is_active"] is True
    assert (await directory.get(f"/Users/{user_id}"))["active"] is True


async def test_the_platform_does_not_reactivate_what_a_directory_deactivated(
    acme: Tenant, platform: Platform, sent: FakeMailTransport
) -> None:
    directory = await directory_of(acme)
    for first, second in (("platform", "directory"), ("directory", "platform")):
        user_id = (await directory.create_user(f"{first}@acme.example"))["id"]
        for side in (first, second):
            closing = change(platform, "deactivate", user_id) if side == "platform" else directory.deactivate(user_id)
            assert (await closing).status == 200
        answer = await change(platform, "reactivate", user_id)
        assert (answer.status, answer.json["is_active"]) == (200, False)
        assert answer.json["message"] == "The account is still deactivated by an organization's directory."
        assert (await directory.activate(user_id)).json["active"] is True
    await deliver(acme.ports)
    assert not [message for message in sent.emails if "active again" in message.subject]
    assert problem(await directory.try_create_user("directory@acme.example"))[0] == 409


@pytest.mark.slow
async def test_of_20_deactivations_one_counts_and_no_sign_in_survives(
    platform: Platform, ports: Ports, pool: Pool, sent: FakeMailTransport
) -> None:
    user = await add_account(ports)

    async def act(number: int) -> Answer:
        return await (platform.api.login() if number % 2 else change(platform, "deactivate", user.id))

    answers = await run_concurrently(20, act)
    assert {answer.status for answer in answers} <= {200, 401}
    assert await run_sql(pool, "select 1 from sessions where user_id = %s and ended_at is null", user.id) == []
    [(total,)] = await run_sql(pool, "select count(*) from mails where kind = 'account_deactivated'")
    [(entries,)] = await run_sql(pool, "select count(*) from audit_log where action = 'user.deactivated' and details ? 'reason'")
    assert (total, entries) == (1, 1)
