"""Password resets that an admin sends to a member (security R-8)."""

from typing import Any

import pytest

from tests.fakes.outside import FakeMailTransport
from tests.support.builders import NEW_PASSWORD, add_account, add_member, deliver, link, run_sql
from tests.support.refusals import BAD, MISSING, refused
from tests.support.tenants import Tenant

MAILS = "select kind, address, org_id from mails"
ENTRIES = "select action, org_id, actor_id, target_id, details from audit_log"


def path_to(acme: Tenant, user_id: object) -> str:
    return f"{acme.path}/members/{user_id}/password-reset"


async def test_a_member_sets_a_new_password_with_the_link_that_an_admin_sends(acme: Tenant, sent: FakeMailTransport) -> None:
    answer = await acme.api.post(path_to(acme, acme.id("member")), {}, token=acme.token("admin"))
    assert (answer.status, answer.json) == (200, {"message": "The email with the link is on its way."})
    expected: tuple[Any, ...] = ("security.password.reset_sent", acme.org, acme.people["admin"].id, acme.id("member"), {})
    assert await run_sql(acme.pool, ENTRIES) == [expected]
    await deliver(acme.ports)
    [message] = sent.emails
    assert (message.to, message.subject) == ("member@acme.example", "Set a new password - Acme")
    assert "An administrator of your organization has sent you a link" in message.text
    assert (await acme.api.get("/api/user", token=acme.token("member"))).status == 200, "nothing ends before the link is used"
    body = {"token": link(message), "new_password": NEW_PASSWORD}
    assert (await acme.api.post("/api/auth/reset-password", body)).status == 200
    assert (await acme.api.post("/api/auth/reset-password", body)).status == 400
    assert (await acme.api.get("/api/user", token=acme.token("member"))).status == 401


async def test_resets_by_admins_do_not_use_up_the_emails_of_the_user(acme: Tenant, sent: FakeMailTransport) -> None:
    for _ in range(7):
        assert (await acme.api.post(path_to(acme, acme.id("member")), {}, token=acme.token("admin"))).status == 200
        await deliver(acme.ports)
    assert len(sent.emails) == 5
    await acme.api.post("/api/auth/forgot-password", {"email": "member@acme.example"})
    await deliver(acme.ports)
    assert [message.subject for message in sent.emails[5:]] == ["Set a new password - Gatehouse"]


@pytest.mark.parametrize(
    ("target", "statement", "refusal"),
    [
        ("owner", "", BAD),
        ("member", "update memberships set confirmed_at = null where user_id = %s", BAD),
        ("member", "update users set email_verified_at = null where id = %s", BAD),
        ("member", "update users set deactivated_at = now() where id = %s", BAD),
        ("stranger", "", MISSING),
    ],
)
async def test_other_users_get_no_reset(acme: Tenant, other_tenant: Tenant, target: str, statement: str, refusal: Any) -> None:
    user = other_tenant.people["member"] if target == "stranger" else acme.people[target]
    if statement:
        await run_sql(acme.pool, statement, user.id)
    answer = await acme.api.post(path_to(acme, user.id), {}, token=acme.token("admin"))
    assert refused(answer) == refusal
    assert (await run_sql(acme.pool, MAILS), await run_sql(acme.pool, ENTRIES)) == ([], [])


async def test_an_admin_resets_another_admin(acme: Tenant) -> None:
    deputy = await add_account(acme.ports, "deputy@acme.example")
    await add_member(acme.pool, acme.org, deputy.id, "admin", confirmed=True)
    assert (await acme.api.post(path_to(acme, deputy.id), {}, token=acme.token("admin"))).status == 200
    assert await run_sql(acme.pool, MAILS) == [("member_reset", "deputy@acme.example", acme.org)]
