"""The claim settings that products document, read from the tokens of an application.

Roles stand for groups, under the name `groups`: both are lists of texts.
"""

from collections.abc import Mapping
from typing import Any, Final

import pytest

from core.accounts.model.accounts import Account
from core.authentication.model.openid import Scope
from entrypoints.http.pages.applications.claim_forms import find_preset, to_document
from tests.federation.api.openid.client import OpenIdClient
from tests.support.builders import EMAIL, add_member
from tests.support.tenants import Tenant

SCOPE: Final = "openid profile email groups roles"
ROLES_AS_GROUPS: Final = {"names": {"roles": "groups", "groups": "other_groups"}}


@pytest.fixture
async def application(signed_in: OpenIdClient, user: Account, acme: Tenant) -> OpenIdClient:
    await signed_in.agree_before(user, *Scope)
    await add_member(acme.pool, acme.org, user.id, "admin", confirmed=True)
    return signed_in


async def claims_with(application: OpenIdClient, acme: Tenant, preset: str, **changes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the claims of the ID token and of the userinfo endpoint with the preset of a product."""
    chosen = find_preset(preset)
    assert chosen is not None
    document = {**to_document(chosen.fill_in({})), **ROLES_AS_GROUPS, **changes, "version": 0}
    answer = await acme.api.call("PUT", f"{acme.path}/services/shop/claims", document, token=acme.token("owner"))
    assert answer.status == 200, answer.text
    tokens = await application.tokens(scope=SCOPE)
    return await application.id_claims(tokens), await application.userinfo(tokens)


async def test_grafana_finds_the_login_the_groups_and_the_role(application: OpenIdClient, acme: Tenant) -> None:
    """Each path is looked up in the ID token first, and then in the answer of `api_url`.

    https://grafana.com/docs/grafana/latest/setup-grafana/configure-access/configure-authentication/generic-oauth/
    """
    id_token, userinfo = await claims_with(application, acme, "grafana")
    for claims in (id_token, userinfo):
        assert claims["preferred_username"] == EMAIL  # login_attribute_path = preferred_username
        assert claims["groups"] == ["admin"]  # groups_attribute_path = groups
        role = "Admin" if "admin" in claims["groups"] else "Viewer"  # contains(groups[*], 'admin') && 'Admin' || 'Viewer'
        assert (role, claims["email"]) == ("Admin", EMAIL)


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
    assert user == (EMAIL, ["oidc:admin"])


async def test_kubernetes_can_get_the_prefix_in_the_token(application: OpenIdClient, acme: Tenant) -> None:
    id_token, _ = await claims_with(application, acme, "kubernetes", prefix={"roles": "oidc:"})
    assert kubernetes_user(id_token, username="email", groups="groups") == (EMAIL, ["oidc:admin"])


async def test_argo_cd_maps_a_group_to_a_role(application: OpenIdClient, acme: Tenant) -> None:
    """`scopes` in argocd-rbac-cm names the claims whose values `policy.csv` maps, by default `[groups]`.

    https://argo-cd.readthedocs.io/en/stable/operator-manual/user-management/
    """
    id_token, _ = await claims_with(application, acme, "argo-cd")
    scopes, policy = ["groups", "email"], {"admin": "role:admin"}  # g, admin, role:admin
    subjects = [value for claim in scopes for value in (id_token[claim] if isinstance(id_token[claim], list) else [id_token[claim]])]
    assert [policy[subject] for subject in subjects if subject in policy] == ["role:admin"]


async def test_vault_names_the_entity_and_its_group_aliases(application: OpenIdClient, acme: Tenant, user: Account) -> None:
    """`groups_claim` must be a list of texts, and `user_claim` a text. `bound_claims` compares values.

    https://developer.hashicorp.com/vault/api-docs/auth/jwt#create-update-role
    """
    id_token, _ = await claims_with(application, acme, "vault", fixed={"tenant": "acme"})
    assert id_token["sub"] == str(user.id)  # user_claim
    assert id_token["groups"] == ["admin"]  # groups_claim
    assert id_token["tenant"] in ["acme"]  # bound_claims
    assert "_claim_sources" not in id_token


async def test_gitlab_finds_the_user_the_name_and_the_groups(application: OpenIdClient, acme: Tenant, user: Account) -> None:
    """OmniAuth merges the ID token and userinfo. GitLab takes `uid_field`, the email address, the name and `groups_attribute`.

    https://docs.gitlab.com/administration/auth/oidc/
    """
    id_token, userinfo = await claims_with(application, acme, "gitlab")
    raw = {**id_token, **userinfo}
    assert (raw["sub"], raw["preferred_username"]) == (str(user.id), EMAIL)  # uid_field, and the user name
    assert (raw["email"], raw["email_verified"]) == (EMAIL, True)
    assert {*raw["groups"]} & {"admin"}, "admin_groups"


async def test_an_application_that_needs_a_user_name_gets_one_without_a_profile(application: OpenIdClient, acme: Tenant) -> None:
    """As in the case of applications that refuse a sign-in without preferred_username."""
    id_token, userinfo = await claims_with(application, acme, "gitlab")
    assert "name" not in userinfo, "the user has filled in nothing"
    assert id_token["preferred_username"] == userinfo["preferred_username"] == EMAIL
