"""Application tokens: their validity and rights (decision 52; security J-3, J-5, J-6, J-9, T-5)."""

from dataclasses import replace
from uuid import UUID

import pytest
from quart_trio import QuartTrio

from core.kernel.values import new_id
from entrypoints.http.edge.access.declaration import ApplicationTokens, access_of
from tests.accounts.profiles import NO_FIELDS
from tests.authentication.api.service_sessions.shop import Shop
from tests.proof.access.calls import routes
from tests.support.builders import EMAIL, add_member, sign_in, user_claims
from tests.support.paths import PATH_VALUES, add_ruler, filled
from tests.support.refusals import FORBIDDEN, UNAUTHORIZED, refused
from tests.support.services import add_service, sign_in_to
from tests.support.tenants import Tenant, Tenants

# Tokens with wrong claims


async def test_a_token_is_only_valid_with_its_own_application_and_session(shop: Shop, other_tenant: Tenant, tenants: Tenants) -> None:
    """The tokens have a valid signature and wrong claims: a bug in the issuer alone must not be enough for an attack."""
    ports, pool = tenants.ports, tenants.pool
    wiki, twin_service = await add_service(pool, shop.tenant.org, "wiki"), await add_service(pool, other_tenant.org, "shop")
    for tenant in (shop.tenant, other_tenant):
        await add_member(pool, tenant.org, shop.user.id, "admin")
    in_shop, in_wiki, in_theirs = [await sign_in_to(ports, pool, service, shop.user) for service in (shop.id, wiki, twin_service)]
    own_session, org_session = await sign_in(ports, shop.user), await sign_in(ports, shop.user, shop.tenant.org)
    of_shop, of_wiki, of_plain, of_org = [
        user_claims(ports.tokens, session.access_token, ports.clock.now()) for session in (in_shop, in_wiki, own_session, org_session)
    ]
    assert refused(await shop.profile({"access_token": in_shop.access_token + "x"})) == (401, "JWT_ERROR")
    for payload in (
        replace(of_shop, client_id=of_wiki.client_id, service="wiki"),  # another service in the organization
        replace(of_shop, client_id=of_wiki.client_id),
        replace(of_wiki, session_id=in_shop.session_id),
        replace(of_shop, session_id=in_theirs.session_id),
        replace(of_shop, session_id=own_session.session_id),  # a session that is not an application's
        replace(of_shop, session_id=org_session.session_id),
        replace(of_shop, client_id=None, service=""),  # an application's session presented as the user's own
        replace(of_shop, client_id=None, service="", org="", org_id=None),
        replace(of_plain, session_id=in_shop.session_id),
        replace(of_org, session_id=in_shop.session_id),
        replace(of_shop, client_id=new_id()),
        replace(of_shop, client_id=shop.id),
    ):
        token = ports.tokens.sign(payload)
        assert refused(await shop.profile({"access_token": token})) == UNAUTHORIZED, payload
        assert (await shop.api.get("/api/organizations/acme", token=token)).status in (401, 403), payload
    for session, org, service in (
        (in_shop, "acme", "shop"),
        (in_wiki, "acme", "wiki"),
        (in_theirs, "twin", "shop"),
        (org_session, "acme", ""),
    ):
        profile = (await shop.profile({"access_token": session.access_token})).json
        assert (profile["org"], profile["service"]) == (org, service)


async def test_organization_and_plan_claims_give_no_rights(shop: Shop, other_tenant: Tenant, tenants: Tenants) -> None:
    session = await sign_in_to(tenants.ports, tenants.pool, shop.id, shop.user)
    payload = user_claims(tenants.ports.tokens, session.access_token, tenants.ports.clock.now())
    token = tenants.ports.tokens.sign(replace(payload, org="twin", org_id=other_tenant.org, service="other", plan="Gold"))
    profile = {"id": str(shop.user.id), "email": EMAIL, "org": "acme", "service": "shop", **NO_FIELDS, "pending_email": None}
    assert (await shop.profile({"access_token": token})).json == profile


# An application's rights


ALLOWED_ROUTES = {
    *("GET /api/user", "POST /api/auth/logout", "GET /api/privacy/export/<user_id>"),
    *("GET /api/user/mfa/status", "GET /api/user/devices", "GET /api/user/devices/<device_id>"),
    *("GET /api/user/identities", "DELETE /api/user/identities/<provider>", "GET /api/provider-token/<provider>", "GET /api/subscription"),
}


async def test_an_application_does_not_see_a_requested_address(shop: Shop, tenants: Tenants) -> None:
    own = (await sign_in(tenants.ports, shop.user)).access_token
    answer = await shop.api.patch("/api/user", {"email": "new@example.com"}, token=own)
    assert (answer.status, answer.json["pending_email"]) == (200, "new@example.com")
    session = await sign_in_to(tenants.ports, tenants.pool, shop.id, shop.user)
    assert (await shop.profile({"access_token": session.access_token})).json["pending_email"] is None


@pytest.mark.slow
async def test_an_application_has_no_other_rights_even_for_an_owner(app: QuartTrio, tenants: Tenants) -> None:
    """The signed-in user owns the organization and is a platform owner."""
    api, ports, pool = tenants.api, tenants.ports, tenants.pool
    ruler, _ = await add_ruler(ports, pool)
    service = await add_service(pool, UUID(PATH_VALUES["org_id"]), "application")
    token = (await sign_in_to(ports, pool, service, ruler)).access_token
    assert (await api.get("/api/user", token=token)).status == 200
    before = await tenants.everything()
    allowed, refused_routes, keys = set(), set(), set()
    for route, view in routes(app):
        access, (method, rule) = access_of(view), route.split()
        if access.credentials.scheme in (None, "cookie", "setup_cookie", "billing_signature"):
            continue
        if access.applications is not ApplicationTokens.NONE:
            allowed.add(route)
            continue
        for body in (None, {}, {"name": "Changed", "email": "changed@example.com", "token": "x", "slug": "changed"}):
            answer = await api.call(method, filled(rule), None if method == "GET" else body, token=token)
            if rule.startswith("/scim/"):
                assert answer.status == 401, route
                keys.add(route)
            elif access.permission is not None or access.name == "pre_auth":
                assert refused(answer) == UNAUTHORIZED, route
                keys.add(route)
            else:
                assert refused(answer) == FORBIDDEN, route
                assert "application" in answer.json["error"], route
                refused_routes.add(route)
    assert allowed == ALLOWED_ROUTES
    assert {"PATCH /api/user", "GET /api/invitations", "POST /api/invitations/accept", "POST /api/organizations"} <= refused_routes
    assert {"GET /api/organizations/<org_slug>", "GET /api/platform/tiers", "POST /api/user/change-password"} <= refused_routes
    assert await tenants.everything() == before


async def test_an_application_cannot_read_organizations(shop: Shop, other_tenant: Tenant) -> None:
    token = (await shop.tokens())["access_token"]
    answers = [await shop.api.get(f"/api/organizations/{slug}", token=token) for slug in ("acme", "twin", "nothing-there", "A")]
    assert {(refused(answer), answer.json["error"]) for answer in answers} == {(FORBIDDEN, answers[0].json["error"])}
