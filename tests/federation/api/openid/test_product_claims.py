"""The claim settings that products document, read from an application's tokens. The user is in the settings' groups."""

import re
from collections.abc import Mapping
from typing import Any, Final

import pytest

from core.accounts.model.accounts import Account
from core.authentication.model.openid import Scope
from entrypoints.http.pages.applications.claims import PRESETS, find_preset, to_document
from tests.federation.api.openid.client import OpenIdClient
from tests.support.builders import EMAIL, add_member, run_sql
from tests.support.tenants import Tenant
from tests.tenancy.groups import GroupAdmin

SCOPE: Final = "openid profile email groups roles"
GROUPS: Final = ("argocd-admins", "grafana-admins")


@pytest.fixture
async def application(signed_in: OpenIdClient, user: Account, acme: Tenant) -> OpenIdClient:
    await signed_in.agree_before(user, *Scope)
    await add_member(acme.pool, acme.org, user.id, "admin", confirmed=True)
    groups = GroupAdmin(acme, "owner")
    for name in (*GROUPS, "empty"):
        group = await groups.create(name)
        if name in GROUPS:
            assert (await groups.add(group, user.id)).status == 204
    return signed_in


def setting(preset: str, pattern: str) -> tuple[str, ...]:
    """Return a setting's parts, as the page shows it for the product."""
    chosen = find_preset(preset)
    assert chosen is not None
    found = re.search(pattern, chosen.settings)
    assert found is not None, chosen.settings
    return found.groups()


async def claims_with(application: OpenIdClient, acme: Tenant, preset: str, **changes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the claims in the ID token and from the userinfo endpoint with a product's preset."""
    chosen = find_preset(preset)
    assert chosen is not None
    document = {**to_document(chosen.fill_in({})), "version": 0, **changes}
    answer = await acme.api.call("PUT", f"{acme.path}/services/shop/claims", document, token=acme.token("owner"))
    assert answer.status == 200, answer.text
    tokens = await application.tokens(scope=SCOPE)
    return await application.id_claims(tokens), await application.userinfo(tokens)


async def test_grafana_finds_the_login_the_groups_and_the_role(application: OpenIdClient, acme: Tenant) -> None:
    """A path is looked up first in the ID token, and then in the answer from `api_url`.

    https://grafana.com/docs/grafana/latest/setup-grafana/configure-access/configure-authentication/generic-oauth/
    """
    id_token, userinfo = await claims_with(application, acme, "grafana")
    (login,), (groups,) = setting("grafana", r"login_attribute_path = (\w+)"), setting("grafana", r"groups_attribute_path = (\w+)")
    # JMESPath: contains(groups[*], 'grafana-admins') && 'Admin' || 'Viewer'
    path, group, yes, no = setting("grafana", r"role_attribute_path = contains\((\w+)\[\*\], '([\w-]+)'\) && '(\w+)' \|\| '(\w+)'")
    for claims in (id_token, userinfo):
        assert (claims[login], claims["email"]) == (EMAIL, EMAIL)
        assert claims[groups] == [*GROUPS]
        assert (yes if group in claims[path] else no) == "Admin"


def kubernetes_user(
    claims: Mapping[str, Any], *, username: str, groups: str, groups_prefix: str = "", required: Mapping[str, str] | None = None
) -> tuple[str, list[str]]:
    """Return the user and the groups as the API server reads them from an ID token.

    https://kubernetes.io/docs/reference/access-authn-authz/authentication/#openid-connect-tokens
    """
    name, found = claims[username], claims.get(groups, [])
    assert isinstance(name, str)
    assert username != "email" or claims.get("email_verified", True) is True
    assert isinstance(found, list | str)
    names = [found] if isinstance(found, str) else found
    assert all(isinstance(each, str) for each in names)
    assert all(claims[claim] == value for claim, value in (required or {}).items())
    return name, [groups_prefix + each for each in names]


async def test_kubernetes_reads_the_user_the_groups_and_a_required_claim(application: OpenIdClient, acme: Tenant) -> None:
    id_token, _ = await claims_with(application, acme, "kubernetes", fixed={"tenant": "acme"})
    user = kubernetes_user(id_token, username="email", groups="groups", groups_prefix="oidc:", required={"tenant": "acme"})
    assert user == (EMAIL, [f"oidc:{name}" for name in GROUPS])


async def test_kubernetes_can_get_the_prefix_in_the_token(application: OpenIdClient, acme: Tenant) -> None:
    id_token, _ = await claims_with(application, acme, "kubernetes", prefix={"groups": "oidc:"})
    assert kubernetes_user(id_token, username="email", groups="groups") == (EMAIL, [f"oidc:{name}" for name in GROUPS])


async def test_argo_cd_maps_a_group_to_a_role(application: OpenIdClient, acme: Tenant) -> None:
    """`scopes` in argocd-rbac-cm names the claims with the values that `policy.csv` maps, by default `[groups]`.

    https://argo-cd.readthedocs.io/en/stable/operator-manual/user-management/
    """
    id_token, _ = await claims_with(application, acme, "argo-cd")
    group, role = setting("argo-cd", r"policy.csv: g, ([\w-]+), (role:\w+)")
    scopes, policy = ["groups", "email"], {group: role}
    subjects = [value for claim in scopes for value in (id_token[claim] if isinstance(id_token[claim], list) else [id_token[claim]])]
    assert [policy[subject] for subject in subjects if subject in policy] == ["role:admin"]


async def test_vault_names_the_entity_and_its_group_aliases(application: OpenIdClient, acme: Tenant, user: Account) -> None:
    """`groups_claim` must be a list of texts, and `user_claim` a text. `bound_claims` compares values.

    https://developer.hashicorp.com/vault/api-docs/auth/jwt#create-update-role
    """
    id_token, _ = await claims_with(application, acme, "vault", fixed={"tenant": "acme"})
    (user_claim,), (groups_claim,) = setting("vault", r'user_claim="(\w+)"'), setting("vault", r'groups_claim="(\w+)"')
    assert id_token[user_claim] == str(user.id)
    assert id_token[groups_claim] == [*GROUPS]
    assert id_token["tenant"] in ["acme"]  # bound_claims
    assert "_claim_sources" not in id_token


async def test_gitlab_finds_the_user_and_the_groups(application: OpenIdClient, acme: Tenant, user: Account) -> None:
    """OmniAuth merges the ID token and userinfo. GitLab takes `uid_field`, the email address, the name and `groups_attribute`.

    https://docs.gitlab.com/administration/auth/oidc/
    """
    id_token, userinfo = await claims_with(application, acme, "gitlab")
    raw = {**id_token, **userinfo}
    assert raw[setting("gitlab", r'uid_field: "(\w+)"')[0]] == str(user.id)
    assert (raw["email"], raw["email_verified"]) == (EMAIL, True)
    assert {*raw[setting("gitlab", r'groups_attribute: "(\w+)"')[0]]} & {"grafana-admins"}, "admin_groups"


async def test_no_user_takes_the_name_of_another_one_at_a_product(application: OpenIdClient, acme: Tenant, user: Account) -> None:
    """Users choose their `preferred_username`. No preset or preset setting finds a user by such a name."""
    await run_sql(acme.pool, 'update users set profile_details = \'{"preferred_username": "owner"}\' where id = %s', user.id)
    for preset in PRESETS:
        version = (await acme.api.get(f"{acme.path}/services/shop/claims", token=acme.token("owner"))).json["version"]
        id_token, userinfo = await claims_with(application, acme, preset.name, version=version)
        named = {*re.findall(r"(?:login_attribute_path = |username-claim=|user_claim=\"|uid_field: \")(\w+)", preset.settings)}
        assert named <= {"sub", "email"}, preset.name
        if "preferred_username" in preset.reads:
            assert id_token["preferred_username"] == userinfo["preferred_username"] == EMAIL, preset.name


async def test_an_application_that_needs_a_user_name_gets_one_without_a_profile(application: OpenIdClient, acme: Tenant) -> None:
    """Some applications refuse a sign-in without preferred_username."""
    id_token, userinfo = await claims_with(application, acme, "gitlab")
    assert "name" not in userinfo, "the user has filled in nothing"
    assert id_token["preferred_username"] == userinfo["preferred_username"] == EMAIL
