"""Inviting many addresses in a single call (security Z-5)."""

from dataclasses import replace
from typing import Any

from quart_trio import QuartTrio

from ports import Ports
from tests.support.builders import Answer, add_account, run_concurrently
from tests.support.direct import change_ports
from tests.support.tenants import Tenant


async def invite_many(acme: Tenant, *emails: str, role: str = "member", by: str = "admin") -> Answer:
    body: dict[str, Any] = {"invitations": [{"email": email, "role": role} for email in emails]}
    return await acme.api.post(f"{acme.invitations}/bulk", body, token=acme.token(by))


async def test_each_address_has_a_result_and_only_the_invitable_ones_are_invited(acme: Tenant) -> None:
    pending = await acme.invite("pending@example.com")
    member = await add_account(acme.ports, "known@example.com")
    await acme.join("known", member)
    before = await acme.actions()
    answer = await invite_many(acme, " New@Example.com", "known@example.com", "pending@example.com", "other@example.com", "new@example.com")
    assert answer.status == 200
    assert [(item["email"], item["invitation"] is not None, item["error"]) for item in answer.json["results"]] == [
        ("new@example.com", True, None),
        ("known@example.com", False, "This user is already a member of the organization."),
        ("pending@example.com", False, "There is already a pending invitation for this address. Send that one again, or cancel it."),
        ("other@example.com", True, None),
        ("new@example.com", False, "There is already a pending invitation for this address. Send that one again, or cancel it."),
    ]
    assert answer.json["invited"] == 2
    assert await acme.statuses() == dict.fromkeys(("pending@example.com", "new@example.com", "other@example.com"), "pending")
    assert (await acme.actions()) - before == {"user.invited": 2}
    assert pending["token"] not in answer.text


async def test_a_role_that_the_caller_cannot_give_or_an_invalid_address_refuses_the_whole_call(acme: Tenant) -> None:
    for emails, role, by, status in (
        (["a@example.com"], "admin", "admin", 403),
        (["a@example.com"], "owner", "owner", 400),
        (["a@example.com", "not an address"], "member", "owner", 400),
        ([], "member", "owner", 400),
        ([f"a{number}@example.com" for number in range(101)], "member", "owner", 400),
    ):
        answer = await invite_many(acme, *emails, role=role, by=by)
        assert (answer.status, await acme.statuses()) == (status, {})


async def test_the_daily_limit_counts_the_invitations_that_would_be_sent(app: QuartTrio, acme: Tenant, ports: Ports) -> None:
    change_ports(app, policy=replace(ports.policy, invitations_per_day=3))
    assert (await invite_many(acme, "a@example.com", "b@example.com")).status == 200
    refused = await invite_many(acme, "c@example.com", "d@example.com")
    assert (refused.status, refused.headers["Retry-After"]) == (429, "86400")
    assert set(await acme.statuses()) == {"a@example.com", "b@example.com"}
    again = await invite_many(acme, "a@example.com", "b@example.com", "c@example.com")
    assert (again.status, again.json["invited"]) == (200, 1)


async def test_concurrent_calls_invite_each_address_once(acme: Tenant) -> None:
    emails = [f"a{number}@example.com" for number in range(5)]
    answers = await run_concurrently(4, lambda _: invite_many(acme, *emails))
    assert sum(answer.json["invited"] for answer in answers) == len(emails)
    assert set(await acme.statuses()) == set(emails)
