"""Invitations over HTTP: every state, every error, every event, all of it at once (organizations.md sections 2.5, 3, 4.7 and 6; decisions,
points 8, 9, 12, 13, 16, 49 and 188 to 198; security.md A-5, A-7, B-5, E-5, L-3, R-1, R-3, R-4, T-1, Z-1, Z-2 and Z-5)."""

import hashlib
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from quart_trio import QuartTrio

from adapters.postgres.pool import Pool
from core import accounts, invitations
from core.access import SYSTEM, Anonymous, Member, OrganizationContext, OrganizationStatus, Role, RoleInsufficient
from core.accounts import Account, Origin
from core.invitations import InvitedCannotJoin
from core.values import Email, new_id
from ports import Ports
from tests.builders import (
    EMAIL,
    FREE,
    Answer,
    Api,
    SignedIn,
    add_account,
    add_platform_owner,
    deliver,
    everyone,
    impersonate,
    link,
    run_sql,
    sign_in,
)
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.http.direct import change_ports
from tests.tenants import Tenant, Tenants

WEEK = timedelta(days=7)


async def accept(api: Api, secret: str, **options: Any) -> Answer:
    return await api.post("/api/invitations/accept", {"token": secret}, **options)


async def decline(api: Api, secret: str, **options: Any) -> Answer:
    return await api.post("/api/invitations/decline", {"token": secret}, **options)


def sha256(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def refused(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.code


BAD, EXPIRED, FULL = (400, "BAD_REQUEST"), (400, "INVITATION_EXPIRED"), (400, "TEAM_LIMIT_EXCEEDED")
FORBIDDEN, INACTIVE, MISSING = (403, "FORBIDDEN"), (403, "ORGANIZATION_NOT_ACTIVE"), (404, "NOT_FOUND")


# Inviting


async def test_an_invitation_is_answered_with_its_token_in_the_clear(acme: Tenant) -> None:
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


async def test_an_invitation_is_in_the_log_and_told_to_webhooks_without_its_token(acme: Tenant, pool: Pool) -> None:
    made = await acme.invite(role="admin")
    details = {"invited_email": EMAIL, "role": "admin"}
    [entry] = await acme.log()
    assert entry == {
        "action": "user.invited",
        "target_type": "user",
        "target_id": made["invitation"]["id"],
        "actor_id": acme.people["owner"].id,
        "impersonator_id": None,
        "address": entry["address"],
        "details": details,
    }
    assert entry["address"] is not None
    assert await acme.told() == [("user.invited", made["invitation"]["id"], details)]
    [(kept,)] = await run_sql(
        pool,
        "select string_agg(row::text, ' ') from (select i::text from invitations i union all select m::text from mails m"
        " union all select a::text from audit_log a union all select e::text from events e) as row",
    )
    assert made["token"] not in kept


async def test_whether_an_address_has_an_account_shows_nowhere(acme: Tenant, ports: Ports) -> None:
    known = await add_account(ports, "known@example.com", None)
    answers = [await acme.invite(email) for email in ("known@example.com", "nobody@example.com")]
    assert answers[0].keys() == answers[1].keys()
    assert str(known.id) not in str(answers) + str(await acme.log()) + str(await acme.told())


@pytest.mark.parametrize(
    ("by", "role", "expected"),
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
    ],
)
async def test_who_may_invite_to_what(acme: Tenant, by: str, role: str, expected: tuple[int, str | None]) -> None:
    answer = await acme.try_invite(role=role, by=by)
    assert (answer.status, answer.json.get("error_code")) == expected
    assert await acme.statuses() == ({EMAIL: "pending"} if answer.status == 200 else {})


async def test_whoever_was_demoted_meanwhile_invites_nobody(acme: Tenant, ports: Ports) -> None:
    admin, session = acme.people["admin"], acme.sessions["admin"]
    caller = Member(
        user_id=admin.id,
        email=admin.email,
        session_id=session.session_id,
        acts_in=OrganizationContext(acme.org, acme.slug, OrganizationStatus.ACTIVE, Role.ADMIN),
    )
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.members.set_role(acme.org, admin.id, Role.MEMBER)
    with pytest.raises(RoleInsufficient):
        await invitations.invite(ports, caller, Email(EMAIL), "member")
    with pytest.raises(RoleInsufficient):
        await invitations.cancel(ports, caller, uuid4())
    with pytest.raises(RoleInsufficient):
        await invitations.accept_for(ports, caller, uuid4())


@pytest.mark.parametrize("status", ["pending", "suspended", "rejected"])
async def test_an_organization_that_is_not_active_invites_nobody(tenants: Tenants, status: str) -> None:
    tenant = await tenants.add(status=status)
    assert refused(await tenant.try_invite()) == INACTIVE
    assert refused(await tenant.listed()) == INACTIVE
    for path in (f"{tenant.invitations}/{uuid4()}", f"{tenant.invitations}/{uuid4()}/accept"):
        assert refused(await tenant.api.post(path, token=tenant.token("owner"))) == INACTIVE


@pytest.mark.parametrize(
    "email", ["", "ada", "ada@localhost", "a b@example.com", "ada@example.com\r\nBcc: x@example.com", "ada@[127.0.0.1]"]
)
async def test_only_addresses_are_invited(acme: Tenant, email: str) -> None:
    assert refused(await acme.try_invite(email)) == BAD
    assert await acme.statuses() == {}


async def test_a_member_is_not_invited_again_but_elsewhere(acme: Tenant, tenants: Tenants) -> None:
    answer = await acme.try_invite(" Member@ACME.example")
    assert refused(answer) == BAD
    assert "member" in answer.json["error"]
    other = await tenants.add("acme-two")
    assert (await other.try_invite("member@acme.example")).status == 200


async def test_an_address_is_invited_once_at_a_time_by_each_organization(acme: Tenant, tenants: Tenants) -> None:
    await acme.invite()
    for email in (EMAIL, EMAIL.upper(), f" {EMAIL} "):
        assert refused(await acme.try_invite(email)) == BAD
    assert (await (await tenants.add("acme-two")).try_invite()).status == 200
    assert (await acme.listed()).headers["X-Total-Count"] == "1"


async def test_an_expired_invitation_makes_room_and_is_marked(acme: Tenant, api: Api, clock: FakeClock) -> None:
    first = await acme.invite()
    clock.advance(WEEK - timedelta(microseconds=1))
    await acme.sign_in("owner")
    assert refused(await acme.try_invite()) == BAD
    clock.advance(timedelta(microseconds=1))
    second = await acme.invite()
    assert [item["invitation"]["status"] for item in (await acme.listed()).json] == ["pending", "expired"]
    assert await acme.actions() == Counter(["user.invited", "invitation.expired", "user.invited"])
    expired = await acme.entry("invitation.expired")
    assert (expired["target_type"], expired["target_id"]) == ("invitation", first["invitation"]["id"])
    assert refused(await accept(api, first["token"])) == EXPIRED
    assert (await accept(api, second["token"])).status == 200


@pytest.mark.parametrize("answer", ["cancel", "decline"])
async def test_an_answered_invitation_makes_room(acme: Tenant, api: Api, answer: str) -> None:
    made = await acme.invite()
    if answer == "cancel":
        assert (await api.post(f"{acme.invitations}/{made['invitation']['id']}", token=acme.token("owner"))).status == 200
    else:
        assert (await decline(api, made["token"])).status == 200
    assert (await acme.try_invite()).status == 200


async def test_who_impersonates_invites_in_the_name_of_both(acme: Tenant, ports: Ports, api: Api) -> None:
    steward = await add_platform_owner(ports)
    token = await impersonate(ports, steward, acme.people["owner"])
    assert (await api.post(acme.invitations, {"email": EMAIL, "role": "member"}, token=token)).status == 200
    [entry] = await acme.log()
    assert (entry["actor_id"], entry["impersonator_id"]) == (acme.people["owner"].id, steward.id)


def limit_to(app: QuartTrio, ports: Ports, invitations_per_day: int) -> None:
    change_ports(app, policy=replace(ports.policy, invitations_per_day=invitations_per_day))


async def test_an_organization_invites_so_many_a_day_whatever_becomes_of_them(
    app: QuartTrio, api: Api, ports: Ports, tenants: Tenants, acme: Tenant, clock: FakeClock
) -> None:
    limit_to(app, ports, 3)
    made = await acme.invite("1@example.com")
    assert (await api.post(f"{acme.invitations}/{made['invitation']['id']}", token=acme.token("owner"))).status == 200
    clock.advance(timedelta(minutes=5))
    await acme.invite("2@example.com", by="admin")
    await acme.invite("3@example.com")
    answer = await acme.try_invite("4@example.com", by="admin")
    assert refused(answer) == (429, "RATE_LIMIT_EXCEEDED")
    assert answer.headers["Retry-After"] == str(24 * 3600 - 300)
    # What is wrong with it besides does not matter, and other organizations have days of their own.
    assert (await acme.try_invite("3@example.com")).status == 429
    assert (await (await tenants.add("acme-two")).try_invite("4@example.com")).status == 200
    clock.advance(timedelta(seconds=24 * 3600 - 301))
    await acme.sign_in("owner")
    assert (await acme.try_invite("4@example.com")).headers["Retry-After"] == "1"
    clock.advance(timedelta(seconds=1))
    await acme.invite("4@example.com")
    assert (await acme.try_invite("5@example.com")).headers["Retry-After"] == "300"


@pytest.mark.slow
async def test_of_many_invitations_at_once_as_many_are_made_as_a_day_allows(app: QuartTrio, ports: Ports, acme: Tenant) -> None:
    limit_to(app, ports, 7)
    answers = await everyone(20, lambda number: acme.try_invite(f"{number}@example.com"))
    assert sorted(answer.status for answer in answers) == [200] * 7 + [429] * 13
    assert len(await acme.statuses()) == 7


@pytest.mark.slow
async def test_of_many_invitations_for_one_address_at_once_one_is_made(acme: Tenant, pool: Pool) -> None:
    answers = await everyone(20, lambda number: acme.try_invite(by=("owner", "admin")[number % 2]))
    assert sorted(answer.status for answer in answers) == [200] + [400] * 19
    assert await run_sql(pool, "select count(*), (select count(*) from mails), (select count(*) from audit_log) from invitations") == [
        (1, 1, 1)
    ]


# The organization's list


async def test_the_list_is_newest_first_with_inviters_in_pages_and_hashes_for_tokens(acme: Tenant, clock: FakeClock) -> None:
    made = []
    for number in range(3):
        clock.advance(timedelta(seconds=1))
        made.append(await acme.invite(f"{number}@example.com", by="admin" if number == 1 else "owner"))
    answer = await acme.listed()
    assert answer.json == [{name: one[name] for name in ("invitation", "inviter")} for one in reversed(made)]
    assert answer.headers["X-Total-Count"] == "3"
    assert not any(one["token"] in answer.text for one in made)
    for query, numbers in (("?limit=2", [2, 1]), ("?limit=2&page=2", [0]), ("?limit=2&page=3", []), ("?page=0&limit=-1", [2])):
        part = await acme.listed(query)
        assert [one["invitation"]["email"] for one in part.json] == [f"{number}@example.com" for number in numbers]
        assert part.headers["X-Total-Count"] == "3"
    assert (await acme.listed(by="admin")).json == answer.json
    assert refused(await acme.listed(by="member")) == FORBIDDEN


async def test_the_list_shows_one_status_if_asked_to(acme: Tenant, api: Api, clock: FakeClock) -> None:
    late = await acme.invite("expired@example.com")
    clock.advance(WEEK)
    await acme.sign_in("owner")
    made = {status: await acme.invite(f"{status}@example.com") for status in ("pending", "accepted", "rejected", "cancelled")}
    made["expired"] = late  # nobody has marked it
    await accept(api, made["accepted"]["token"])
    await decline(api, made["rejected"]["token"])
    await api.post(f"{acme.invitations}/{made['cancelled']['invitation']['id']}", token=acme.token("owner"))
    for status, one in made.items():
        answer = await acme.listed(f"?status={status}")
        assert answer.json == [{"invitation": one["invitation"] | {"status": status}, "inviter": one["inviter"]}]
        assert answer.headers["X-Total-Count"] == "1"
    assert (await acme.listed()).headers["X-Total-Count"] == "5"


@pytest.mark.parametrize("query", ["?status=open", "?status=", "?status=PENDING", "?page=x", "?limit=1.5"])
async def test_a_query_that_means_nothing_is_refused(acme: Tenant, query: str) -> None:
    answer = await acme.listed(query)
    assert refused(answer) == BAD
    if "status" in query:
        assert all(status in answer.json["error"] for status in ("pending", "accepted", "rejected", "cancelled", "expired"))


async def test_an_inviter_whose_account_is_gone_is_shown_as_such(acme: Tenant, pool: Pool) -> None:
    made = await acme.invite(by="admin")
    await run_sql(pool, "delete from memberships where role = 'admin'")
    await run_sql(pool, "delete from users where email = 'admin@acme.example'")
    [listed] = (await acme.listed()).json
    assert listed["invitation"]["invited_by"] == made["invitation"]["invited_by"]
    assert listed["inviter"] == {"id": "unknown", "email": "deleted-user@unknown", "created_at": "1970-01-01T00:00:00Z"}


async def test_invitations_of_one_organization_are_nothing_to_another(acme: Tenant, tenants: Tenants, api: Api) -> None:
    other = await tenants.add("acme-two")
    made = (await acme.invite())["invitation"]
    assert (await other.listed()).json == []
    assert (await other.listed()).headers["X-Total-Count"] == "0"
    for path in (f"{other.invitations}/{made['id']}", f"{other.invitations}/{made['id']}/accept"):
        foreign, unknown = (
            await api.post(path, token=other.token("owner")),
            await api.post(f"{other.invitations}/{uuid4()}", token=other.token("owner")),
        )
        assert refused(foreign) == MISSING
        assert foreign.json["error"] == unknown.json["error"]
    assert await acme.statuses() == {EMAIL: "pending"}
    for call in (acme.invitations, f"{acme.invitations}/{made['id']}", f"{acme.invitations}/{made['id']}/accept"):
        assert refused(await api.post(call, {"email": "x@example.com", "role": "member"}, token=other.token("owner"))) == FORBIDDEN
    assert await acme.actions() == Counter(["user.invited"])
    assert await other.actions() == Counter()


# Cancelling


@pytest.mark.parametrize("by", ["owner", "admin"])
async def test_a_cancelled_invitation_is_over(acme: Tenant, api: Api, by: str) -> None:
    made = await acme.invite(role="admin")
    path = f"{acme.invitations}/{made['invitation']['id']}"
    answer = await api.post(path, token=acme.token(by))
    assert (answer.status, answer.json) == (200, {})
    assert await acme.statuses() == {EMAIL: "cancelled"}
    assert await acme.actions() == Counter(["user.invited", "invitation.revoked"])
    entry = await acme.entry("invitation.revoked")
    assert (entry["target_type"], entry["target_id"], entry["actor_id"]) == ("invitation", made["invitation"]["id"], acme.people[by].id)
    assert entry["details"] == {"invited_email": EMAIL, "role": "admin"}
    assert refused(await api.post(path, token=acme.token(by))) == MISSING
    assert refused(await api.post(f"{path}/accept", token=acme.token(by))) == MISSING
    assert refused(await accept(api, made["token"])) == refused(await decline(api, made["token"])) == BAD
    assert (await acme.actions()).total() == 2


async def test_a_member_cancels_nothing(acme: Tenant, api: Api) -> None:
    made = await acme.invite()
    assert refused(await api.post(f"{acme.invitations}/{made['invitation']['id']}", token=acme.token("member"))) == FORBIDDEN


@pytest.mark.parametrize("id_", ["x", "1", "{}", "%00", "5E0C3A0C-7C1B-4B7E-9D53-2F5E8B0C7A11"])
@pytest.mark.parametrize("suffix", ["", "/accept"])
async def test_an_id_that_is_none_is_not_found(acme: Tenant, api: Api, id_: str, suffix: str) -> None:
    assert refused(await api.post(f"{acme.invitations}/{id_}{suffix}", token=acme.token("owner"))) == MISSING


@pytest.mark.parametrize("suffix", ["", "/accept"])
async def test_what_is_past_its_time_is_not_pending_and_gets_marked(
    acme: Tenant, api: Api, ports: Ports, clock: FakeClock, suffix: str
) -> None:
    made = await acme.invite()
    await add_account(ports, EMAIL, None)
    clock.advance(WEEK)
    token = (await sign_in(ports, acme.people["admin"])).access_token
    for _ in range(2):
        assert refused(await api.post(f"{acme.invitations}/{made['invitation']['id']}{suffix}", token=token)) == MISSING
    assert await acme.statuses() == {EMAIL: "expired"}
    assert await acme.actions() == Counter(["user.invited", "invitation.expired"])


# The own list


async def own(api: Api, session: SignedIn) -> Answer:
    return await api.get("/api/invitations", token=session.access_token)


async def test_somebody_sees_what_they_are_invited_to(acme: Tenant, tenants: Tenants, api: Api, ports: Ports, clock: FakeClock) -> None:
    ada = await sign_in(ports, await add_account(ports, EMAIL, None))
    first = await acme.invite(role="admin")
    await acme.invite("somebody-else@example.com")
    clock.advance(timedelta(seconds=1))
    other = await tenants.add("acme-two")
    second = await other.invite()
    answer = await own(api, ada)
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.json == [
        {
            **{name: made["invitation"][name] for name in ("id", "email", "role", "token", "expires_at", "created_at")},
            "organization": {"slug": tenant.slug, "name": tenant.slug.title()},
        }
        for made, tenant in ((second, other), (first, acme))
    ]
    assert first["token"] not in answer.text


async def test_the_own_list_has_only_what_can_still_be_answered(
    acme: Tenant, tenants: Tenants, api: Api, ports: Ports, clock: FakeClock
) -> None:
    account = await add_account(ports, EMAIL, None)
    await acme.invite()
    clock.advance(WEEK)
    cancelling = await tenants.add("acme-two")
    made = await cancelling.invite()
    await api.post(f"{cancelling.invitations}/{made['invitation']['id']}", token=cancelling.token("owner"))
    await decline(api, (await (await tenants.add("acme-three")).invite())["token"])
    ada = await sign_in(ports, account)
    assert (await own(api, ada)).json == []
    accepted = await (await tenants.add("acme-four")).invite()
    assert len((await own(api, ada)).json) == 1
    await accept(api, accepted["token"])
    assert (await own(api, ada)).json == []


async def test_an_address_that_is_not_proved_lists_nothing(acme: Tenant, api: Api, ports: Ports, pool: Pool) -> None:
    ada = await sign_in(ports, await add_account(ports, EMAIL, None, verified=False))
    made = await acme.invite()
    assert (await own(api, ada)).json == []
    for answer in (accept, decline):
        assert refused(await answer(api, made["invitation"]["token"], token=ada.access_token)) == BAD
    await run_sql(pool, "update users set email_verified_at = now(), first_verified_at = now() where email = %s", EMAIL)
    assert len((await own(api, ada)).json) == 1


async def test_nobody_who_is_not_signed_in_has_a_list(api: Api) -> None:
    assert refused(await api.get("/api/invitations")) == (401, "UNAUTHORIZED")


@pytest.mark.parametrize("name", ["accept", "decline"])
async def test_the_hash_of_the_own_list_answers_for_the_invited_person_alone(acme: Tenant, api: Api, ports: Ports, name: str) -> None:
    answer = {"accept": accept, "decline": decline}[name]
    ada = await sign_in(ports, await add_account(ports, EMAIL, None))
    eve = await sign_in(ports, await add_account(ports, "eve@example.com", None))
    hashed = (await acme.invite())["invitation"]["token"]
    unknown = await answer(api, str(uuid4()))
    # Whoever invites sees the hash as well.
    for options in ({}, {"token": acme.token("owner")}, {"token": eve.access_token}):
        stranger = await answer(api, hashed, **options)
        assert refused(stranger) == BAD
        assert stranger.json["error"] == unknown.json["error"]
    assert refused(await answer(api, hashed.upper(), token=ada.access_token)) == BAD
    assert refused(await answer(api, sha256(hashed), token=ada.access_token)) == BAD
    assert await acme.statuses() == {EMAIL: "pending"}
    [offer] = (await own(api, ada)).json
    done = await answer(api, offer["token"], token=ada.access_token)
    assert (done.status, done.json) == (200, {})
    assert await acme.statuses() == {EMAIL: {"accept": "accepted", "decline": "rejected"}[name]}


# Accepting


async def test_an_acceptance_bears_an_account_that_has_proved_nothing(acme: Tenant, api: Api, ports: Ports, clock: FakeClock) -> None:
    made = await acme.invite(role="admin")
    answer = await accept(api, made["token"])
    assert (answer.status, answer.json) == (200, {})
    async with ports.storage.reading() as read:
        born = await read.accounts.by_email(Email(EMAIL))
    assert born is not None
    assert born == Account(
        id=born.id,
        email=Email(EMAIL),
        email_verified_at=None,
        password_hash=None,
        is_platform_owner=False,
        origin=Origin.PLATFORM,
        origin_org_id=None,
        deactivated_at=None,
        anonymized_at=None,
        created_at=clock.now(),
        first_verified_at=None,
    )
    assert (await acme.members())[EMAIL] == ("admin", True)  # an account without another life takes part by the acceptance itself
    assert await acme.statuses() == {EMAIL: "accepted"}
    assert await acme.actions() == Counter(["user.invited", "invitation.accepted", "user.joined"])
    accepted, joined = await acme.entry("invitation.accepted"), await acme.entry("user.joined")
    assert (accepted["target_type"], accepted["target_id"], accepted["actor_id"]) == ("invitation", made["invitation"]["id"], None)
    assert accepted["details"] == {"invited_email": EMAIL, "role": "admin", "user_id": str(born.id)}
    assert (joined["target_type"], joined["target_id"], joined["actor_id"]) == ("user", str(born.id), None)
    assert joined["details"] == {"role": "admin", "invitation_id": made["invitation"]["id"]}


async def test_a_born_account_is_entered_by_a_password_reset(acme: Tenant, api: Api, ports: Ports, sent: FakeMailTransport) -> None:
    await accept(api, (await acme.invite())["token"])
    assert (await api.login()).status == 401
    await deliver(ports)
    await api.post("/api/auth/forgot-password", {"email": EMAIL})
    await deliver(ports)
    await api.post("/api/auth/reset-password", {"token": link(sent.letters[-1]), "new_password": "correct horse battery staple"})
    token = (await api.login()).json["access_token"]
    assert (await api.get(f"/api/organizations/{acme.slug}/members", token=token)).status == 200


async def test_an_account_that_is_there_keeps_its_life_and_takes_no_part(acme: Tenant, api: Api, ports: Ports) -> None:
    ada = await add_account(ports)
    await accept(api, (await acme.invite())["token"])
    assert (await acme.members())[EMAIL] == ("member", False)
    async with ports.storage.reading() as read:
        assert await read.accounts.by_id(ada.id) == ada


async def test_an_unverified_account_stays_unverified(acme: Tenant, api: Api, ports: Ports) -> None:
    ada = await add_account(ports, verified=False)
    await accept(api, (await acme.invite())["token"])
    async with ports.storage.reading() as read:
        assert await read.accounts.by_id(ada.id) == ada  # its password too, and its verification links
    assert (await api.login()).status == 401


@pytest.mark.parametrize("by_hash", [False, True])
async def test_who_accepts_signed_in_takes_part(acme: Tenant, api: Api, ports: Ports, by_hash: bool) -> None:
    ada = await add_account(ports, EMAIL, None)
    made = await acme.invite()
    secret = made["invitation"]["token"] if by_hash else made["token"]
    assert (await accept(api, secret, token=(await sign_in(ports, ada)).access_token)).status == 200
    assert (await acme.members())[EMAIL] == ("member", True)
    assert [(await acme.entry(action))["actor_id"] for action in ("invitation.accepted", "user.joined")] == [ada.id, ada.id]


async def test_a_session_of_somebody_else_accepts_nothing(acme: Tenant, api: Api, ports: Ports) -> None:
    await add_account(ports, EMAIL, None)
    eve = await sign_in(ports, await add_account(ports, "eve@example.com", None))
    made = await acme.invite()
    for token in (eve.access_token, acme.token("owner")):
        assert refused(await accept(api, made["token"], token=token)) == BAD
    assert EMAIL not in await acme.members()
    assert (await accept(api, made["token"])).status == 200


@pytest.mark.parametrize("answer", [accept, decline])
async def test_a_token_that_is_sent_must_be_good(acme: Tenant, api: Api, answer: Any) -> None:
    made = await acme.invite()
    assert refused(await answer(api, made["token"], token="not.a.token")) == (401, "JWT_ERROR")
    assert await acme.statuses() == {EMAIL: "pending"}


async def test_who_impersonates_accepts_nothing(acme: Tenant, api: Api, ports: Ports) -> None:
    steward = await add_platform_owner(ports)
    ada = await add_account(ports, EMAIL, None)
    made = await acme.invite()
    for secret in (made["token"], made["invitation"]["token"]):
        assert refused(await accept(api, secret, token=await impersonate(ports, steward, ada))) == FORBIDDEN
    on_behalf = f"{acme.invitations}/{made['invitation']['id']}/accept"
    assert refused(await api.post(on_behalf, token=await impersonate(ports, steward, acme.people["owner"]))) == FORBIDDEN
    assert await acme.statuses() == {EMAIL: "pending"}


@pytest.mark.parametrize("answer", [accept, decline])
@pytest.mark.parametrize("token", ["x", "", "0" * 64, "0" * 63, " ", "ß", str(UUID(int=0))])
async def test_what_is_no_token_of_ours_answers_nothing(acme: Tenant, api: Api, answer: Any, token: str) -> None:
    await acme.invite()
    assert refused(await answer(api, token)) == BAD


@pytest.mark.parametrize("body", [{}, {"token": None}, {"token": 5}, {"token": ["x"]}, {"token": "a\x00b"}, {"token": "x" * 3000}])
@pytest.mark.parametrize("path", ["accept", "decline"])
async def test_the_token_is_a_text(api: Api, path: str, body: dict[str, Any]) -> None:
    assert refused(await api.post(f"/api/invitations/{path}", body)) == BAD


@pytest.mark.parametrize("answer", [accept, decline])
async def test_an_answered_invitation_is_as_good_as_unknown(acme: Tenant, api: Api, answer: Any) -> None:
    unknown = await answer(api, str(uuid4()))
    made = [await acme.invite(f"{number}@example.com") for number in range(3)]
    await accept(api, made[0]["token"])
    await decline(api, made[1]["token"])
    await api.post(f"{acme.invitations}/{made[2]['invitation']['id']}", token=acme.token("owner"))
    before = await acme.statuses()
    for one in made:
        again = await answer(api, one["token"])
        assert refused(again) == BAD
        assert again.json["error"] == unknown.json["error"]
    assert await acme.statuses() == before


@pytest.mark.parametrize("how", ["demoted", "removed"])
async def test_an_invitation_dies_with_the_right_to_send_it(
    acme: Tenant, api: Api, ports: Ports, sent: FakeMailTransport, how: str
) -> None:
    made = await acme.invite(by="admin")
    path = f"/api/organizations/{acme.slug}/members/{acme.people['admin'].id}"
    if how == "demoted":
        assert (await api.patch(path, {"role": "member"}, token=acme.token("owner"))).status == 200
    else:
        assert (await api.post(path, token=acme.token("owner"))).status == 200
    await deliver(ports)
    assert sent.letters == []
    assert refused(await accept(api, made["token"])) == BAD
    assert await acme.statuses() == {EMAIL: "cancelled"}
    assert (await acme.entry("invitation.revoked"))["target_id"] == made["invitation"]["id"]


async def test_tokens_of_one_kind_open_nothing_of_another(acme: Tenant, api: Api, ports: Ports, sent: FakeMailTransport) -> None:
    await accounts.register(ports, Anonymous(), Email("grace@example.com"), "correct horse battery staple")
    await accounts.forgot_password(ports, Anonymous(), Email("grace@example.com"))
    await deliver(ports)
    for letter in sent.letters:
        for answer in (accept, decline):
            assert refused(await answer(api, link(letter))) == BAD
    made = await acme.invite("grace@example.com")
    for token in (made["token"], made["invitation"]["token"]):
        assert (await api.post("/api/auth/reset-password", {"token": token, "new_password": "another good password"})).status == 400
        assert (await api.get(f"/auth/verify-email?token={token}")).status == 400
    assert await acme.statuses() == {"grace@example.com": "pending"}


async def test_an_expired_invitation_is_refused_and_marked_once(acme: Tenant, api: Api, clock: FakeClock) -> None:
    made = await acme.invite()
    clock.advance(WEEK)
    for _ in range(2):
        assert refused(await accept(api, made["token"])) == EXPIRED
    assert await acme.statuses() == {EMAIL: "expired"}
    assert await acme.actions() == Counter(["user.invited", "invitation.expired"])
    assert (await acme.entry("invitation.expired"))["details"] == {"invited_email": EMAIL, "role": "member"}
    assert EMAIL not in await acme.members()
    assert refused(await decline(api, made["token"])) == EXPIRED


async def test_an_invitation_is_good_until_the_last_moment(acme: Tenant, api: Api, clock: FakeClock) -> None:
    made = await acme.invite()
    clock.advance(WEEK - timedelta(microseconds=1))
    assert (await accept(api, made["token"])).status == 200


@pytest.mark.parametrize("status", ["suspended", "pending", "rejected"])
async def test_an_organization_that_is_not_active_is_not_joined_but_can_be_declined(
    acme: Tenant, api: Api, ports: Ports, status: str
) -> None:
    made = await acme.invite()
    await acme.become(status)
    ada = await sign_in(ports, await add_account(ports, EMAIL, None))
    for options in ({}, {"token": ada.access_token}):
        assert refused(await accept(api, made["token"], **options)) == INACTIVE
    assert await acme.statuses() == {EMAIL: "pending"}
    assert (await decline(api, made["token"])).status == 200
    assert await acme.statuses() == {EMAIL: "rejected"}


@pytest.mark.usefixtures("tiers_put_back")
@pytest.mark.parametrize("source", ["organization", "tier", "default"])
async def test_no_more_join_than_there_are_seats(acme: Tenant, api: Api, pool: Pool, source: str) -> None:
    seats = 5 if source == "default" else 4  # three of them taken
    match source:
        case "organization":
            await acme.allow(seats)
        case "tier":
            await run_sql(pool, "update tiers set default_max_users = %s where id = %s", seats, FREE.id)
        case "default":
            await run_sql(pool, "update organizations set tier_id = null where id = %s", acme.org)
    made = [await acme.invite(f"{number}@example.com") for number in range(4)]  # the limit is looked at by acceptances only
    answers = [await accept(api, one["token"]) for one in made]
    free = seats - 3
    assert [answer.status for answer in answers] == [200] * free + [400] * (4 - free)
    assert refused(answers[-1]) == FULL
    assert len(await acme.members()) == seats
    assert await run_sql(pool, "select count(*) from users where email = '3@example.com'") == [(0,)]


async def test_an_invitation_that_found_no_seat_is_still_good(acme: Tenant, api: Api) -> None:
    await acme.allow(3)
    made = await acme.invite()
    assert refused(await accept(api, made["token"])) == FULL
    assert await acme.actions() == Counter(["user.invited"])
    await acme.allow(4)
    assert (await accept(api, made["token"])).status == 200


@pytest.mark.parametrize("signed_in", [False, True])
async def test_somebody_who_became_a_member_otherwise_is_one_already(acme: Tenant, api: Api, ports: Ports, signed_in: bool) -> None:
    ada = await add_account(ports, EMAIL, None)
    made = await acme.invite(role="admin")
    await acme.join("ada", ada, Role.MEMBER)
    options = {"token": acme.token("ada")} if signed_in else {}
    assert refused(await accept(api, made["token"], **options)) == BAD
    assert (await acme.members())[EMAIL] == ("member", True)


async def test_a_deactivated_account_joins_nothing(acme: Tenant, api: Api, ports: Ports, clock: FakeClock) -> None:
    await add_account(ports, EMAIL, None, deactivated_at=clock.now())
    made = await acme.invite()
    assert refused(await accept(api, made["token"])) == BAD
    assert refused(await api.post(f"{acme.invitations}/{made['invitation']['id']}/accept", token=acme.token("owner"))) == BAD
    assert EMAIL not in await acme.members()
    assert await acme.statuses() == {EMAIL: "pending"}


async def test_an_address_that_was_taken_over_without_proof_joins_nothing(acme: Tenant, api: Api, ports: Ports, pool: Pool) -> None:
    """Else whoever squats on an address, signed in, would get in where its owner accepts (security.md A-9)."""
    squatter = await sign_in(ports, await add_account(ports, "eve@example.com", None))
    made = await acme.invite()
    assert (await api.patch("/api/user", {"email": EMAIL}, token=squatter.access_token)).status == 200
    for options in ({}, {"token": squatter.access_token}):
        assert refused(await accept(api, made["token"], **options)) == BAD
    assert refused(await api.post(f"{acme.invitations}/{made['invitation']['id']}/accept", token=acme.token("owner"))) == BAD
    assert await acme.statuses() == {EMAIL: "pending"}
    await run_sql(pool, "update users set email_verified_at = now() where email = %s", EMAIL)
    assert (await accept(api, made["token"])).status == 200


async def test_what_is_wrong_with_an_account_is_not_told(acme: Tenant, api: Api, ports: Ports, pool: Pool) -> None:
    ada = await add_account(ports, EMAIL, None)
    made = await acme.invite()
    told = []
    for change in (
        "email_verified_at = null",
        "email_verified_at = now(), deactivated_at = now()",
        "deactivated_at = null, anonymized_at = now()",
    ):
        await run_sql(pool, f"update users set {change} where id = %s", ada.id)  # noqa: S608
        answer = await accept(api, made["token"])
        told.append((*refused(answer), answer.json["error"]))
    assert told == [(*BAD, InvitedCannotJoin.__doc__)] * 3


async def test_role_address_and_organization_come_from_the_invitation_alone(acme: Tenant, tenants: Tenants, api: Api) -> None:
    other = await tenants.add("acme-two")
    made = await acme.invite()
    body = {"token": made["token"], "role": "owner", "email": "eve@example.com", "org_id": str(other.org), "org_slug": other.slug}
    assert (await api.post(f"/api/invitations/accept?role=admin&org_slug={other.slug}", body)).status == 200
    assert (await acme.members())[EMAIL] == ("member", True)
    assert EMAIL not in await other.members()
    assert "eve@example.com" not in await acme.members()


# Accepting for somebody


@pytest.mark.parametrize(("by", "role"), [("owner", "member"), ("owner", "admin"), ("admin", "member")])
async def test_a_manager_accepts_for_somebody_who_has_an_account(acme: Tenant, api: Api, ports: Ports, by: str, role: str) -> None:
    ada = await add_account(ports, EMAIL, None)
    made = await acme.invite(role=role)
    answer = await api.post(f"{acme.invitations}/{made['invitation']['id']}/accept", token=acme.token(by))
    assert (answer.status, answer.json) == (200, {})
    assert (await acme.members())[EMAIL] == (role, False)
    assert await acme.actions() == Counter(["user.invited", "invitation.accepted", "user.joined"])
    accepted, joined = await acme.entry("invitation.accepted"), await acme.entry("user.joined")
    assert accepted["actor_id"] == joined["actor_id"] == acme.people[by].id
    assert joined["target_id"] == str(ada.id)
    assert refused(await api.post(f"{acme.invitations}/{made['invitation']['id']}/accept", token=acme.token(by))) == MISSING


async def test_only_the_owner_makes_an_admin_of_somebody(acme: Tenant, api: Api, ports: Ports) -> None:
    await add_account(ports, EMAIL, None)
    path = f"{acme.invitations}/{(await acme.invite(role='admin'))['invitation']['id']}/accept"
    assert refused(await api.post(path, token=acme.token("admin"))) == FORBIDDEN
    assert refused(await api.post(path, token=acme.token("member"))) == FORBIDDEN
    assert await acme.statuses() == {EMAIL: "pending"}


async def test_nobody_accepts_for_somebody_without_an_account(acme: Tenant, api: Api, pool: Pool) -> None:
    made = await acme.invite()
    assert refused(await api.post(f"{acme.invitations}/{made['invitation']['id']}/accept", token=acme.token("owner"))) == BAD
    assert await acme.statuses() == {EMAIL: "pending"}
    assert await run_sql(pool, "select count(*) from users where email = %s", EMAIL) == [(0,)]


async def test_seats_count_for_managers_too(acme: Tenant, api: Api, ports: Ports) -> None:
    await add_account(ports, EMAIL, None)
    await acme.allow(3)
    made = await acme.invite()
    assert refused(await api.post(f"{acme.invitations}/{made['invitation']['id']}/accept", token=acme.token("owner"))) == FULL


# Declining


async def test_a_declined_invitation_is_over_and_leaves_nothing(acme: Tenant, api: Api, pool: Pool) -> None:
    made = await acme.invite(role="admin")
    answer = await decline(api, made["token"])
    assert (answer.status, answer.json) == (200, {})
    assert await acme.statuses() == {EMAIL: "rejected"}
    assert await acme.actions() == Counter(["user.invited", "invitation.declined"])
    entry = await acme.entry("invitation.declined")
    assert (entry["target_type"], entry["target_id"], entry["actor_id"]) == ("invitation", made["invitation"]["id"], None)
    assert entry["details"] == {"invited_email": EMAIL, "role": "admin"}
    assert EMAIL not in await acme.members()
    assert await run_sql(pool, "select count(*) from users where email = %s", EMAIL) == [(0,)]


async def test_past_its_time_an_invitation_can_be_declined_until_somebody_marks_it(
    acme: Tenant, api: Api, ports: Ports, clock: FakeClock
) -> None:
    unmarked, marked = await acme.invite("1@example.com"), await acme.invite("2@example.com")
    clock.advance(WEEK)
    assert (await decline(api, unmarked["token"])).status == 200
    assert await invitations.sweep(ports, new_id()) == {"invitations": 1}
    assert refused(await decline(api, marked["token"])) == EXPIRED
    assert await acme.statuses() == {"1@example.com": "rejected", "2@example.com": "expired"}
    assert await acme.actions() == Counter(["user.invited"] * 2 + ["invitation.declined", "invitation.expired"])


async def test_whoever_has_the_token_declines_whoever_they_are(acme: Tenant, api: Api, ports: Ports) -> None:
    eve = await add_account(ports, "eve@example.com", None)
    made = await acme.invite()
    assert (await decline(api, made["token"], token=(await sign_in(ports, eve)).access_token)).status == 200
    assert (await acme.entry("invitation.declined"))["actor_id"] == eve.id


# All at once


@pytest.mark.slow
@pytest.mark.parametrize("free", [0, 3, 19])
async def test_of_many_who_join_at_once_as_many_do_as_there_are_seats(acme: Tenant, api: Api, free: int) -> None:
    await acme.allow(3 + free)
    made = [await acme.invite(f"{number}@example.com") for number in range(20)]
    answers = await everyone(20, lambda number: accept(api, made[number]["token"]))
    assert sorted(answer.status for answer in answers) == [200] * free + [400] * (20 - free)
    assert {refused(answer) for answer in answers if answer.status == 400} == {FULL}
    assert len(await acme.members()) == 3 + free
    assert list((await acme.statuses()).values()).count("accepted") == free
    assert (await acme.actions())["user.joined"] == free


@pytest.mark.slow
@pytest.mark.parametrize("exists", [True, False])
async def test_one_of_many_acceptances_of_one_invitation_wins(acme: Tenant, api: Api, ports: Ports, pool: Pool, exists: bool) -> None:
    made = await acme.invite()
    ada = await sign_in(ports, await add_account(ports, EMAIL, None)) if exists else None

    async def act(number: int) -> Answer:
        match number % 3 if ada else 0:
            case 0:
                return await accept(api, made["token"])
            case 1:
                return await accept(api, made["invitation"]["token"], token=ada.access_token if ada else None)
        return await api.post(f"{acme.invitations}/{made['invitation']['id']}/accept", token=acme.token("owner"))

    answers = await everyone(20, act)
    assert sorted(answer.status for answer in answers)[:2] in ([200, 400], [200, 404])
    assert {answer.status for answer in answers} <= {200, 400, 404}
    assert len(await acme.members()) == 4
    assert await acme.actions() == Counter(["user.invited", "invitation.accepted", "user.joined"])
    assert await run_sql(pool, "select count(*) from users where email = %s", EMAIL) == [(1,)]


@pytest.mark.slow
async def test_one_of_many_different_answers_to_one_invitation_wins(acme: Tenant, api: Api, ports: Ports, clock: FakeClock) -> None:
    for number in range(5):
        email = f"{number}@example.com"
        made = await acme.invite(email)
        before = await acme.actions()

        async def act(turn: int, made: dict[str, Any] = made) -> Answer:
            match turn % 3:
                case 0:
                    return await accept(api, made["token"])
                case 1:
                    return await decline(api, made["token"])
            return await api.post(f"{acme.invitations}/{made['invitation']['id']}", token=acme.token("admin"))

        answers = await everyone(21, act)
        assert sorted(answer.status for answer in answers).count(200) == 1
        assert {answer.status for answer in answers} <= {200, 400, 404}
        status = (await acme.statuses())[email]
        assert (email in await acme.members()) == (status == "accepted")
        told = {
            "accepted": ["invitation.accepted", "user.joined"],
            "rejected": ["invitation.declined"],
            "cancelled": ["invitation.revoked"],
        }
        assert await acme.actions() - before == Counter(told[status])


@pytest.mark.slow
async def test_an_expired_invitation_ends_once_whoever_finds_it(acme: Tenant, api: Api, ports: Ports, clock: FakeClock) -> None:
    for number in range(5):
        made = await acme.invite(f"{number}@example.com")
        clock.advance(WEEK)
        await acme.sign_in("owner")
        before = await acme.actions()

        async def act(turn: int, made: dict[str, Any] = made) -> int | None:
            match turn % 4:
                case 0:
                    return (await accept(api, made["token"])).status
                case 1:
                    return (await api.post(f"{acme.invitations}/{made['invitation']['id']}", token=acme.token("owner"))).status
                case 2:
                    return (await decline(api, made["token"])).status
            await invitations.sweep(ports, new_id())
            return None

        statuses = await everyone(20, act)
        assert statuses.count(200) <= 1
        assert set(statuses) <= {200, 400, 404, None}
        assert await acme.actions() - before == Counter(["invitation.declined" if 200 in statuses else "invitation.expired"])


@pytest.mark.slow
async def test_somebody_new_who_accepts_everything_at_once_is_born_once(tenants: Tenants, api: Api, pool: Pool) -> None:
    inviting = [await tenants.add(f"org-{number}", cast={"owner": Role.OWNER}) for number in range(10)]
    secrets = [(await tenant.invite())["token"] for tenant in inviting]

    async def act(number: int) -> Answer:
        if number < 10:
            return await accept(api, secrets[number])
        return await api.post("/api/auth/register", {"email": EMAIL, "password": "correct horse battery staple"})

    answers = await everyone(12, act)
    assert {answer.status for answer in answers} <= {200, 409}
    assert [answer.status for answer in answers].count(200) in (10, 11)
    [(user,)] = await run_sql(pool, "select id from users where email = %s", EMAIL)
    assert await run_sql(pool, "select count(*) from memberships where user_id = %s", user) == [(10,)]
