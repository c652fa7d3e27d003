"""Route scopes: the challenge and the API description name the same scope, or no scope."""

import re

import pytest

from core.federation.oauth import own_permissions
from core.kernel.api_scopes import ApiScope
from core.kernel.sign_in_age import SignInAge
from entrypoints.http.edge.access.declaration import access_of
from tests.proof.access.calls import routes
from tests.support.builders import Api, application
from tests.support.openapi import Operation, operations
from tests.support.paths import filled


def in_description(operation: Operation) -> set[str | None]:
    """Return the scopes in all alternatives, or None for an operation without alternatives."""
    scopes = {scope for alternative in operation["security"] for each in alternative.values() for scope in each}
    return set(scopes) or {None}


@pytest.mark.slow
async def test_the_challenge_and_the_description_agree(api: Api) -> None:
    findings, scopes = [], set()
    for method, path, operation in operations():
        if not any("dpop" in alternative for alternative in operation.get("security", [])) or path == "/auth/userinfo":
            continue
        answer = await api.call(method, filled(path), token="no token")
        assert answer.status == 401, (method, path, answer.text)
        found = re.search(r'scope="([^"]*)"', answer.headers["WWW-Authenticate"])
        scopes |= in_description(operation)
        if in_description(operation) != {found[1] if found else None}:
            findings.append(f"{method} {path}: {answer.headers['WWW-Authenticate']}, {in_description(operation)}")
    assert findings == []
    assert scopes == {None, *ApiScope, own_permissions.SCOPE}


def test_an_operation_names_the_sign_in_that_it_needs() -> None:
    """With the default ages, in minutes (security A-12)."""
    minutes = {SignInAge.FRESH: "10", SignInAge.RECENT: "60"}
    needed = {
        re.sub(r"<(?:[a-z]+:)?([a-z_]+)>", r"{\1}", route): access_of(view).row(route.partition(" ")[0]).age
        for route, view in routes(application())
        if access_of(view).is_of_api
    }
    named = {
        f"{method} {path}": re.findall(r"signed in at most (\d+) minutes ago", each["description"]) for method, path, each in operations()
    }
    wrong = {name: found for name, found in named.items() if found != ([minutes[needed[name]]] if needed.get(name) in minutes else [])}
    assert wrong == {}
    assert len([age for age in needed.values() if age is SignInAge.FRESH]) > 20
