"""Who calls a request: members, platform owners, impersonators and confirmed memberships.

Covers security I-3, I-5, J-5, J-6 and R-5, and decisions 52, 54.
"""

from datetime import timedelta
from typing import Any, Final

import pytest
from quart import request
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.kernel.callers import Member, OrganizationContext, OrganizationStatus, Person
from core.kernel.causes import Anonymous
from core.kernel.errors import NotFound
from core.kernel.proofs import Strength
from core.kernel.rate_limits import LOGIN
from core.kernel.roles import MEMBER, OWNER, Capability, RoleName, rights_of
from core.kernel.sign_in_age import LastSignIn
from entrypoints.http.base.context import caller
from entrypoints.http.edge.access import member, person, person_if_present, platform_owner
from entrypoints.http.edge.access.declaration import View, access_of
from entrypoints.http.edge.access.effects import GIVES, MINE
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.support.builders import Api, add_account, add_member, add_organization, add_platform_owner, impersonate, run_sql, sign_in
from tests.support.direct import PEER, ask
from tests.support.platform import Platform

Rows = list[tuple[Any, ...]]

CALLERS: Final[list[Any]] = []


@pytest.fixture
def callers() -> list[Any]:
    """The callers that this module's routes saw. A route answers 404 on request."""
    CALLERS.clear()
    return CALLERS


def add_routes(app: QuartTrio) -> None:
    async def view(**_: str) -> str:
        CALLERS.append(caller())
        if request.args.get("missing"):
            raise NotFound
        return "reached"

    routes: dict[str, View] = {
        "/test/person": person(view),
        "/test/person/alone": person(MINE)(view),
        "/test/optional": person_if_present(view),
        "/test/optional/alone": person_if_present(MINE)(view),
        "/test/platform": platform_owner(Capability.PLATFORM_USERS_VIEW)(view),
        "/test/platform/limited": platform_owner(Capability.PLATFORM_USERS_VIEW, limit=LOGIN)(view),
        "/test/in/<org_slug>/view": member(Capability.MEMBERS_VIEW)(view),
        "/test/in/<org_slug>/manage": member(Capability.MEMBERS_MANAGE)(view),
        "/test/in/<org_slug>/own": member(Capability.ORGANIZATION_OWN)(view),
        "/test/in/<org_slug>/inactive": member(Capability.MEMBERS_MANAGE, inactive=True)(view),
        "/test/in/<org_slug>/alone": member(Capability.MEMBERS_VIEW, MINE)(view),
    }
    for number, (path, guarded) in enumerate(routes.items()):
        app.add_url_rule(path, f"test_{number}", guarded)


async def status(app: QuartTrio, path: str, token: str | None = None) -> int | tuple[int, str]:
    answer = await ask(app, "GET", path, token=token)
    return answer.status if answer.status == 200 else (answer.status, answer.code)


UNAUTHORIZED, FORBIDDEN, NOT_FOUND = (401, "UNAUTHORIZED"), (403, "FORBIDDEN"), (404, "NOT_FOUND")
NOT_ACTIVE = (403, "ORGANIZATION_NOT_ACTIVE")


# Members


@pytest.mark.parametrize(
    ("role", "manage", "own_token"), [("owner", 200, 200), ("admin", 200, FORBIDDEN), ("member", FORBIDDEN, FORBIDDEN)]
)
async def test_a_member_can_do_what_their_role_allows(
    app: QuartTrio, ports: Ports, pool: Pool, callers: list[Any], role: str, manage: int | tuple[int, str], own_token: int | tuple[int, str]
) -> None:
    account, org = await add_account(ports), await add_organization(pool, "acme")
    await add_member(pool, org, account.id, role)
    other_tenant = await add_organization(pool, "twin")
    await add_member(pool, other_tenant, account.id, "owner")  # a role in another organization does not help
    signed_in = await sign_in(ports, account)
    assert await status(app, "/test/in/acme/view", signed_in.access_token) == 200
    assert await status(app, "/test/in/acme/manage", signed_in.access_token) == manage
    assert await status(app, "/test/in/acme/own", signed_in.access_token) == own_token
    assert callers[0] == Member(
        user_id=account.id,
        email=account.email,
        email_verified=True,
        session_id=signed_in.session_id,
        address=PEER,
        sign_in=LastSignIn(ports.clock.now(), is_proof=True, strength=Strength.ONE, required=Strength.ONE),
        acts_in=OrganizationContext(org, "acme", OrganizationStatus.ACTIVE, RoleName(role), rights_of(RoleName(role))),
    )


async def test_the_first_reason_to_refuse_is_the_reported_one(app: QuartTrio, ports: Ports, pool: Pool, callers: list[Any]) -> None:
    owner, simple, stranger, platform = [
        await add_account(ports, f"{name}@example.com", is_platform_owner=name == "platform")
        for name in ("owner", "simple", "stranger", "platform")
    ]
    org = await add_organization(pool, "acme", "suspended")
    await add_member(pool, org, owner.id, "owner")
    await add_member(pool, org, simple.id)
    tokens = {account.email: (await sign_in(ports, account)).access_token for account in (owner, simple, stranger, platform)}
    manage = "/test/in/acme/manage?missing=1"
    assert await status(app, manage) == await status(app, "/test/in/nothing-there/manage") == UNAUTHORIZED
    assert await status(app, manage, "x") == (401, "JWT_ERROR")
    for token in tokens.values():
        for slug in ("nothing-there", "Acme", "ACME", "acme%20", "acm_", "%25", "a" * 64, str(org)):
            assert await status(app, f"/test/in/{slug}/manage", token) == NOT_FOUND
    assert await status(app, manage, tokens[stranger.email]) == FORBIDDEN
    assert await status(app, manage, tokens[platform.email]) == FORBIDDEN, "a platform owner is not a member"
    assert await status(app, manage, tokens[simple.email]) == FORBIDDEN
    assert await status(app, manage, tokens[owner.email]) == NOT_ACTIVE
    await run_sql(pool, "update organizations set status = 'active'")
    assert await status(app, manage, tokens[owner.email]) == NOT_FOUND, "only now the object is searched"
    assert len(callers) == 1


@pytest.mark.parametrize("organization_status", ["pending", "suspended", "rejected"])
async def test_an_inactive_organization_allows_only_marked_routes(
    app: QuartTrio, ports: Ports, pool: Pool, callers: list[Any], organization_status: str
) -> None:
    account, org = await add_account(ports), await add_organization(pool, "acme", organization_status)
    await add_member(pool, org, account.id, "admin")
    token = (await sign_in(ports, account)).access_token
    assert await status(app, "/test/in/acme/view", token) == NOT_ACTIVE
    assert await status(app, "/test/in/acme/inactive", token) == 200
    assert callers[0].acts_in.status == organization_status
    await run_sql(pool, "update memberships set role = 'member'")
    assert await status(app, "/test/in/acme/inactive", token) == FORBIDDEN


async def test_changes_take_effect_with_the_next_request(app: QuartTrio, ports: Ports, pool: Pool, callers: list[Any]) -> None:
    account, org = await add_account(ports), await add_organization(pool, "acme")
    await add_member(pool, org, account.id, "admin")
    token = (await sign_in(ports, account, org)).access_token
    for change, expected in (
        ("select 1", 200),
        ("update memberships set role = 'member'", FORBIDDEN),
        ("update memberships set role = 'owner'", 200),
        ("update organizations set status = 'suspended'", NOT_ACTIVE),
        ("update organizations set status = 'active', slug = 'renamed'", NOT_FOUND),
        ("update organizations set slug = 'acme'", 200),
        ("delete from memberships", FORBIDDEN),
        ("delete from organizations", NOT_FOUND),
        ("update users set deactivated_at = now()", UNAUTHORIZED),
    ):
        await run_sql(pool, change)
        assert await status(app, "/test/in/acme/manage", token) == expected, change
    assert len(callers) == 3


async def test_the_path_names_the_organization_and_the_token_is_only_context(
    app: QuartTrio, ports: Ports, pool: Pool, callers: list[Any]
) -> None:
    account = await add_account(ports)
    acme, other_tenant, former = [await add_organization(pool, slug) for slug in ("acme", "twin", "former")]
    await add_member(pool, acme, account.id)
    await add_member(pool, other_tenant, account.id, "owner")
    for org, context in ((None, None), (acme, "acme"), (other_tenant, "twin"), (former, None)):
        token = (await sign_in(ports, account, org)).access_token
        assert await status(app, "/test/in/acme/view", token) == 200
        assert await status(app, "/test/in/acme/manage", token) == FORBIDDEN
        assert await status(app, "/test/in/twin/manage", token) == 200
        for principal, role in zip(callers, (MEMBER, OWNER), strict=True):
            assert principal.acts_in.role == role
            assert (principal.organization.slug if principal.organization else None) == context
        callers.clear()


async def test_a_token_of_a_deleted_organization_is_invalid_for_its_successor(
    app: QuartTrio, api: Api, ports: Ports, pool: Pool, callers: list[Any]
) -> None:
    account, former = await add_account(ports), await add_organization(pool, "acme")
    await add_member(pool, former, account.id, "owner")
    signed_in = await sign_in(ports, account, former)
    assert await status(app, "/test/in/acme/own", signed_in.access_token) == 200
    await run_sql(pool, "delete from organizations")
    assert await status(app, "/test/in/acme/own", signed_in.access_token) == NOT_FOUND
    successor = await add_organization(pool, "acme")
    await add_member(pool, successor, account.id, "owner")
    for path in ("/test/in/acme/own", "/test/in/acme/view", "/test/person", "/api/user", "/api/organizations/acme/audit-log"):
        assert await status(app, path, signed_in.access_token) == FORBIDDEN, path
    assert (await api.post("/api/auth/refresh", {"refresh_token": signed_in.refresh_token})).status in (401, 403)
    fresh = await sign_in(ports, account, successor)
    assert await status(app, "/test/in/acme/own", fresh.access_token) == 200
    assert callers[-1].acts_in.id == successor


# Confirmed memberships


async def confirmations(pool: Pool) -> Rows:
    return await run_sql(pool, "select org_id, user_id, confirmed_at from memberships where confirmed_at is not null")


async def test_the_first_request_in_an_organization_confirms_the_membership(
    app: QuartTrio, ports: Ports, pool: Pool, clock: FakeClock, callers: list[Any]
) -> None:
    user, eve = await add_account(ports), await add_account(ports, "eve@example.com")
    acme, other_tenant = await add_organization(pool, "acme"), await add_organization(pool, "twin")
    for org, account in ((acme, user), (acme, eve), (other_tenant, user)):
        await add_member(pool, org, account.id)
    token = (await sign_in(ports, user, acme)).access_token
    await ask(app, "GET", "/test/person", token=token)
    await ask(app, "GET", "/api/user", token=token)
    assert await confirmations(pool) == [], "a token of the organization is not a request in it"
    first = clock.now()
    assert await status(app, "/test/in/acme/view?missing=1", token) == NOT_FOUND
    assert await confirmations(pool) == [(acme, user.id, first)], "although the request fails"
    clock.advance(timedelta(minutes=1))
    assert await status(app, "/test/in/acme/view", token) == 200
    assert await confirmations(pool) == [(acme, user.id, first)], "the first confirmation stays"
    assert await status(app, "/test/in/twin/view", token) == 200
    assert set(await confirmations(pool)) == {(acme, user.id, first), (other_tenant, user.id, clock.now())}
    assert callers


async def test_a_refused_request_confirms_nothing(app: QuartTrio, ports: Ports, pool: Pool, callers: list[Any]) -> None:
    account = await add_account(ports)
    await add_member(pool, await add_organization(pool, "acme"), account.id)
    await add_member(pool, await add_organization(pool, "twin", "pending"), account.id)
    token = (await sign_in(ports, account)).access_token
    assert await status(app, "/test/in/acme/manage", token) == FORBIDDEN
    assert await status(app, "/test/in/twin/view", token) == NOT_ACTIVE
    assert await status(app, "/test/in/acme/view") == UNAUTHORIZED
    assert await confirmations(pool) == []


async def test_an_impersonator_does_not_confirm_the_membership(app: QuartTrio, ports: Ports, pool: Pool, callers: list[Any]) -> None:
    support, user = await add_platform_owner(ports, "support@example.com"), await add_account(ports)
    org = await add_organization(pool, "acme")
    await add_member(pool, org, user.id)
    token = await impersonate(ports, support, user, org)
    assert await status(app, "/test/in/acme/view", token) == 200
    assert await confirmations(pool) == []
    assert (callers[0].user_id, callers[0].impersonator_id, callers[0].acts_in.id) == (user.id, support.id, org)


# Platform owners


async def test_only_platform_owners_can_use_platform_routes(app: QuartTrio, ports: Ports, pool: Pool, callers: list[Any]) -> None:
    platform = await add_platform_owner(ports, "platform@example.com")
    owner, org = await add_account(ports), await add_organization(pool, "acme")
    await add_member(pool, org, owner.id, "owner")
    assert await status(app, "/test/platform") == UNAUTHORIZED
    assert await status(app, "/test/platform", (await sign_in(ports, owner, org)).access_token) == FORBIDDEN
    token = (await sign_in(ports, platform)).access_token
    assert await status(app, "/test/platform", token) == 200
    # The token names an organization that the user left. Platform routes do not depend on it.
    assert await status(app, "/test/platform", (await sign_in(ports, platform, org)).access_token) == 200
    assert [(principal.user_id, principal.is_platform_owner, principal.organization) for principal in callers] == [
        (platform.id, True, None)
    ] * 2
    await run_sql(pool, "update users set is_platform_owner = false")
    assert await status(app, "/test/platform", token) == FORBIDDEN, "it takes effect with the next request"


async def test_a_rate_limit_does_not_weaken_the_access_check() -> None:
    async def view() -> str:
        return "reached"

    platform = platform_owner(Capability.PLATFORM_OWN, GIVES, limit=LOGIN)(view)
    for guarded in (platform, member(Capability.MEMBERS_VIEW, GIVES)(limit=LOGIN)(view)):
        assert (access_of(guarded).limit, access_of(guarded).row("GET")) == (LOGIN, GIVES)


# Optional authentication


async def test_a_request_without_a_token_is_anonymous(app: QuartTrio, ports: Ports, pool: Pool, callers: list[Any]) -> None:
    account, org = await add_account(ports), await add_organization(pool, "acme")
    assert await status(app, "/test/optional") == 200
    assert await status(app, "/test/optional", (await sign_in(ports, account)).access_token) == 200
    # The token's organization does not matter here either.
    assert await status(app, "/test/optional", (await sign_in(ports, account, org)).access_token) == 200
    assert callers[0] == Anonymous(address=PEER)
    assert [(type(principal), principal.user_id) for principal in callers[1:]] == [(Person, account.id)] * 2


async def test_a_token_that_is_sent_must_be_valid(app: QuartTrio, ports: Ports, pool: Pool, clock: FakeClock, callers: list[Any]) -> None:
    account = await add_account(ports)
    ended_session, expired_session = await sign_in(ports, account), await sign_in(ports, account)
    await run_sql(pool, "update sessions set ended_at = now() where id = %s", ended_session.session_id)
    assert await status(app, "/test/optional", ended_session.access_token) == UNAUTHORIZED
    for value in (b"", b"Bearer", b"Bearer ", b"Basic eDp5", b"bearer"):
        answer = await ask(app, "GET", "/test/optional", headers=[(b"authorization", value)])
        assert (answer.status, answer.code) == UNAUTHORIZED, value
    assert await status(app, "/test/optional", "x") == (401, "JWT_ERROR")
    clock.advance(timedelta(hours=1))
    assert await status(app, "/test/optional", expired_session.access_token) == (401, "TOKEN_EXPIRED")
    assert callers == []


# Impersonators


async def test_an_impersonator_acts_as_the_user_except_on_protected_routes(
    app: QuartTrio, ports: Ports, pool: Pool, callers: list[Any]
) -> None:
    support, user = await add_platform_owner(ports, "support@example.com"), await add_account(ports)
    org = await add_organization(pool, "acme")
    await add_member(pool, org, user.id, "owner")
    own_token, token = (await sign_in(ports, user)).access_token, await impersonate(ports, support, user, org)
    for path in ("/test/person", "/test/optional", "/test/in/acme/manage"):
        assert await status(app, path, token) == await status(app, path, own_token) == 200
    assert [(principal.user_id, principal.impersonator_id) for principal in callers] == [(user.id, support.id), (user.id, None)] * 3
    callers.clear()
    for path in ("/test/person/alone", "/test/optional/alone", "/test/in/acme/alone"):
        assert await status(app, path, own_token) == 200
        answer = await ask(app, "GET", path, token=token)
        assert (answer.status, answer.code) == FORBIDDEN
        assert "impersonating" in answer.json["error"]
    for path in ("/test/platform", "/test/platform/limited"):
        assert await status(app, path, token) == FORBIDDEN
    assert [principal.impersonator_id for principal in callers] == [None] * 3


@pytest.mark.parametrize(
    "change",
    [
        "update users set is_platform_owner = false where email = 'support@example.com'",
        "update users set deactivated_at = now() where email = 'support@example.com'",
        "update users set anonymized_at = now() where email = 'support@example.com'",
        "delete from users where email = 'support@example.com'",
        "update users set is_platform_owner = true where email = 'ada@example.com'",
    ],
)
async def test_an_impersonation_ends_when_the_impersonator_is_demoted(
    app: QuartTrio, api: Api, ports: Ports, pool: Pool, callers: list[Any], change: str
) -> None:
    support, user = await add_platform_owner(ports, "support@example.com"), await add_account(ports)
    org = await add_organization(pool, "acme")
    await add_member(pool, org, user.id, "owner")
    impersonation = await sign_in(ports, user, org, impersonator=support)
    own_session = await sign_in(ports, user, org)
    paths = ("/test/person", "/test/optional", "/test/in/acme/view", "/test/platform", "/api/user")
    await run_sql(pool, change)
    for path in paths:
        assert await status(app, path, impersonation.access_token) == UNAUTHORIZED
    answer = await api.post("/api/auth/refresh", {"refresh_token": impersonation.refresh_token})
    assert (answer.status, answer.code) == UNAUTHORIZED
    assert await status(app, "/test/in/acme/view", own_session.access_token) == 200, "the user's own session continues"
    assert len(callers) == 1


@pytest.mark.parametrize("demoted", ["the impersonator", "the target"])
async def test_an_impersonation_ended_by_a_demotion_stays_ended(
    api: Api, ports: Ports, pool: Pool, platform: Platform, demoted: str
) -> None:
    target, support = await add_account(ports), await add_platform_owner(ports, "support@platform.example")
    token = await impersonate(ports, support, target)
    assert (await api.get("/api/user", token=token)).status == 200
    changed_id = str(support.id if demoted == "the impersonator" else target.id)
    await run_sql(pool, "update users set mfa_enabled_at = now() where id = %s", changed_id)

    async def promote() -> None:
        assert (await api.post("/api/platform/owners", {"user_id": changed_id}, token=platform.token)).status == 200

    async def demote() -> None:
        assert (await api.delete(f"/api/platform/owners/{changed_id}", token=platform.token)).status == 200

    for change in (demote, promote) if demoted == "the impersonator" else (promote, demote):
        await change()
        assert (await api.get("/api/user", token=token)).status == 401


async def test_a_refresh_keeps_the_impersonator_and_the_end(
    app: QuartTrio, api: Api, ports: Ports, pool: Pool, clock: FakeClock, callers: list[Any]
) -> None:
    support, user = await add_platform_owner(ports, "support@example.com"), await add_account(ports)
    impersonation = await sign_in(ports, user, impersonator=support)
    began = clock.now()
    clock.advance(timedelta(minutes=50))
    pair = (await api.post("/api/auth/refresh", {"refresh_token": impersonation.refresh_token})).json
    assert pair["expires_in"] == 600, "no token outlives the impersonation"
    assert await status(app, "/test/person", pair["access_token"]) == 200
    assert (callers[0].session_id, callers[0].impersonator_id) == (impersonation.session_id, support.id)
    assert await run_sql(pool, "select expires_at, ends_at from sessions where user_id = %s", user.id) == [
        (began + timedelta(hours=1),) * 2
    ]
    clock.advance(timedelta(minutes=11))
    assert (await api.post("/api/auth/refresh", {"refresh_token": pair["refresh_token"]})).status == 401
    assert (await ask(app, "GET", "/test/person", token=pair["access_token"])).status == 401
