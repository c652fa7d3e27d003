"""Sending, listing and canceling invitations (decision 198; security E-5, L-3, R-3, Z-5)."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.kernel.access import RoleInsufficient
from core.kernel.callers import Member, OrganizationContext, OrganizationStatus
from core.kernel.causes import SYSTEM
from core.kernel.roles import ADMIN, MEMBER, rights_of
from core.kernel.values import Email
from core.tenancy import invitations, inviting
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.support.builders import EMAIL, Api, add_account, add_platform_owner, impersonate, run_concurrently, run_sql, sign_in
from tests.support.direct import change_ports
from tests.support.refusals import BAD, FORBIDDEN, MISSING, NOT_ACTIVE, refused
from tests.support.tenants import Tenant, Tenants
from tests.tenancy.invitations import EXPIRED, WEEK, accept, decline, sha256

# Inviting


async def test_the_response_to_an_invitation_has_its_token(acme: Tenant) -> None:
    answer = await acme.try_invite("  Ada@Example.COM ", "admin")
    assert answer.status == 200
    assert answer.headers["Cache-Control"] == "no-store"
    body, owner = answer.json, acme.people["owner"]
    assert UUID(body["token"]).version == 4
    assert str(UUID(body["token"])) == body["token"]
    assert body == {
        "invitation": {
            "id": body["invitation"]["id"],
            "org_id": str(acme.org),
            "email": "ada@example.com",
            "role": "admin",
            "invited_by": str(owner.id),
            "status": "pending",
            "token": sha256(body["token"]),
            "expires_at": "2026-03-21T15:09:26.535897Z",
            "created_at": "2026-03-14T15:09:26.535897Z",
        },
        "inviter": {"id": str(owner.id), "email": owner.email, "created_at": "2026-03-14T15:09:26.535897Z"},
        "token": body["token"],
    }


async def test_the_audit_log_and_webhooks_have_the_invitation_without_its_token(acme: Tenant, pool: Pool) -> None:
    response = await acme.invite(role="admin")
    details = {"invited_email": EMAIL, "role": "admin"}
    [entry] = await acme.log()
    assert entry == {
        "action": "user.invited",
        "target_type": "invitation",
        "target_id": response["invitation"]["id"],
        "actor_id": acme.people["owner"].id,
        "impersonator_id": None,
        "address": entry["address"],
        "details": details,
    }
    assert entry["address"] is not None
    assert await acme.webhook_events() == [("user.invited", response["invitation"]["id"], details)]
    [(event_data,)] = await run_sql(
        pool,
        "select string_agg(row::text, ' ') from (select i::text from invitations i union all select m::text from mails m"
        " union all select a::text from audit_log a union all select e::text from events e) as row",
    )
    assert response["token"] not in event_data


async def test_inviting_does_not_reveal_whether_an_address_has_an_account(acme: Tenant, ports: Ports) -> None:
    account = await add_account(ports, "known@example.com", None)
    answers = [await acme.invite(email) for email in ("known@example.com", "unknown@example.com")]
    assert answers[0].keys() == answers[1].keys()
    assert str(account.id) not in str(answers) + str(await acme.log()) + str(await acme.webhook_events())


async def test_each_role_may_invite_to_certain_roles(acme: Tenant) -> None:
    invited = {}
    for number, (by, role, expected) in enumerate(
        [
            ("owner", "member", (200, None)),
            ("owner", "admin", (200, None)),
            ("owner", "owner", BAD),
            ("owner", "billing-manager", BAD),
            ("owner", "Member", BAD),
            ("owner", "", BAD),
            ("admin", "member", (200, None)),
            ("admin", "admin", FORBIDDEN),
            ("admin", "owner", BAD),
            ("admin", "billing-manager", BAD),
            ("member", "member", FORBIDDEN),
            ("member", "owner", FORBIDDEN),
        ]
    ):
        email = f"{number}@example.com"
        answer = await acme.try_invite(email, role, by)
        assert (answer.status, answer.json.get("error_code")) == expected, (by, role)
        if answer.status == 200:
            invited[email] = "pending"
    assert await acme.statuses() == invited


async def test_an_admin_demoted_during_the_request_cannot_invite(acme: Tenant, ports: Ports) -> None:
    admin, session = acme.people["admin"], acme.sessions["admin"]
    caller = Member(
        user_id=admin.id,
        email=admin.email,
        session_id=session.session_id,
        acts_in=OrganizationContext(acme.org, acme.slug, OrganizationStatus.ACTIVE, ADMIN, rights_of(ADMIN)),
    )
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.members.set_role(acme.org, admin.id, MEMBER)
    with pytest.raises(RoleInsufficient):
        await inviting.invite(ports, caller, Email(EMAIL), "member")
    with pytest.raises(RoleInsufficient):
        await invitations.cancel(ports, caller, uuid4())
    with pytest.raises(RoleInsufficient):
        await invitations.accept_on_behalf(ports, caller, uuid4())


@pytest.mark.parametrize("status", ["pending", "suspended", "rejected"])
async def test_an_inactive_organization_cannot_invite(tenants: Tenants, status: str) -> None:
    tenant = await tenants.add(status=status)
    assert refused(await tenant.try_invite()) == NOT_ACTIVE
    assert refused(await tenant.list_invitations()) == NOT_ACTIVE
    for path in (f"{tenant.invitations}/{uuid4()}", f"{tenant.invitations}/{uuid4()}/accept"):
        assert refused(await tenant.api.post(path, token=tenant.token("owner"))) == NOT_ACTIVE


async def test_an_invalid_address_cannot_be_invited(acme: Tenant) -> None:
    for email in ("", "ada", "ada@localhost", "a b@example.com", "ada@example.com\r\nBcc: x@example.com", "ada@[127.0.0.1]"):
        assert refused(await acme.try_invite(email)) == BAD, email
    assert await acme.statuses() == {}


async def test_a_member_can_only_be_invited_by_other_organizations(acme: Tenant, tenants: Tenants) -> None:
    answer = await acme.try_invite(" Member@ACME.example")
    assert refused(answer) == BAD
    assert "member" in answer.json["error"]
    other = await tenants.add("acme-two")
    assert (await other.try_invite("member@acme.example")).status == 200


async def test_an_address_has_one_pending_invitation_per_organization(acme: Tenant, tenants: Tenants) -> None:
    await acme.invite()
    for email in (EMAIL, EMAIL.upper(), f" {EMAIL} "):
        assert refused(await acme.try_invite(email)) == BAD
    assert (await (await tenants.add("acme-two")).try_invite()).status == 200
    assert (await acme.list_invitations()).headers["X-Total-Count"] == "1"


async def test_a_new_invitation_replaces_an_expired_one(acme: Tenant, api: Api, clock: FakeClock) -> None:
    first = await acme.invite()
    clock.advance(WEEK - timedelta(microseconds=1))
    await acme.sign_in("owner")
    assert refused(await acme.try_invite()) == BAD
    clock.advance(timedelta(microseconds=1))
    second = await acme.invite()
    assert [item["invitation"]["status"] for item in (await acme.list_invitations()).json] == ["pending", "expired"]
    assert await acme.actions() == Counter(["user.invited", "invitation.expired", "user.invited"])
    expired = await acme.entry("invitation.expired")
    assert (expired["target_type"], expired["target_id"]) == ("invitation", first["invitation"]["id"])
    assert refused(await accept(api, first["token"])) == EXPIRED
    assert (await accept(api, second["token"])).status == 200


@pytest.mark.parametrize("answer", ["cancel", "decline"])
async def test_an_address_can_be_invited_again_after_an_answer(acme: Tenant, api: Api, answer: str) -> None:
    response = await acme.invite()
    if answer == "cancel":
        assert (await api.post(f"{acme.invitations}/{response['invitation']['id']}", token=acme.token("owner"))).status == 200
    else:
        assert (await decline(api, response["token"])).status == 200
    assert (await acme.try_invite()).status == 200


async def test_an_impersonator_invites_no_one(acme: Tenant, ports: Ports, api: Api) -> None:
    steward = await add_platform_owner(ports)
    token = await impersonate(ports, steward, acme.people["owner"], acme.org)
    for role in ("member", "admin", "owner"):
        answer = await api.post(acme.invitations, {"email": f"{role}@example.com", "role": role}, token=token)
        assert answer.status == 403
    assert await acme.log() == []


def limit_to(app: QuartTrio, ports: Ports, invitations_per_day: int) -> None:
    change_ports(app, policy=replace(ports.policy, invitations_per_day=invitations_per_day))


async def test_the_daily_limit_counts_all_invitations_of_an_organization(
    app: QuartTrio, api: Api, ports: Ports, tenants: Tenants, acme: Tenant, clock: FakeClock
) -> None:
    limit_to(app, ports, 3)
    response = await acme.invite("1@example.com")
    assert (await api.post(f"{acme.invitations}/{response['invitation']['id']}", token=acme.token("owner"))).status == 200
    clock.advance(timedelta(minutes=5))
    await acme.invite("2@example.com", by="admin")
    await acme.invite("3@example.com")
    answer = await acme.try_invite("4@example.com", by="admin")
    assert refused(answer) == (429, "RATE_LIMIT_EXCEEDED")
    assert answer.headers["Retry-After"] == str(24 * 3600 - 300)
    # The limit comes before all other errors, and every organization has its own limit.
    assert (await acme.try_invite("3@example.com")).status == 429
    assert (await (await tenants.add("acme-two")).try_invite("4@example.com")).status == 200
    clock.advance(timedelta(seconds=24 * 3600 - 301))
    await acme.sign_in("owner")
    assert (await acme.try_invite("4@example.com")).headers["Retry-After"] == "1"
    clock.advance(timedelta(seconds=1))
    await acme.invite("4@example.com")
    assert (await acme.try_invite("5@example.com")).headers["Retry-After"] == "300"


@pytest.mark.slow
async def test_concurrent_invitations_do_not_exceed_the_daily_limit(app: QuartTrio, ports: Ports, acme: Tenant) -> None:
    limit_to(app, ports, 7)
    answers = await run_concurrently(20, lambda number: acme.try_invite(f"{number}@example.com"))
    assert sorted(answer.status for answer in answers) == [200] * 7 + [429] * 13
    assert len(await acme.statuses()) == 7


@pytest.mark.slow
async def test_one_of_many_concurrent_invitations_to_an_address_wins(acme: Tenant, pool: Pool) -> None:
    answers = await run_concurrently(20, lambda number: acme.try_invite(by=("owner", "admin")[number % 2]))
    assert sorted(answer.status for answer in answers) == [200] + [400] * 19
    assert await run_sql(pool, "select count(*), (select count(*) from mails), (select count(*) from audit_log) from invitations") == [
        (1, 1, 1)
    ]


# Listing


async def test_the_list_has_pages_with_the_newest_first_inviters_and_hashed_tokens(acme: Tenant, clock: FakeClock) -> None:
    responses = []
    for number in range(3):
        clock.advance(timedelta(seconds=1))
        responses.append(await acme.invite(f"{number}@example.com", by="admin" if number == 1 else "owner"))
    answer = await acme.list_invitations()
    assert answer.json == [{name: response[name] for name in ("invitation", "inviter")} for response in reversed(responses)]
    assert answer.headers["X-Total-Count"] == "3"
    assert not any(response["token"] in answer.text for response in responses)
    parts = {"?limit=2": [2, 1], "?limit=2&page=2": [0], "?limit=2&page=3": [], "?page=0&limit=-1": [2], "?limit=100&page=21474837": []}
    for query, numbers in parts.items():
        part = await acme.list_invitations(query)
        assert [one["invitation"]["email"] for one in part.json] == [f"{number}@example.com" for number in numbers]
        assert part.headers["X-Total-Count"] == "3"
    assert (await acme.list_invitations(by="admin")).json == answer.json
    assert refused(await acme.list_invitations(by="member")) == FORBIDDEN


async def test_the_list_can_be_filtered_by_status(acme: Tenant, api: Api, clock: FakeClock) -> None:
    expired = await acme.invite("expired@example.com")
    clock.advance(WEEK)
    await acme.sign_in("owner")
    responses = {status: await acme.invite(f"{status}@example.com") for status in ("pending", "accepted", "rejected", "cancelled")}
    responses["expired"] = expired  # not marked as expired
    await accept(api, responses["accepted"]["token"])
    await decline(api, responses["rejected"]["token"])
    await api.post(f"{acme.invitations}/{responses['cancelled']['invitation']['id']}", token=acme.token("owner"))
    for status, one in responses.items():
        answer = await acme.list_invitations(f"?status={status}")
        assert answer.json == [{"invitation": one["invitation"] | {"status": status}, "inviter": one["inviter"]}]
        assert answer.headers["X-Total-Count"] == "1"
    assert (await acme.list_invitations()).headers["X-Total-Count"] == "5"


async def test_an_invalid_query_is_refused(acme: Tenant) -> None:
    for query in ("?status=open", "?status=", "?status=PENDING", "?page=x", "?limit=1.5"):
        answer = await acme.list_invitations(query)
        assert refused(answer) == BAD, query
        if "status" in query:
            assert all(status in answer.json["error"] for status in ("pending", "accepted", "rejected", "cancelled", "expired"))


async def test_a_deleted_inviter_is_listed_with_a_placeholder(acme: Tenant, pool: Pool) -> None:
    response = await acme.invite(by="admin")
    await run_sql(pool, "delete from memberships where role = 'admin'")
    await run_sql(pool, "delete from users where email = 'admin@acme.example'")
    [invitation] = (await acme.list_invitations()).json
    assert invitation["invitation"]["invited_by"] == response["invitation"]["invited_by"]
    assert invitation["inviter"] == {"id": "unknown", "email": "deleted-user@unknown", "created_at": "1970-01-01T00:00:00Z"}


async def test_another_organization_cannot_reach_an_invitation(acme: Tenant, tenants: Tenants, api: Api) -> None:
    other = await tenants.add("acme-two")
    invitation = (await acme.invite())["invitation"]
    assert (await other.list_invitations()).json == []
    assert (await other.list_invitations()).headers["X-Total-Count"] == "0"
    for path in (f"{other.invitations}/{invitation['id']}", f"{other.invitations}/{invitation['id']}/accept"):
        foreign, unknown = (
            await api.post(path, token=other.token("owner")),
            await api.post(f"{other.invitations}/{uuid4()}", token=other.token("owner")),
        )
        assert refused(foreign) == MISSING
        assert foreign.json["error"] == unknown.json["error"]
    assert await acme.statuses() == {EMAIL: "pending"}
    for call in (acme.invitations, f"{acme.invitations}/{invitation['id']}", f"{acme.invitations}/{invitation['id']}/accept"):
        assert refused(await api.post(call, {"email": "x@example.com", "role": "member"}, token=other.token("owner"))) == FORBIDDEN
    assert await acme.actions() == Counter(["user.invited"])
    assert await other.actions() == Counter()


# Canceling


@pytest.mark.parametrize("by", ["owner", "admin"])
async def test_a_canceled_invitation_cannot_be_answered(acme: Tenant, api: Api, by: str) -> None:
    response = await acme.invite(role="admin")
    path = f"{acme.invitations}/{response['invitation']['id']}"
    answer = await api.post(path, token=acme.token(by))
    assert (answer.status, answer.json) == (200, {})
    assert await acme.statuses() == {EMAIL: "cancelled"}
    assert await acme.actions() == Counter(["user.invited", "invitation.revoked"])
    entry = await acme.entry("invitation.revoked")
    assert (entry["target_type"], entry["target_id"], entry["actor_id"]) == ("invitation", response["invitation"]["id"], acme.people[by].id)
    assert entry["details"] == {"invited_email": EMAIL, "role": "admin"}
    assert refused(await api.post(path, token=acme.token(by))) == MISSING
    assert refused(await api.post(f"{path}/accept", token=acme.token(by))) == MISSING
    assert refused(await accept(api, response["token"])) == refused(await decline(api, response["token"])) == BAD
    assert (await acme.actions()).total() == 2


async def test_a_member_cannot_cancel(acme: Tenant, api: Api) -> None:
    response = await acme.invite()
    assert refused(await api.post(f"{acme.invitations}/{response['invitation']['id']}", token=acme.token("member"))) == FORBIDDEN


async def test_a_malformed_id_answers_404(acme: Tenant, api: Api) -> None:
    for invitation_id in ("x", "1", "{}", "%00", "5E0C3A0C-7C1B-4B7E-9D53-2F5E8B0C7A11"):
        for suffix in ("", "/accept"):
            assert refused(await api.post(f"{acme.invitations}/{invitation_id}{suffix}", token=acme.token("owner"))) == MISSING


@pytest.mark.parametrize("suffix", ["", "/accept"])
async def test_an_invitation_past_its_expiry_is_marked_and_answers_404(
    acme: Tenant, api: Api, ports: Ports, clock: FakeClock, suffix: str
) -> None:
    response = await acme.invite()
    await add_account(ports, EMAIL, None)
    clock.advance(WEEK)
    token = (await sign_in(ports, acme.people["admin"])).access_token
    for _ in range(2):
        assert refused(await api.post(f"{acme.invitations}/{response['invitation']['id']}{suffix}", token=token)) == MISSING
    assert await acme.statuses() == {EMAIL: "expired"}
    assert await acme.actions() == Counter(["user.invited", "invitation.expired"])
