"""The scope of each route: the challenge, the API description and docs/reference/scopes.md name the same one, or none."""

import re
from pathlib import Path
from typing import Final

import pytest

from core.kernel.sign_in_age import SignInAge
from entrypoints.http.app import build_routes
from entrypoints.http.edge.access.declaration import access_of
from tests.proof.access.calls import routes
from tests.support.builders import Api
from tests.support.openapi import Operation, operations
from tests.support.paths import filled

PAGE: Final = Path(__file__).parents[2] / "docs/reference/scopes.md"
ROW: Final = re.compile(r"\| `(?P<operation>[A-Z]+ /[^`]+)` \| (?:`(?P<scope>[a-z_]+:[a-z]+)`)? \|")


def in_description(operation: Operation) -> set[str | None]:
    """Return the scopes of all alternatives, or None for an operation without one."""
    scopes = {scope for alternative in operation["security"] for each in alternative.values() for scope in each}
    return set(scopes) or {None}


@pytest.mark.slow
async def test_the_challenge_the_description_and_the_reference_agree(api: Api) -> None:
    in_reference = {row["operation"]: row["scope"] for row in ROW.finditer(PAGE.read_text("utf-8"))}
    assert len(in_reference) > 150
    findings = []
    for method, path, operation in operations():
        if not any("dpop" in alternative for alternative in operation.get("security", [])) or path == "/auth/userinfo":
            continue
        answer = await api.call(method, filled(path), token="no token")
        assert answer.status == 401, (method, path, answer.text)
        challenge = answer.headers["WWW-Authenticate"]
        found = re.search(r'scope="([^"]*)"', challenge)
        in_challenge = found[1] if found else None
        expected = in_reference.pop(f"{method} {path}", None)
        if not {in_challenge} == in_description(operation) == {expected}:
            findings.append(f"{method} {path}: {in_challenge}, {in_description(operation)}, {expected}")
    assert findings == []
    assert in_reference == {}, "rows without an operation"


@pytest.mark.parametrize(
    ("operation", "scope"),
    [
        ("DELETE {org}", None),
        ("POST {org}/leave", None),
        ("POST {org}/select", None),
        ("POST {org}/transfer-ownership", None),
        ("POST {org}/smtp/test", None),
        ("DELETE {org}/services/{service_slug}", None),
        ("POST {org}/services/{service_slug}/checkout", None),
        ("GET {org}/services/{service_slug}/sign-in-preview", None),
        ("PATCH {org}/members/{user_id}", "members:write"),  # for service accounts with a grant
        ("POST {org}/invitations/{invitation_id}/accept", "members:write"),
        ("POST {org}/api-resources", "resources:write"),
        ("POST /api/platform/owners", None),
        ("POST /api/platform/users/{user_id}/deactivate", "platform_users:write"),
        ("POST /api/user/personal-tokens", None),
        ("DELETE /api/user/consents/{service_id}", "account:write"),
    ],
)
def test_routes_that_no_token_with_scopes_opens_name_no_scope(operation: str, scope: str | None) -> None:
    name = operation.replace("{org}", "/api/organizations/{org_slug}")
    [found] = [each for method, path, each in operations() if f"{method} {path}" == name]
    assert in_description(found) == {scope}


def test_an_operation_names_the_sign_in_that_it_needs() -> None:
    """With the default ages, in minutes (security A-12)."""
    minutes = {SignInAge.FRESH: "10", SignInAge.RECENT: "60"}
    needed = {
        re.sub(r"<(?:[a-z]+:)?([a-z_]+)>", r"{\1}", route): access_of(view).sign_in_age(route.partition(" ")[0])
        for route, view in routes(build_routes())
        if access_of(view).is_of_api
    }
    named = {
        f"{method} {path}": re.findall(r"signed in at most (\d+) minutes ago", each["description"]) for method, path, each in operations()
    }
    wrong = {name: found for name, found in named.items() if found != ([minutes[needed[name]]] if needed.get(name) in minutes else [])}
    assert wrong == {}
    assert len([age for age in needed.values() if age is SignInAge.FRESH]) > 20
