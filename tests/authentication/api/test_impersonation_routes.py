"""The routes that are allowed or forbidden during an impersonation (security I-3, I-4, J-9)."""

from uuid import uuid4

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from entrypoints.http.edge.access import access_of
from ports import Ports
from tests.support.builders import (
    PASSWORD,
    Answer,
    Api,
    add_account,
    add_member,
    add_organization,
    add_platform_owner,
    impersonate,
    run_concurrently,
    run_sql,
    sign_in,
)
from tests.support.impersonator import Support
from tests.support.refusals import FORBIDDEN, refused
from tests.support.services import add_service
from tests.support.tenants import Tenant, Tenants

# All routes that need a user's token are in one of two sets: forbidden to impersonators ...
REFUSED = {
    # password, email address
    ("PATCH", "/api/user"),
    ("POST", "/api/user/set-password"),
    # a new sign-in of the user
    ("GET", "/api/auth/reauthenticate"),
    ("POST", "/api/auth/reauthenticate"),
    ("POST", "/api/auth/reauthenticate/email"),
    ("POST", "/api/auth/reauthenticate/<provider>"),
    ("POST", "/api/user/change-password"),
    # the second factor
    ("POST", "/api/user/mfa/setup"),
    ("POST", "/api/user/mfa/verify"),
    ("DELETE", "/api/user/mfa"),
    ("POST", "/api/user/mfa/backup-codes/regenerate"),
    # devices
    ("PATCH", "/api/user/devices/<device_id>"),
    ("DELETE", "/api/user/devices/<device_id>"),
    # personal access tokens
    ("POST", "/api/user/personal-tokens"),
    ("DELETE", "/api/user/personal-tokens/<personal_token_id>"),
    ("DELETE", "/api/organizations/<org_slug>/personal-tokens/<personal_token_id>"),
    # identities and provider tokens
    ("POST", "/api/user/identities/<provider>/link"),
    ("DELETE", "/api/user/identities/<provider>"),
    ("GET", "/api/provider-token/<provider>"),
    # consents
    ("DELETE", "/api/user/consents/<service_id>"),
    # privacy
    ("GET", "/api/privacy/export/<user_id>"),
    ("DELETE", "/api/privacy/forget/<user_id>"),
    ("DELETE", "/api/user"),
    # invitations
    ("POST", "/api/invitations/accept"),
    ("POST", "/api/invitations/decline"),
    ("POST", "/api/organizations/<org_slug>/invitations/<invitation_id>/accept"),
    # secrets of applications
    ("POST", "/api/organizations/<org_slug>/services/<service_slug>/api-keys"),
    ("POST", "/api/organizations/<org_slug>/services/<service_slug>/rotate-secret"),
    ("POST", "/api/organizations/<org_slug>/services/<service_slug>/saml/certificate"),
    ("POST", "/api/organizations/<org_slug>/services/<service_slug>/saml/certificate/next"),
    ("DELETE", "/api/organizations/<org_slug>/services/<service_slug>/saml/certificate/next"),
    ("POST", "/api/organizations/<org_slug>/services/<service_slug>/saml/certificate/activate"),
    ("POST", "/api/organizations/<org_slug>/services/<service_slug>/saml/certificate/undo"),
    ("POST", "/api/organizations/<org_slug>/scim-tokens"),
    ("POST", "/api/organizations/<org_slug>/webhooks"),
    ("POST", "/api/organizations/<org_slug>/webhooks/<webhook_id>/rotate-secret"),
    # the organization itself
    ("POST", "/api/organizations/<org_slug>/transfer-ownership"),
    ("DELETE", "/api/organizations/<org_slug>/service-accounts/<account_id>/created-secrets"),
    ("DELETE", "/api/organizations/<org_slug>"),
    # organizations, applications, roles, and connections to other systems
    ("POST", "/api/organizations"),
    ("DELETE", "/api/organizations/<org_slug>/domain"),
    ("POST", "/api/organizations/<org_slug>/domain"),
    ("POST", "/api/organizations/<org_slug>/domain/verify"),
    ("DELETE", "/api/organizations/<org_slug>/directory-blocks/<user_id>"),
    ("PUT", "/api/organizations/<org_slug>/hrd"),
    ("PATCH", "/api/organizations/<org_slug>/members/<user_id>"),
    ("POST", "/api/organizations/<org_slug>/members/<user_id>"),
    ("POST", "/api/organizations/<org_slug>/members/<user_id>/password-reset"),
    ("DELETE", "/api/organizations/<org_slug>/scim-tokens/<token_id>"),
    ("POST", "/api/organizations/<org_slug>/services"),
    ("DELETE", "/api/organizations/<org_slug>/services/<service_slug>"),
    ("PATCH", "/api/organizations/<org_slug>/services/<service_slug>"),
    ("DELETE", "/api/organizations/<org_slug>/services/<service_slug>/api-keys/<api_key_id>"),
    ("DELETE", "/api/organizations/<org_slug>/services/<service_slug>/oauth-credentials/<provider>"),
    ("PUT", "/api/organizations/<org_slug>/services/<service_slug>/oauth-credentials/<provider>"),
    ("DELETE", "/api/organizations/<org_slug>/services/<service_slug>/saml"),
    ("POST", "/api/organizations/<org_slug>/services/<service_slug>/saml"),
    ("DELETE", "/api/organizations/<org_slug>/siem"),
    ("POST", "/api/organizations/<org_slug>/siem"),
    ("DELETE", "/api/organizations/<org_slug>/smtp"),
    ("POST", "/api/organizations/<org_slug>/smtp"),
    ("DELETE", "/api/organizations/<org_slug>/webhooks/<webhook_id>"),
    ("PATCH", "/api/organizations/<org_slug>/webhooks/<webhook_id>"),
    ("POST", "/api/organizations/<org_slug>/leave"),
    ("PUT", "/api/organizations/<org_slug>/services/<service_slug>/access"),
    ("DELETE", "/api/organizations/<org_slug>/services/<service_slug>/assignments/<user_id>"),
    ("PUT", "/api/organizations/<org_slug>/services/<service_slug>/assignments/<user_id>"),
    ("POST", "/api/organizations/<org_slug>/services/<service_slug>/assignments"),
    *(
        (method, f"/api/organizations/<org_slug>/service-accounts{path}")
        for methods, path in [
            ("POST", ""),
            ("PATCH DELETE", "/<account_id>"),
            ("PUT DELETE", "/<account_id>/api-resources/<resource_id>"),
            ("POST", "/<account_id>/credentials"),
            ("DELETE", "/<account_id>/credentials/<credential_id>"),
        ]
        for method in methods.split()
    ),
    ("POST", "/api/organizations/<org_slug>/api-resources"),
    *(
        (method, f"/api/organizations/<org_slug>/api-resources/<resource_id>{path}")
        for methods, path in [
            ("PATCH DELETE", ""),
            ("POST", "/credentials"),
            ("DELETE", "/credentials/<credential_id>"),
            ("PUT", "/access"),
            ("POST", "/assignments"),
            ("PUT DELETE", "/assignments/<user_id>"),
            ("PUT DELETE", "/clients/<client_id>"),
        ]
        for method in methods.split()
    ),
    # sign-ins elsewhere
    ("GET", "/api/organizations/<org_slug>/services/<service_slug>/saml/login"),
    ("POST", "/auth/device/verify"),
}
# ... or allowed. A new route must be added to one of them.
ALLOWED = {
    ("GET", "/api/user"),
    ("GET", "/api/user/mfa/status"),
    ("GET", "/api/user/mfa/events"),
    ("GET", "/api/user/privacy-log"),
    ("GET", "/api/user/devices"),
    ("GET", "/api/user/devices/<device_id>"),
    ("GET", "/api/user/applications"),
    ("GET", "/api/user/consents"),
    ("GET", "/api/user/identities"),
    ("GET", "/api/user/personal-tokens"),
    ("GET", "/api/organizations/<org_slug>/personal-tokens"),
    ("GET", "/api/subscription"),
    ("POST", "/api/auth/logout"),
    ("GET", "/api/invitations"),
    ("GET", "/api/organizations"),
    *((method, "/api/organizations/<org_slug>") for method in ("GET", "PATCH")),
    *(
        (method, f"/api/organizations/<org_slug>/{path}")
        for methods, path in [
            ("POST", "select"),
            ("GET", "members"),
            ("GET", "members/<user_id>"),
            ("DELETE", "members/<user_id>/sessions"),
            ("GET POST", "invitations"),
            ("POST", "invitations/bulk"),
            ("POST", "invitations/<invitation_id>"),
            ("POST", "invitations/<invitation_id>/resend"),
            ("GET", "services"),
            ("GET", "services/<service_slug>"),
            ("GET", "services/<service_slug>/access"),
            ("GET", "services/<service_slug>/sign-in-preview"),
            ("GET", "services/<service_slug>/assignments"),
            ("GET", "service-accounts"),
            ("GET", "service-accounts/<account_id>"),
            ("GET", "service-accounts/<account_id>/api-resources"),
            ("GET", "service-accounts/<account_id>/created-secrets"),
            ("GET", "service-accounts/<account_id>/credentials"),
            ("GET", "api-resources"),
            ("GET", "api-resources/<resource_id>"),
            ("GET", "api-resources/<resource_id>/credentials"),
            ("GET", "api-resources/<resource_id>/access"),
            ("GET", "api-resources/<resource_id>/assignments"),
            ("GET", "api-resources/<resource_id>/clients"),
            ("GET POST", "services/<service_slug>/plans"),
            ("PATCH DELETE", "services/<service_slug>/plans/<plan_id>"),
            ("GET", "services/<service_slug>/subscriptions"),
            ("GET", "services/<service_slug>/api-keys"),
            ("GET", "services/<service_slug>/api-keys/<api_key_id>"),
            ("GET", "services/<service_slug>/oauth-credentials/<provider>"),
            ("GET", "services/<service_slug>/saml"),
            ("GET", "services/<service_slug>/saml/certificate"),
            ("GET", "services/<service_slug>/saml/certificate/next"),
            ("POST", "services/<service_slug>/saml/metadata"),
            ("GET", "services/<service_slug>/saml/check"),
            ("POST", "services/<service_slug>/checkout"),
            ("GET", "users"),
            ("GET", "users/<user_id>"),
            ("DELETE", "users/<user_id>/sessions"),
            ("GET", "overview"),
            ("GET", "analytics/login-trends"),
            ("GET", "analytics/logins-by-service"),
            ("GET", "analytics/logins-by-provider"),
            ("GET", "analytics/recent-logins"),
            ("GET", "audit-log"),
            ("GET", "audit-log/event-types"),
            ("GET", "audit-log/export"),
            ("GET", "audit-log/<entry_id>"),
            ("GET", "smtp"),
            ("POST", "smtp/test"),
            ("GET", "directory-blocks"),
            ("GET", "scim-tokens"),
            ("GET", "scim-requests"),
            ("GET", "siem"),
            ("POST", "siem/test"),
            ("GET", "webhooks"),
            ("GET", "webhooks/event-types"),
            ("GET", "webhooks/<webhook_id>"),
            ("GET", "webhooks/<webhook_id>/deliveries"),
            ("GET", "webhooks/<webhook_id>/deliveries/<delivery_id>"),
            ("POST", "webhooks/<webhook_id>/test"),
            ("POST", "webhooks/<webhook_id>/deliveries/<delivery_id>/replay"),
            ("GET PATCH", "branding"),
            ("GET", "domain"),
            ("GET", "domain/accounts"),
            ("GET", "domain/invitations"),
            ("GET", "hrd"),
        ]
        for method in methods.split()
    ),
}


async def test_every_route_is_listed_as_allowed_or_forbidden(app: QuartTrio) -> None:
    routes: dict[bool, set[tuple[str, str]]] = {True: set(), False: set()}
    for rule in app.url_map.iter_rules():
        access = access_of(app.view_functions[rule.endpoint])
        if access.security == "bearer" and access.name != "pre_auth":
            routes[access.outlives is not True and access.name != "platform_owner"] |= {
                (method, rule.rule) for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
            }
    of_the_platform = {(method, rule) for method, rule in routes[False] if rule.startswith("/api/platform/")}
    assert routes[False] == REFUSED | of_the_platform
    assert len(of_the_platform) >= 16
    assert routes[True] == ALLOWED


@pytest.mark.slow
async def test_forbidden_requests_are_refused_before_validation(support: Support, acme: Tenant, pool: Pool) -> None:
    await add_service(acme.pool, acme.org)
    token = await impersonate(support.ports, support.account, acme.people["owner"], acme.org)
    examples = {"org_slug": "acme", "service_slug": "shop", "provider": "codehost", "user_id": acme.id("owner")}
    tables = ("users", "memberships", "organizations", "services", "api_keys", "mfa", "devices", "identities", "mails")
    before = [await run_sql(pool, f"select * from {table} order by 1") for table in tables]  # noqa: S608
    for method, rule in sorted(REFUSED | {("GET", "/api/platform/tiers"), ("POST", "/api/platform/impersonate/<user_id>")}):
        path = "/".join(examples.get(part[1:-1], str(uuid4())) if part.startswith("<") else part for part in rule.split("/"))
        for body in (None if method == "GET" else {}, None if method == "GET" else {"reason": 5, "token": 5}):
            answer = await support.api.call(method, path, body, token=token)
            assert refused(answer) == FORBIDDEN, (method, rule, answer.text)
            assert "impersonating" in answer.json["error"]
    assert [await run_sql(pool, f"select * from {table} order by 1") for table in tables] == before  # noqa: S608


async def test_an_impersonator_does_not_confirm_a_membership(support: Support, acme: Tenant) -> None:
    await add_member(acme.pool, acme.org, support.user.id)
    impersonation = await support.begin(org_slug="acme")
    assert (await support.api.get(f"{acme.path}/members", token=impersonation["access_token"])).status == 200
    assert await run_sql(acme.pool, "select confirmed_at from memberships where user_id = %s", support.user.id) == [(None,)]


async def test_an_impersonation_acts_only_in_the_organization_that_it_names(support: Support, app: QuartTrio, tenants: Tenants) -> None:
    acme, other = await tenants.add("acme"), await tenants.add("other")
    await run_sql(
        support.pool,
        "update memberships set user_id = %s where org_id = any(%s) and role = 'owner'",
        support.user.id,
        [acme.org, other.org],
    )
    token = (await support.begin(org_slug="acme"))["access_token"]
    assert (await support.api.get(f"{acme.path}/members", token=token)).status == 200
    before = await other.log()
    examples = {"org_slug": "other", "provider": "codehost"}
    for rule in app.url_map.iter_rules():
        if access_of(app.view_functions[rule.endpoint]).name != "member":
            continue
        path = "/".join(examples.get(part[1:-1], str(uuid4())) if part.startswith("<") else part for part in rule.rule.split("/"))
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}:
            answer = await support.api.call(method, path, None if method == "GET" else {}, token=token)
            assert refused(answer) == FORBIDDEN, (method, rule.rule, answer.text)
    assert await other.log() == before


async def test_each_organization_learns_of_an_impersonation_that_names_none(support: Support, tenants: Tenants) -> None:
    acme, other, untouched = await tenants.add("acme"), await tenants.add("other"), await tenants.add("untouched")
    organizations = [acme.org, other.org, untouched.org]
    await run_sql(
        support.pool, "update memberships set user_id = %s where org_id = any(%s) and role = 'owner'", support.user.id, organizations
    )
    impersonation = await support.begin()
    for tenant in (acme, other, acme):
        for path in (f"{tenant.path}/members", f"{tenant.path}/services"):
            assert (await support.api.get(path, token=impersonation["access_token"])).status == 200
    expected = {"session_id": impersonation["session_id"], "expires_at": impersonation["expires_at"], "service_slug": None}
    for tenant in (acme, other):
        [entry] = await tenant.log()
        assert (entry["action"], entry["target_id"], entry["details"]) == ("user.impersonated", str(support.user.id), expected)
        assert (entry["actor_id"], entry["impersonator_id"]) == (support.user.id, support.account.id)
    assert await untouched.log() == []


async def test_twenty_first_requests_of_an_impersonation_make_one_entry(support: Support, acme: Tenant) -> None:
    await add_member(acme.pool, acme.org, support.user.id)
    token = (await support.begin())["access_token"]
    answers = await run_concurrently(20, lambda _: support.api.get(f"{acme.path}/members", token=token))
    assert {answer.status for answer in answers} == {200}
    assert [entry["action"] for entry in await acme.log()] == ["user.impersonated"]


CHANGES = {
    ("PATCH", "/api/user"): {"email": "moved@example.com"},
    ("POST", "/api/user/set-password"): {"new_password": "another good password"},
    ("POST", "/api/user/change-password"): {"current_password": PASSWORD, "new_password": "another good password"},
}


async def test_an_impersonator_cannot_change_password_or_address(api: Api, ports: Ports, pool: Pool) -> None:
    support, user = await add_platform_owner(ports, "support@example.com"), await add_account(ports)
    token = await impersonate(ports, support, user)
    before = await run_sql(pool, "select * from users order by id")
    for (method, path), body in CHANGES.items():
        for sent in (body, {}, {"email": 5, "new_password": 5}):
            answer: Answer = await api.call(method, path, sent, token=token)
            assert (answer.status, answer.code) == FORBIDDEN
            assert "impersonating" in answer.json["error"]
        assert (await api.call(method, path, raw=b"{", token=token)).status == 403
    assert await run_sql(pool, "select * from users order by id") == before
    assert await run_sql(pool, "select count(*) from mails") == [(0,)]
    assert (await api.get("/api/user", token=token)).json["email"] == user.email


async def test_an_impersonators_logout_ends_only_the_impersonation(api: Api, ports: Ports) -> None:
    support, user = await add_platform_owner(ports, "support@example.com"), await add_account(ports)
    user_token, support_token = (await sign_in(ports, user)).access_token, (await sign_in(ports, support)).access_token
    token = await impersonate(ports, support, user)
    assert (await api.post("/api/auth/logout", token=token)).status == 200
    assert [(await api.get("/api/user", token=one)).status for one in (token, user_token, support_token)] == [401, 200, 200]


async def test_an_impersonators_actions_are_recorded_with_both_users(app: QuartTrio, api: Api, ports: Ports, pool: Pool) -> None:
    support, user = await add_platform_owner(ports, "support@example.com"), await add_account(ports)
    org = await add_organization(pool, "acme")
    await add_member(pool, org, user.id, "owner")
    token = await impersonate(ports, support, user, org)
    answer = await api.post("/api/organizations/acme/invitations", {"email": "new@example.com", "role": "member"}, token=token)
    assert answer.status == 200
    both = (user.id, support.id)
    assert await run_sql(pool, "select distinct actor_id, impersonator_id from audit_log") == [both]
    assert await run_sql(pool, "select distinct actor_id, impersonator_id from events") == [both]
    [entry] = (await api.get("/api/organizations/acme/audit-log", token=token)).json["logs"]
    assert (entry["actor"]["id"], entry["details"]["impersonator"]["id"]) == (str(user.id), str(support.id))
