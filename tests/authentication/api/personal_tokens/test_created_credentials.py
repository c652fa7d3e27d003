"""A token with scopes creates no credential that can do more than the token, because the credential remains (security J-7)."""

from collections.abc import Mapping
from typing import Any, Final

import pytest

from core.applications.model.api_keys import rights_used
from core.kernel.api_scopes import ApiScope, scope_of
from core.kernel.roles import ADMIN, GRANTABLE, OWNER, ROLES, Permission, Rights
from core.provisioning.model import directories
from tests.support.builders import Answer, run_sql
from tests.support.openapi import operations
from tests.support.personal_tokens import add_personal_token
from tests.support.programs import add_credential, add_service_account
from tests.support.services import add_service
from tests.support.tenants import Tenant

ORG: Final = "/api/organizations/{org_slug}"
KEYS: Final = f"POST {ORG}/services/{{service_slug}}/api-keys"
SCIM_TOKENS: Final = f"POST {ORG}/scim-tokens"
SECRETS: Final = frozenset({"key", "token", "secret", "client_secret"})
# The operations that return a secret, with the reason why a token needs no scope except the route's scope.
OF_ONE_SCOPE: Final = {
    f"POST {ORG}/services": "the secret signs in to an application that the token can change",
    f"PATCH {ORG}/services/{{service_slug}}": "as above",
    f"POST {ORG}/services/{{service_slug}}/rotate-secret": "as above",
    f"POST {ORG}/api-resources/{{resource_id}}/credentials": "the secret is of an API resource that the token can change",
    f"POST {ORG}/registration-tokens": "the secret only registers applications, which the token can do, too",
    f"POST {ORG}/webhooks": "the secret only signs deliveries",
    f"POST {ORG}/webhooks/{{webhook_id}}/rotate-secret": "as above",
    f"POST {ORG}/invitations": "the token is for the invitee, who then has rights of their own: members:write gives roles",
}


def scopes_of_rights(rights: Rights) -> frozenset[ApiScope]:
    scopes = {scope_of(right, changes=not right.endswith(".view")) for right in rights}
    return frozenset(scope for scope in scopes if scope is not None)


def test_each_operation_that_returns_a_secret_is_limited_or_has_a_reason() -> None:
    found = set()
    for method, path, operation in operations():
        schemes = {scheme for requirement in operation.get("security", []) for scheme in requirement}
        answers = [answer for status, answer in operation["responses"].items() if status.startswith("2")]
        names = {name for answer in answers for body in answer.get("content", {}).values() for name in body["schema"].get("properties", {})}
        if method != "GET" and schemes & {"personal_token", "service_account"} and names & SECRETS:
            found.add(f"{method} {path}")
    assert found == {KEYS, SCIM_TOKENS, *OF_ONE_SCOPE}


async def tokens_with(acme: Tenant, *scopes: ApiScope) -> list[str]:
    """Return a personal access token and a service account's token that have these scopes only."""
    token = await add_personal_token(acme.ports, acme.people["owner"], acme.org, scopes)
    name = f"Robot {' '.join(scopes)}"
    account = await add_service_account(
        acme.pool, acme.org, acme.people["owner"].id, ADMIN, scopes=scopes, granted=[*map(str, GRANTABLE)], name=name
    )
    return [token.text, await (await add_credential(acme.pool, acme.api, account, acme.org)).token()]


async def create_key(acme: Tenant, token: str, *permissions: Permission) -> Answer:
    return await acme.api.post(f"{acme.path}/services/shop/api-keys", {"name": "Robot", "permissions": permissions}, token=token)


def check_refusal(answer: Answer, missing: ApiScope) -> None:
    assert (answer.status, missing in answer.json["error"]) == (403, True), (missing, answer.text)
    challenge = answer.headers["WWW-Authenticate"]
    assert 'error="insufficient_scope"' in challenge
    assert missing in challenge


@pytest.mark.slow
async def test_each_permission_of_a_key_needs_a_scope_of_the_token(acme: Tenant) -> None:
    await add_service(acme.pool, acme.org, "shop")
    for permission in Permission:
        needed = scopes_of_rights(rights_used([permission], ROLES[OWNER].rights))
        assert needed
        for token in await tokens_with(acme, ApiScope.API_KEYS_WRITE, *needed):
            assert (await create_key(acme, token, permission)).status == 201, permission
        for missing in needed:
            for token in await tokens_with(acme, *(scope for scope in ApiScope if scope != missing and not scope.area.is_of_platform)):
                check_refusal(await create_key(acme, token, *Permission), missing)
                check_refusal(await create_key(acme, token, permission), missing)
    assert await run_sql(acme.pool, "select count(*) from api_keys") == [(2 * len(Permission),)]
    assert (await create_key(acme, acme.token("owner"), *Permission)).status == 201, "a session has no scopes"


@pytest.mark.slow
async def test_a_directory_is_empowered_only_by_a_token_with_the_scopes_for_members_and_end_users(acme: Tenant) -> None:
    tokens = f"{acme.path}/scim-tokens"
    kept = (await acme.api.post(tokens, {"name": "Okta"}, token=acme.token("owner"))).json["id"]
    of_users, needed = [scopes_of_rights(directories.rights_used(directory_groups=groups)) for groups in (False, True)]
    bodies: Mapping[bool, dict[str, Any]] = {on: {"directory_groups": on} for on in (True, False)}
    for missing in needed:
        some = (scope for scope in needed if scope != missing)
        for token in await tokens_with(acme, ApiScope.INTEGRATIONS_WRITE, *some):
            if missing in of_users:
                check_refusal(await acme.api.post(tokens, {"name": "Mine"}, token=token), missing)
            check_refusal(await acme.api.patch(f"{tokens}/{kept}", bodies[True], token=token), missing)
            assert (await acme.api.patch(f"{tokens}/{kept}", bodies[False], token=token)).status == 200
    assert await run_sql(acme.pool, "select name, directory_groups from scim_tokens") == [("Okta", False)]
    for token in await tokens_with(acme, ApiScope.INTEGRATIONS_WRITE, *needed):
        assert (await acme.api.post(tokens, {"name": "Mine"}, token=token)).status == 200
        assert (await acme.api.patch(f"{tokens}/{kept}", bodies[True], token=token)).status == 200
