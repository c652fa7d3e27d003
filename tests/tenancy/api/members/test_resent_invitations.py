"""Sending an invitation again (decision 273)."""

from collections import Counter
from dataclasses import replace

from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from ports import Ports
from tests.support.builders import EMAIL, Answer, Api, add_account, run_concurrently, run_sql
from tests.support.direct import change_ports
from tests.support.refusals import BAD, FORBIDDEN, MISSING, refused
from tests.support.tenants import Tenant


async def resend(acme: Tenant, invitation_id: str, by: str = "admin") -> Answer:
    return await acme.api.post(f"{acme.invitations}/{invitation_id}/resend", token=acme.token(by))


async def test_a_pending_invitation_is_replaced_and_its_token_stops_working(acme: Tenant, api: Api) -> None:
    old = await acme.invite()
    answer = await resend(acme, old["invitation"]["id"])
    new = answer.json["invitation"]
    assert (answer.status, new["email"], new["role"], new["status"]) == (200, EMAIL, "member", "pending")
    assert (await api.post("/api/invitations/accept", {"token": old["token"]})).status == 400
    assert await acme.actions() == Counter({"user.invited": 2, "invitation.revoked": 1})
    assert refused(await resend(acme, old["invitation"]["id"])) == MISSING


async def test_an_expired_invitation_is_sent_again_and_stays_expired(acme: Tenant, pool: Pool) -> None:
    old = await acme.invite()
    await run_sql(pool, "update invitations set expires_at = created_at")
    assert (await resend(acme, old["invitation"]["id"])).status == 200
    assert await run_sql(pool, "select status from invitations order by created_at") == [("expired",), ("pending",)]


async def test_the_conditions_are_those_of_an_invitation(app: QuartTrio, acme: Tenant, ports: Ports) -> None:
    of_admin = await acme.invite("other@example.com", role="admin")
    assert refused(await resend(acme, of_admin["invitation"]["id"])) == FORBIDDEN
    assert refused(await resend(acme, of_admin["invitation"]["id"], by="member")) == FORBIDDEN
    old = await acme.invite()
    await acme.join("invitee", await add_account(ports, EMAIL, None))
    assert refused(await resend(acme, old["invitation"]["id"])) == BAD
    change_ports(app, policy=replace(ports.policy, invitations_per_day=2))
    assert (await resend(acme, of_admin["invitation"]["id"], by="owner")).status == 429
    assert await acme.statuses() == {"other@example.com": "pending", EMAIL: "pending"}  # a refusal cancels nothing


async def test_of_twenty_concurrent_calls_one_sends_the_invitation(acme: Tenant) -> None:
    old = await acme.invite()
    answers = await run_concurrently(20, lambda _: resend(acme, old["invitation"]["id"]))
    assert Counter(answer.status for answer in answers) == {200: 1, 404: 19}
