"""Why a sign-in failed, in the API and its exports (decision 220)."""

import ast
import csv
import io
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from adapters.postgres.authentication.logins import RECORD_FAILURE
from adapters.postgres.engine.driver import Connection
from core.applications.model.users import BlockedByAdmin, NoAccessToService
from core.authentication.model.login import LoginFailure, failure_of
from core.authentication.model.sign_in_log import MANY_ATTEMPTS, UNKNOWN_ACCOUNT
from core.kernel.access import BlockedByDirectory
from core.kernel.sign_in_policy.decision import Decision, Outcome
from core.kernel.sign_in_policy.explanations import PolicyRefused
from core.kernel.sign_in_policy.rules import Rule
from entrypoints.http.base.rendering.labels import FAILURE_REASONS
from tests.authentication.api.service_sessions.shop import Shop
from tests.support.builders import EMAIL, add_account, add_member, run_sql
from tests.support.tenants import Tenant

pytestmark = pytest.mark.slow

WRONG = "a wrong password"


async def log_of(tenant: Tenant, query: str = "") -> list[dict[str, Any]]:
    answer = await tenant.api.get(f"/api/organizations/{tenant.slug}/sign-ins{query}", token=tenant.token("admin"))
    assert answer.status == 200, answer.text
    assert answer.json["pagination"]["total"] == len(answer.json["sign_ins"])
    attempts: list[dict[str, Any]] = answer.json["sign_ins"]
    return attempts


async def test_strangers_unconfirmed_members_and_no_account_are_one_number(shop: Shop, other_tenant: Tenant) -> None:
    ports, pool = shop.tenant.ports, shop.tenant.pool
    await shop.tokens()  # makes the user a shop user
    invited = await add_account(ports, "invited@example.com")
    await add_member(pool, shop.tenant.org, invited.id)
    await add_account(ports, "stranger@example.com")
    for email in (EMAIL, "invited@example.com", "stranger@example.com", "nobody@example.com"):
        assert (await shop.login(email=email, password=WRONG)).status == 401
    failures = await log_of(shop.tenant, "?success=false")
    rows = {(each["user_email"], each["reason"], each["provider"], each["attempts"]) for each in failures}
    assert rows == {(EMAIL, "credentials", "password", 1), (None, "unknown_account", "", 3)}
    assert {each["service_name"] for each in failures} == {"Shop"}
    assert [each["reason"] for each in await log_of(shop.tenant, f"?user_id={shop.user.id}&success=true")] == [None]
    assert await log_of(shop.tenant, f"?user_id={invited.id}") == []
    of_user = await log_of(shop.tenant, f"?user_id={shop.user.id}")
    assert (
        of_user
        == await log_of(shop.tenant, f"?email=%20{EMAIL.upper()}")
        == await log_of(shop.tenant, f"?email={EMAIL}&user_id={shop.user.id}")
    )
    assert await log_of(shop.tenant, f"?email={EMAIL}&user_id={invited.id}") == []
    for email in ("invited@example.com", "stranger@example.com", "nobody@example.com", "a part"):
        assert await log_of(shop.tenant, f"?email={quote(email)}") == []
    # The other organization has neither the attempts nor the people.
    assert await log_of(other_tenant, "?success=false") == []
    assert await log_of(other_tenant, f"?service_id={shop.id}") == []


async def test_an_account_that_is_blocked_for_a_while_is_said_so(shop: Shop) -> None:
    await shop.tokens()
    limit = shop.tenant.ports.policy.account_guess_limit
    for _ in range(limit + 1):
        await shop.login(password=WRONG)
    failures = await log_of(shop.tenant, "?success=false")
    assert sorted(each["reason"] for each in failures) == ["credentials"] * limit + ["locked"]
    [(blocked, request_id)] = [(each["blocked_seconds"], each["request_id"]) for each in failures if each["reason"] == "locked"]
    assert blocked == 30
    assert [each["reason"] for each in await log_of(shop.tenant, f"?request_id={request_id}")] == ["locked"]


async def test_a_member_who_fails_elsewhere_is_seen_only_there(shop: Shop, other_tenant: Tenant) -> None:
    """A confirmed member from another organization is a stranger here, and their organization does not see where they failed."""
    member = other_tenant.people["member"]
    assert (await shop.login(email=member.email, password=WRONG)).status == 401
    assert [each["reason"] for each in await log_of(shop.tenant, "?success=false")] == ["unknown_account"]
    assert await log_of(other_tenant, "?success=false") == []
    # At the platform itself, the reverse holds, once the organization was approved.
    await run_sql(shop.tenant.pool, "update organizations set approved_at = now() - interval '100 years'")
    await run_sql(shop.tenant.pool, "update memberships set confirmed_at = created_at - interval '100 years'")
    assert (await shop.login(None, None, email=member.email, password=WRONG)).status == 401
    assert [each["reason"] for each in await log_of(shop.tenant, "?success=false")] == ["unknown_account"]
    assert [(each["user_email"], each["reason"]) for each in await log_of(other_tenant, "?success=false")] == [
        (member.email, "credentials")
    ]


async def test_a_user_sees_all_attempts_at_their_own_account(shop: Shop) -> None:
    """This includes attempts that no organization sees, for 90 days. Users learn an application's name."""
    await add_account(shop.tenant.ports, "stranger@example.com")
    for email in (EMAIL, "stranger@example.com"):
        assert (await shop.login(email=email, password=WRONG)).status == 401
    session = {"token": (await shop.login(None, None)).json["access_token"]}
    answer = await shop.api.get("/api/user/sign-ins", **session)
    assert {(each["success"], each["reason"], each["service_name"], each["provider"]) for each in answer.json["sign_ins"]} == {
        (True, None, None, "password"),
        (False, "credentials", "Shop", "password"),
    }
    assert {each["ip_address"] for each in answer.json["sign_ins"]} == {"0.0.0.0"}  # noqa: S104
    assert answer.json["pagination"]["total"] == 2
    for fact in (shop.tenant.org, shop.id, shop.user.id, "Acme"):
        assert str(fact) not in answer.text
    second = await shop.api.get("/api/user/sign-ins?limit=1&page=2", **session)
    assert second.json["sign_ins"] == answer.json["sign_ins"][1:]
    await run_sql(shop.tenant.pool, "update login_events set created_at = created_at - interval '90 days 1 second' where not success")
    assert [each["success"] for each in (await shop.api.get("/api/user/sign-ins", **session)).json["sign_ins"]] == [True]


async def test_the_export_has_the_attempts_of_the_list(shop: Shop) -> None:
    await shop.tokens()
    await shop.login(password=WRONG)
    await shop.login(email="nobody@example.com", password=WRONG)
    listed, path = await log_of(shop.tenant), f"/api/organizations/{shop.tenant.slug}/sign-ins/export"
    lines = await shop.api.get(f"{path}?format=jsonl", token=shop.tenant.token("owner"))
    assert [json.loads(line) for line in lines.text.splitlines()] == listed
    file = await shop.api.get(path, token=shop.tenant.token("owner"))
    rows = list(csv.DictReader(io.StringIO(file.text)))
    assert [(row["id"], row["success"], row["reason"]) for row in rows] == [
        (each["id"], str(each["success"]).lower(), each["reason"] or "") for each in listed
    ]


async def test_each_attempt_has_the_id_of_its_request(shop: Shop) -> None:
    assert (await shop.login()).status == 200
    refused = await shop.login(password=WRONG)
    [success], [failure] = [await log_of(shop.tenant, f"?success={value}") for value in ("true", "false")]
    assert failure["request_id"] == refused.headers["X-Request-Id"]
    assert success["request_id"] not in (None, failure["request_id"])
    assert {each["id"] for each in await log_of(shop.tenant, "?period=1h")} == {failure["id"], success["id"]}


@pytest.mark.parametrize("at_application", [True, False])
async def test_all_accounts_run_the_same_statements(shop: Shop, monkeypatch: pytest.MonkeyPatch, at_application: bool) -> None:
    """The same holds for users, unconfirmed members, strangers and unknown addresses, until they are blocked (security B-2)."""
    await shop.tokens()
    invited = await add_account(shop.tenant.ports, "invited@example.com")
    await add_member(shop.tenant.pool, shop.tenant.org, invited.id)
    await add_account(shop.tenant.ports, "stranger@example.com")
    statements: list[str] = []
    build = Connection._statement

    def record(connection: Connection, text: Any, *arguments: Any) -> Any:
        statements.append(text)
        return build(connection, text, *arguments)

    monkeypatch.setattr(Connection, "_statement", record)
    names = {"org_slug": "acme", "service_slug": "shop"} if at_application else {}
    for _ in range(shop.tenant.ports.policy.account_guess_limit + 1):
        runs, answers = [], set()
        for email in (EMAIL, "invited@example.com", "stranger@example.com", "nobody@example.com"):
            statements.clear()
            answer = await shop.api.post("/api/auth/login", {"email": email, "password": WRONG, **names})
            answers.add(answer.status)
            runs.append(list(statements))
        assert runs[0] == runs[1] == runs[2] == runs[3]
        assert RECORD_FAILURE in runs[0]
        assert len(answers) == 1
    assert answers == {429}


def test_every_reason_has_a_label_and_is_recorded() -> None:
    """All code that counts a failure also writes it to the log."""
    writers = {"record_failure", "log_failure", "_record_failure"}
    recorded: set[str] = set()
    for path in Path("core").rglob("*.py"):
        for function in ast.walk(ast.parse(path.read_text())):
            if not isinstance(function, ast.AsyncFunctionDef | ast.FunctionDef):
                continue
            nodes = list(ast.walk(function))
            calls = {getattr(node.func, "attr", getattr(node.func, "id", "")) for node in nodes if isinstance(node, ast.Call)}
            if "login_failed" in calls:
                assert calls & writers, f"{path}: {function.name} counts a failure, and does not record it"
            if calls & writers or function.name in {*writers, "failure_of"}:
                recorded |= {
                    node.attr for node in nodes if isinstance(node, ast.Attribute) and ast.unparse(node.value).endswith("LoginFailure")
                }
    of_refusals = {
        failure_of(refusal).name
        for refusal in (
            BlockedByDirectory(),
            BlockedByAdmin(),
            NoAccessToService(),
            PolicyRefused(Decision(outcome=Outcome.REFUSED, rule=Rule.ADMIN_NETWORKS)),
        )
    }
    assert recorded | of_refusals == LoginFailure.__members__.keys()
    assert FAILURE_REASONS.keys() == {*LoginFailure, UNKNOWN_ACCOUNT, MANY_ATTEMPTS}
    assert len(set(FAILURE_REASONS.values())) == len(FAILURE_REASONS)
