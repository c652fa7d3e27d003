"""Refreshing and ending sessions at a service (decisions 48, 61; security S-1, S-2, S-3)."""

from datetime import timedelta

from tests.authentication.api.service_sessions.shop import Shop, claims
from tests.fakes.outside import FakeClock
from tests.support.builders import PASSWORD, add_member, run_sql
from tests.support.refusals import FORBIDDEN, NOT_ACTIVE, UNAUTHORIZED, refused
from tests.support.services import add_service, sign_in_to
from tests.support.tenants import Tenants


async def test_a_refresh_keeps_the_service(shop: Shop, clock: FakeClock) -> None:
    first = await shop.tokens()
    clock.advance(timedelta(minutes=20))
    second = (await shop.refresh(first)).json
    claim_names = ("iss", "aud", "sub", "email", "sid", "org", "org_id", "service", "token_use")
    assert [claims(second)[name] for name in claim_names] == [claims(first)[name] for name in claim_names]
    assert claims(second)["jti"] != claims(first)["jti"]
    assert (await shop.profile(second)).json["service"] == "shop"
    assert refused(await shop.profile(first)) == (401, "TOKEN_EXPIRED")


async def test_a_suspension_refuses_refreshes_but_not_the_profile(shop: Shop) -> None:
    pair = await shop.tokens()
    for status in ("suspended", "rejected", "pending"):
        await shop.tenant.set_status(status)
        assert refused(await shop.refresh(pair)) == NOT_ACTIVE
        assert (await shop.profile(pair)).json["service"] == "shop"
    await shop.tenant.set_status("active")
    assert (await shop.refresh(pair)).status == 200


async def test_a_user_removed_from_the_service_is_refused(shop: Shop, tenants: Tenants) -> None:
    await add_member(tenants.pool, shop.tenant.org, shop.user.id, "admin")  # membership in the organization does not help
    pair, other = await shop.tokens(), await shop.tokens()
    await shop.detach()
    assert refused(await shop.profile(pair)) == FORBIDDEN
    assert refused(await shop.refresh(pair)) == UNAUTHORIZED
    assert refused(await shop.api.get("/api/organizations/acme", token=pair["access_token"])) == FORBIDDEN
    await shop.tenant.set_status("suspended")
    assert refused(await shop.refresh(pair)) == UNAUTHORIZED, "an activation of the organization would not change this"
    await shop.tenant.set_status("active")
    assert (await shop.api.post("/api/auth/logout", token=other["access_token"])).status == 200, "a sign-out always works"
    assert (await shop.profile(await shop.tokens())).status == 200, "a new login works"


async def test_tokens_of_a_deleted_service_are_invalid_for_its_successor(shop: Shop, tenants: Tenants) -> None:
    pair = await shop.tokens()

    async def check() -> None:
        assert refused(await shop.profile(pair)) == UNAUTHORIZED
        assert refused(await shop.refresh(pair)) == UNAUTHORIZED
        assert refused(await shop.api.post("/api/auth/logout", token=pair["access_token"])) == UNAUTHORIZED

    await run_sql(tenants.pool, "delete from services where id = %s", shop.id)
    await check()
    successor = await add_service(tenants.pool, shop.tenant.org, "shop")
    await sign_in_to(tenants.ports, tenants.pool, successor, shop.user)
    await check()


async def test_tokens_of_a_deleted_organization_are_invalid_for_its_successor(shop: Shop, tenants: Tenants) -> None:
    pair = await shop.tokens()
    await run_sql(tenants.pool, "delete from organizations where id = %s", shop.tenant.org)
    assert refused(await shop.profile(pair)) == UNAUTHORIZED
    successor = await tenants.add("acme", cast={})
    await sign_in_to(tenants.ports, tenants.pool, await add_service(tenants.pool, successor.org, "shop"), shop.user)
    assert refused(await shop.profile(pair)) == UNAUTHORIZED
    assert refused(await shop.refresh(pair)) == UNAUTHORIZED


async def test_reuse_ends_the_whole_session_of_the_service_and_no_other(shop: Shop, clock: FakeClock) -> None:
    first, other, own_pair = await shop.tokens(), await shop.tokens(), (await shop.login(None, None)).json
    second = (await shop.refresh(first)).json
    clock.advance(timedelta(seconds=10))
    assert refused(await shop.refresh(first)) == UNAUTHORIZED
    assert (await shop.profile(second)).status == 200, "two tabs may race"
    clock.advance(timedelta(microseconds=1))
    assert refused(await shop.refresh(first)) == UNAUTHORIZED
    assert refused(await shop.profile(second)) == UNAUTHORIZED
    assert refused(await shop.refresh(second)) == UNAUTHORIZED
    for pair in (other, own_pair):
        assert (await shop.refresh(pair)).status == 200


async def test_logout_ends_this_session_only(shop: Shop) -> None:
    own_tokens, other, own_pair = await shop.tokens(), await shop.tokens(), (await shop.login(None, None)).json
    assert (await shop.api.post("/api/auth/logout", token=own_tokens["access_token"])).status == 200
    assert refused(await shop.profile(own_tokens)) == UNAUTHORIZED
    assert refused(await shop.refresh(own_tokens)) == UNAUTHORIZED
    for pair in (other, own_pair):
        assert (await shop.profile(pair)).status == 200


async def test_events_that_end_all_sessions_of_a_user_end_those_of_services(shop: Shop) -> None:
    pair, own_pair = await shop.tokens(), (await shop.login(None, None)).json
    body = {"current_password": PASSWORD, "new_password": "another good password"}
    assert (await shop.api.post("/api/user/change-password", body, token=own_pair["access_token"])).status == 200
    assert refused(await shop.profile(pair)) == UNAUTHORIZED
    assert refused(await shop.refresh(pair)) == UNAUTHORIZED


async def test_a_session_of_a_service_is_extended_and_ends_like_other_sessions(shop: Shop, clock: FakeClock) -> None:
    pair = await shop.tokens()
    for _ in range(3):
        clock.advance(timedelta(days=30) - timedelta(seconds=1))
        pair = (await shop.refresh(pair)).json
    assert pair["expires_in"] == 3  # the absolute end after 90 days
    clock.advance(timedelta(seconds=3))
    assert refused(await shop.refresh(pair)) == UNAUTHORIZED
