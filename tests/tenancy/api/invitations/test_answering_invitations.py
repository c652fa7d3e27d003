"""Accepting and declining invitations (decision 191; security A-7, A-9, R-3, R-4)."""

from collections import Counter
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts import accounts
from core.accounts.model.accounts import Account, AccountOrigin
from core.kernel.causes import Anonymous
from core.kernel.roles import MEMBER
from core.kernel.values import Email, new_id
from core.tenancy import invitations
from core.tenancy.model.invitations import InviteeCannotJoin
from ports import Ports
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.support.builders import (
    EMAIL,
    FREE,
    Api,
    add_account,
    add_platform_owner,
    deliver,
    impersonate,
    link,
    run_sql,
    sign_in,
)
from tests.support.refusals import BAD, FORBIDDEN, NOT_ACTIVE, refused
from tests.support.tenants import Tenant, Tenants
from tests.tenancy.invitations import EXPIRED, FULL, WEEK, accept, decline

# Accepting


async def test_accepting_creates_an_unverified_account(acme: Tenant, api: Api, ports: Ports, clock: FakeClock) -> None:
    response = await acme.invite(role="admin")
    answer = await accept(api, response["token"])
    assert (answer.status, answer.json) == (200, {})
    async with ports.storage.reading() as read:
        created = await read.accounts.by_email(Email(EMAIL))
    assert created is not None
    assert created == Account(
        id=created.id,
        email=Email(EMAIL),
        email_verified_at=None,
        password_hash=None,
        is_platform_owner=False,
        origin=AccountOrigin.PLATFORM,
        origin_org_id=None,
        deactivated_at=None,
        anonymized_at=None,
        created_at=clock.now(),
        first_verified_at=None,
    )
    assert (await acme.members())[EMAIL] == ("admin", False)  # the inviter knows this token
    assert await acme.statuses() == {EMAIL: "accepted"}
    assert await acme.actions() == Counter(["user.invited", "invitation.accepted", "user.joined"])
    accepted, joined = await acme.entry("invitation.accepted"), await acme.entry("user.joined")
    assert (accepted["target_type"], accepted["target_id"], accepted["actor_id"]) == ("invitation", response["invitation"]["id"], None)
    assert accepted["details"] == {"invited_email": EMAIL, "role": "admin", "user_id": str(created.id)}
    assert (joined["target_type"], joined["target_id"], joined["actor_id"]) == ("user", str(created.id), None)
    assert joined["details"] == {"role": "admin", "invitation_id": response["invitation"]["id"]}


async def test_a_user_signs_in_to_a_created_account_after_a_password_reset(
    acme: Tenant, api: Api, ports: Ports, sent: FakeMailTransport
) -> None:
    await accept(api, (await acme.invite())["token"])
    assert (await api.login()).status == 401
    await deliver(ports)
    await api.post("/api/auth/forgot-password", {"email": EMAIL})
    await deliver(ports)
    await api.post("/api/auth/reset-password", {"token": link(sent.emails[-1]), "new_password": "correct horse battery staple"})
    token = (await api.login()).json["access_token"]
    assert (await api.get(f"/api/organizations/{acme.slug}/members", token=token)).status == 200


async def test_an_existing_account_is_not_changed_and_its_membership_is_unconfirmed(acme: Tenant, api: Api, ports: Ports) -> None:
    user = await add_account(ports)
    await accept(api, (await acme.invite())["token"])
    assert (await acme.members())[EMAIL] == ("member", False)
    async with ports.storage.reading() as read:
        assert await read.accounts.by_id(user.id) == user


async def test_an_unverified_account_stays_unverified(acme: Tenant, api: Api, ports: Ports) -> None:
    user = await add_account(ports, verified=False)
    await accept(api, (await acme.invite())["token"])
    async with ports.storage.reading() as read:
        assert await read.accounts.by_id(user.id) == user  # its password, too (security A-7)
    assert (await api.login()).status == 401


@pytest.mark.parametrize("by_hash", [False, True])
async def test_accepting_while_signed_in_confirms_the_membership(acme: Tenant, api: Api, ports: Ports, by_hash: bool) -> None:
    user = await add_account(ports, EMAIL, None)
    response = await acme.invite()
    secret = response["invitation"]["token"] if by_hash else response["token"]
    assert (await accept(api, secret, token=(await sign_in(ports, user)).access_token)).status == 200
    assert (await acme.members())[EMAIL] == ("member", True)
    assert [(await acme.entry(action))["actor_id"] for action in ("invitation.accepted", "user.joined")] == [user.id, user.id]


async def test_another_user_session_cannot_accept(acme: Tenant, api: Api, ports: Ports) -> None:
    await add_account(ports, EMAIL, None)
    eve = await sign_in(ports, await add_account(ports, "eve@example.com", None))
    response = await acme.invite()
    for token in (eve.access_token, acme.token("owner")):
        assert refused(await accept(api, response["token"], token=token)) == BAD
    assert EMAIL not in await acme.members()
    assert (await accept(api, response["token"])).status == 200


@pytest.mark.parametrize("answer", [accept, decline])
async def test_an_invalid_access_token_is_refused_even_though_none_is_needed(acme: Tenant, api: Api, answer: Any) -> None:
    response = await acme.invite()
    assert refused(await answer(api, response["token"], token="not.a.token")) == (401, "JWT_ERROR")
    assert await acme.statuses() == {EMAIL: "pending"}


async def test_an_impersonator_cannot_accept(acme: Tenant, api: Api, ports: Ports) -> None:
    steward = await add_platform_owner(ports)
    user = await add_account(ports, EMAIL, None)
    response = await acme.invite()
    for secret in (response["token"], response["invitation"]["token"]):
        assert refused(await accept(api, secret, token=await impersonate(ports, steward, user))) == FORBIDDEN
    on_behalf = f"{acme.invitations}/{response['invitation']['id']}/accept"
    assert refused(await api.post(on_behalf, token=await impersonate(ports, steward, acme.people["owner"]))) == FORBIDDEN
    assert await acme.statuses() == {EMAIL: "pending"}


async def test_unknown_and_malformed_tokens_are_refused(acme: Tenant, api: Api) -> None:
    await acme.invite()
    tokens: list[Any] = ["x", "", "0" * 64, "0" * 63, " ", "ß", str(UUID(int=0)), None, 5, ["x"], "a\x00b", "x" * 3000]
    for path in ("accept", "decline"):
        for body in ({}, *({"token": token} for token in tokens)):
            assert refused(await api.post(f"/api/invitations/{path}", body)) == BAD, (path, body)
    assert await acme.statuses() == {EMAIL: "pending"}


@pytest.mark.parametrize("answer", [accept, decline])
async def test_an_answered_invitation_gives_the_same_error_as_an_unknown_one(acme: Tenant, api: Api, answer: Any) -> None:
    unknown = await answer(api, str(uuid4()))
    responses = [await acme.invite(f"{number}@example.com") for number in range(3)]
    await accept(api, responses[0]["token"])
    await decline(api, responses[1]["token"])
    await api.post(f"{acme.invitations}/{responses[2]['invitation']['id']}", token=acme.token("owner"))
    before = await acme.statuses()
    for response in responses:
        second_answer = await answer(api, response["token"])
        assert refused(second_answer) == BAD
        assert second_answer.json["error"] == unknown.json["error"]
    assert await acme.statuses() == before


@pytest.mark.parametrize("removal", ["demoted", "removed"])
async def test_an_invitation_is_revoked_when_its_inviter_is_demoted_or_removed(
    acme: Tenant, api: Api, ports: Ports, sent: FakeMailTransport, removal: str
) -> None:
    response = await acme.invite(by="admin")
    path = f"/api/organizations/{acme.slug}/members/{acme.people['admin'].id}"
    if removal == "demoted":
        assert (await api.patch(path, {"role": "member"}, token=acme.token("owner"))).status == 200
    else:
        assert (await api.post(path, token=acme.token("owner"))).status == 200
    await deliver(ports)
    assert sent.emails == []
    assert refused(await accept(api, response["token"])) == BAD
    assert await acme.statuses() == {EMAIL: "cancelled"}
    assert (await acme.entry("invitation.revoked"))["target_id"] == response["invitation"]["id"]


async def test_tokens_of_other_kinds_do_not_answer_invitations_and_vice_versa(
    acme: Tenant, api: Api, ports: Ports, sent: FakeMailTransport
) -> None:
    await accounts.register(ports, Anonymous(), Email("grace@example.com"), "correct horse battery staple")
    await accounts.forgot_password(ports, Anonymous(), Email("grace@example.com"))
    await deliver(ports)
    for letter in sent.emails:
        for answer in (accept, decline):
            assert refused(await answer(api, link(letter))) == BAD
    response = await acme.invite("grace@example.com")
    for token in (response["token"], response["invitation"]["token"]):
        assert (await api.post("/api/auth/reset-password", {"token": token, "new_password": "another good password"})).status == 400
        assert (await api.get(f"/auth/verify-email?token={token}")).status == 400
    assert await acme.statuses() == {"grace@example.com": "pending"}


async def test_an_expired_invitation_is_refused_and_marked_once(acme: Tenant, api: Api, clock: FakeClock) -> None:
    response = await acme.invite()
    clock.advance(WEEK)
    for _ in range(2):
        assert refused(await accept(api, response["token"])) == EXPIRED
    assert await acme.statuses() == {EMAIL: "expired"}
    assert await acme.actions() == Counter(["user.invited", "invitation.expired"])
    assert (await acme.entry("invitation.expired"))["details"] == {"invited_email": EMAIL, "role": "member"}
    assert EMAIL not in await acme.members()
    assert refused(await decline(api, response["token"])) == EXPIRED


async def test_an_invitation_is_valid_until_the_last_microsecond(acme: Tenant, api: Api, clock: FakeClock) -> None:
    response = await acme.invite()
    clock.advance(WEEK - timedelta(microseconds=1))
    assert (await accept(api, response["token"])).status == 200


@pytest.mark.parametrize("status", ["suspended", "pending", "rejected"])
async def test_an_invitation_of_an_inactive_organization_can_only_be_declined(acme: Tenant, api: Api, ports: Ports, status: str) -> None:
    response = await acme.invite()
    await acme.set_status(status)
    user = await sign_in(ports, await add_account(ports, EMAIL, None))
    for options in ({}, {"token": user.access_token}):
        assert refused(await accept(api, response["token"], **options)) == NOT_ACTIVE
    assert await acme.statuses() == {EMAIL: "pending"}
    assert (await decline(api, response["token"])).status == 200
    assert await acme.statuses() == {EMAIL: "rejected"}


@pytest.mark.usefixtures("tiers_put_back")
@pytest.mark.parametrize("source", ["organization", "tier", "default"])
async def test_the_member_limit_holds(acme: Tenant, api: Api, pool: Pool, source: str) -> None:
    seats = 5 if source == "default" else 4  # three places are taken
    match source:
        case "organization":
            await acme.set_member_limit(seats)
        case "tier":
            await run_sql(pool, "update tiers set default_max_users = %s where id = %s", seats, FREE.id)
        case "default":
            await run_sql(pool, "update organizations set tier_id = null where id = %s", acme.org)
    responses = [await acme.invite(f"{number}@example.com") for number in range(4)]  # without a limit check
    answers = [await accept(api, response["token"]) for response in responses]
    free = seats - 3
    assert [answer.status for answer in answers] == [200] * free + [400] * (4 - free)
    assert refused(answers[-1]) == FULL
    assert len(await acme.members()) == seats
    assert await run_sql(pool, "select count(*) from users where email = '3@example.com'") == [(0,)]


async def test_an_invitation_stays_pending_if_the_organization_is_full(acme: Tenant, api: Api) -> None:
    await acme.set_member_limit(3)
    response = await acme.invite()
    assert refused(await accept(api, response["token"])) == FULL
    assert await acme.actions() == Counter(["user.invited"])
    await acme.set_member_limit(4)
    assert (await accept(api, response["token"])).status == 200


@pytest.mark.parametrize("signed_in", [False, True])
async def test_a_user_who_is_already_a_member_cannot_accept(acme: Tenant, api: Api, ports: Ports, signed_in: bool) -> None:
    user = await add_account(ports, EMAIL, None)
    response = await acme.invite(role="admin")
    await acme.join("ada", user, MEMBER)
    options = {"token": acme.token("ada")} if signed_in else {}
    assert refused(await accept(api, response["token"], **options)) == BAD
    assert (await acme.members())[EMAIL] == ("member", True)


async def test_a_deactivated_account_cannot_join(acme: Tenant, api: Api, ports: Ports, clock: FakeClock) -> None:
    await add_account(ports, EMAIL, None, deactivated_at=clock.now())
    response = await acme.invite()
    assert refused(await accept(api, response["token"])) == BAD
    assert refused(await api.post(f"{acme.invitations}/{response['invitation']['id']}/accept", token=acme.token("owner"))) == BAD
    assert EMAIL not in await acme.members()
    assert await acme.statuses() == {EMAIL: "pending"}


async def test_an_account_with_an_unproven_new_address_cannot_join(acme: Tenant, api: Api, ports: Ports, pool: Pool) -> None:
    """Otherwise the address's real owner could let a squatter in by accepting (security A-9)."""
    squatter = await sign_in(ports, await add_account(ports, "eve@example.com", None))
    response = await acme.invite()
    await run_sql(pool, "update users set email = %s, email_verified_at = null where email = 'eve@example.com'", EMAIL)
    for options in ({}, {"token": squatter.access_token}):
        assert refused(await accept(api, response["token"], **options)) == BAD
    assert refused(await api.post(f"{acme.invitations}/{response['invitation']['id']}/accept", token=acme.token("owner"))) == BAD
    assert await acme.statuses() == {EMAIL: "pending"}
    await run_sql(pool, "update users set email_verified_at = now() where email = %s", EMAIL)
    assert (await accept(api, response["token"])).status == 200


async def test_the_error_does_not_reveal_why_an_account_cannot_join(acme: Tenant, api: Api, ports: Ports, pool: Pool) -> None:
    user = await add_account(ports, EMAIL, None)
    response = await acme.invite()
    errors = []
    for change in (
        "email_verified_at = null",
        "email_verified_at = now(), deactivated_at = now()",
        "deactivated_at = null, anonymized_at = now()",
    ):
        await run_sql(pool, f"update users set {change} where id = %s", user.id)  # noqa: S608
        answer = await accept(api, response["token"])
        errors.append((*refused(answer), answer.json["error"]))
    assert errors == [(*BAD, InviteeCannotJoin.__doc__)] * 3


async def test_role_address_and_organization_come_from_the_invitation_only(acme: Tenant, tenants: Tenants, api: Api) -> None:
    other = await tenants.add("acme-two")
    response = await acme.invite()
    body = {"token": response["token"], "role": "owner", "email": "eve@example.com", "org_id": str(other.org), "org_slug": other.slug}
    assert (await api.post(f"/api/invitations/accept?role=admin&org_slug={other.slug}", body)).status == 200
    assert (await acme.members())[EMAIL] == ("member", False)
    assert EMAIL not in await other.members()
    assert "eve@example.com" not in await acme.members()


# Declining


async def test_a_declined_invitation_creates_no_account_and_no_membership(acme: Tenant, api: Api, pool: Pool) -> None:
    response = await acme.invite(role="admin")
    answer = await decline(api, response["token"])
    assert (answer.status, answer.json) == (200, {})
    assert await acme.statuses() == {EMAIL: "rejected"}
    assert await acme.actions() == Counter(["user.invited", "invitation.declined"])
    entry = await acme.entry("invitation.declined")
    assert (entry["target_type"], entry["target_id"], entry["actor_id"]) == ("invitation", response["invitation"]["id"], None)
    assert entry["details"] == {"invited_email": EMAIL, "role": "admin"}
    assert EMAIL not in await acme.members()
    assert await run_sql(pool, "select count(*) from users where email = %s", EMAIL) == [(0,)]


async def test_an_invitation_past_its_expiry_can_be_declined_until_it_is_marked(
    acme: Tenant, api: Api, ports: Ports, clock: FakeClock
) -> None:
    unmarked, marked = await acme.invite("1@example.com"), await acme.invite("2@example.com")
    clock.advance(WEEK)
    assert (await decline(api, unmarked["token"])).status == 200
    assert await invitations.sweep(ports, new_id()) == {"invitations": 1}
    assert refused(await decline(api, marked["token"])) == EXPIRED
    assert await acme.statuses() == {"1@example.com": "rejected", "2@example.com": "expired"}
    assert await acme.actions() == Counter(["user.invited"] * 2 + ["invitation.declined", "invitation.expired"])


async def test_any_user_with_the_token_can_decline(acme: Tenant, api: Api, ports: Ports) -> None:
    eve = await add_account(ports, "eve@example.com", None)
    response = await acme.invite()
    assert (await decline(api, response["token"], token=(await sign_in(ports, eve)).access_token)).status == 200
    assert (await acme.entry("invitation.declined"))["actor_id"] == eve.id
