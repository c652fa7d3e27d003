"""Concurrent decisions about the same organization (security Z-5, Z-6)."""

from collections.abc import Sequence

import pytest

from adapters.postgres.engine.pool import Pool
from ports import Ports
from tests.support.builders import (
    FREE_ID,
    PROFESSIONAL_ID,
    add_account,
    add_member,
    add_organization,
    run_concurrently,
    run_during,
    run_sql,
    sign_in,
)
from tests.support.platform import ACTIONS, AFTERWARDS, BODIES, NOWHERE, Platform, log_of


@pytest.mark.slow
async def test_one_of_twenty_concurrent_decisions_wins(platform: Platform, pool: Pool) -> None:
    org = await add_organization(pool, "acme", "pending")
    answers = await run_concurrently(20, lambda number: platform.do(("approve", "reject")[number % 2], org, {"reason": f"reason {number}"}))
    assert sorted(answer.status for answer in answers) == [200] + [400] * 19
    [winner] = [answer.json["organization"] for answer in answers if answer.status == 200]
    assert {answer.json["error"].partition(".")[0] for answer in answers if answer.status == 400} == {
        f"The organization is {winner['status']}"
    }
    [(action, _)] = await log_of(pool, org)
    assert action == {"active": "organization.approved", "rejected": "organization.rejected"}[winner["status"]]
    assert (await platform.listed())["organizations"][0]["organization"] == winner


@pytest.mark.slow
async def test_one_of_twenty_concurrent_deletions_wins(platform: Platform, pool: Pool) -> None:
    org = await add_organization(pool, "acme")
    answers = await run_concurrently(20, lambda _: platform.do("delete", org))
    assert sorted(answer.status for answer in answers) == [204] + [404] * 19
    assert await run_sql(pool, "select count(*) from audit_log where action = 'organization.deleted'") == [(1,)]


Change = tuple[str, str, str]  # an action, and the status and the tier in its response


def possible_ends(changes: Sequence[Change]) -> set[tuple[str, str]]:
    """Return the final statuses and tiers for all allowed orders of these changes.

    The organization is pending and has no tier at first.
    """
    states = {("pending", "", tuple(sorted(changes)))}
    for _ in changes:
        next_states = set()
        for old_status, old_tier, remaining in states:
            for change in set(remaining):
                action, status, tier = change
                expected_tier = {"approve": old_tier or FREE_ID, "tier": PROFESSIONAL_ID}.get(action, old_tier)
                if status == AFTERWARDS.get((action, old_status)) and tier == expected_tier:
                    index = remaining.index(change)
                    next_states.add((status, tier, remaining[:index] + remaining[index + 1 :]))
        states = next_states
    return {(status, tier) for status, tier, _ in states}


@pytest.mark.slow
async def test_concurrent_actions_are_serializable(platform: Platform, pool: Pool) -> None:
    org = await add_organization(pool, "acme", "pending")
    await run_sql(pool, "update organizations set tier_id = null")
    changes: list[Change] = []

    async def act(number: int) -> int:
        action = actions[number % len(actions)]
        answer = await platform.do(action, org, BODIES.get(action))
        if answer.status == 200:
            organization = answer.json["organization"]
            changes.append((action, organization["status"], organization["tier_id"] or ""))
        return answer.status

    actions = [action for action in ACTIONS if action != "delete"]
    assert set(await run_concurrently(4 * len(actions), act)) <= {200, 400}
    [end] = await run_sql(pool, "select status, coalesce(tier_id::text, '') from organizations")
    assert end in possible_ends(changes)
    audit_actions = {"approve": "approved", "reject": "rejected", "suspend": "suspended", "activate": "activated", "tier": "tier.updated"}
    assert sorted(action for action, _ in await log_of(pool, org)) == sorted(
        f"organization.{audit_actions[action]}" for action, *_ in changes
    )


DEMOTION = "update users set is_platform_owner = false where id = %s"


@pytest.mark.parametrize(
    ("action", "status"),
    [
        ("approve", "pending"),
        ("reject", "pending"),
        ("suspend", "active"),
        ("activate", "suspended"),
        ("tier", "active"),
        ("delete", "active"),
    ],
)
async def test_an_action_that_waited_for_the_demotion_of_its_caller_is_refused(
    platform: Platform, pool: Pool, action: str, status: str
) -> None:
    org = await add_organization(pool, "acme", status)
    before = await run_sql(pool, "select * from organizations")
    answer = await run_during(pool, [(DEMOTION, (platform.account.id,))], lambda: platform.do(action, org, BODIES.get(action)))
    assert (answer.status, answer.code) == (403, "FORBIDDEN")
    assert await run_sql(pool, "select * from organizations") == before
    assert await run_sql(pool, "select action from audit_log") == []


async def test_the_demotion_is_checked_before_the_tier_and_the_status(platform: Platform, pool: Pool) -> None:
    org = await add_organization(pool, "acme", "rejected")
    answer = await run_during(pool, [(DEMOTION, (platform.account.id,))], lambda: platform.do("tier", org, {"tier_id": str(NOWHERE)}))
    assert (answer.status, answer.code) == (403, "FORBIDDEN")


async def test_a_change_by_a_member_that_waited_for_a_suspension_is_refused(platform: Platform, ports: Ports, pool: Pool) -> None:
    user = await add_account(ports, "ada@example.com", None)
    org = await add_organization(pool, "acme")
    await add_member(pool, org, user.id, "owner")
    token = (await sign_in(ports, user)).access_token
    suspension = ("update organizations set status = 'suspended' where id = %s", (org,))
    answer = await run_during(pool, [suspension], lambda: platform.api.patch("/api/organizations/acme", {"name": "Other"}, token=token))
    assert (answer.status, answer.code) == (403, "ORGANIZATION_NOT_ACTIVE")
    assert await run_sql(pool, "select name from organizations") == [("Acme",)]
