"""The modules from the OpenID Foundation's AuthZEN plans: Basic, Batch and Discovery, for identifiers without properties.

The fixture is set up by the API, as an admin and a directory would. The module names begin with `authzen-pdp-`.
"""

from typing import Any, Final

import pytest
from quart_trio import QuartTrio

from core.applications.model.evaluation import EVALUATION_PATH, EVALUATIONS_PATH, METADATA_PATH
from tests.support.builders import Answer, Api
from tests.support.direct import ask
from tests.support.tenants import Tenant

ALICE, BOB = {"type": "user", "id": "alice"}, {"type": "user", "id": "bob"}
READ, WRITE = {"name": "read"}, {"name": "write"}
FIRST, SECOND = {"type": "record", "id": "record-1"}, {"type": "record", "id": "record-2"}
ONE: Final = {"subject": ALICE, "action": READ, "resource": FIRST}
BATCH: Final = {"subject": ALICE, "action": READ, "evaluations": [{"resource": FIRST}, {"resource": SECOND}]}
OF_BOB: Final = {"subject": BOB, "resource": FIRST}


def without(*path: str) -> dict[str, Any]:
    """Return ONE without this member."""
    if len(path) == 1:
        return {name: value for name, value in ONE.items() if name != path[0]}
    outer, inner = path
    return {**ONE, outer: {name: value for name, value in ONE[outer].items() if name != inner}}


def semantic(name: str, *actions: dict[str, str]) -> dict[str, Any]:
    return {**OF_BOB, "evaluations": [{"action": action} for action in actions], "options": {"evaluations_semantic": name}}


# For `evaluation`: the body, and the decision or the status.
SINGLE: Final[dict[str, tuple[Any, bool | int]]] = {
    "fixture-request-permit-decision": (ONE, True),
    "fixture-request-deny-decision": ({**OF_BOB, "action": WRITE}, False),
    "request-with-optional-context": ({**ONE, "context": {"time": "2025-06-27T18:03-07:00", "ip": "192.168.1.1"}}, True),
    "request-with-additional-properties": (
        {
            "subject": {**ALICE, "properties": {"department": "Sales", "role": "manager"}},
            "action": {**READ, "properties": {"method": "GET"}},
            "resource": {**FIRST, "properties": {"status": "active", "owner": "bob"}},
        },
        True,
    ),
    "missing-subject": (without("subject"), 400),
    "missing-action": (without("action"), 400),
    "missing-resource": (without("resource"), 400),
    "subject-missing-type": (without("subject", "type"), 400),
    "subject-missing-id": (without("subject", "id"), 400),
    "action-missing-name": (without("action", "name"), 400),
    "resource-missing-type": (without("resource", "type"), 400),
    "resource-missing-id": (without("resource", "id"), 400),
    "subject-is-string": ({**ONE, "subject": "alice"}, 400),
    "action-name-is-number": ({**ONE, "action": {"name": 123}}, 400),
    "unknown-top-level-fields-ignored": ({**ONE, "foo": "bar", "futureField": {"nested": True}}, True),
    "unknown-subject-fields-ignored": ({**ONE, "subject": {**ALICE, "customAttr": "ignored", "anotherUnknown": {"k": "v"}}}, True),
    "unknown-resource-fields-ignored": ({**ONE, "resource": {**FIRST, "customAttr": "ignored", "anotherUnknown": [1, 2, 3]}}, True),
    "unknown-action-fields-ignored": ({**ONE, "action": {**READ, "customAttr": "ignored"}}, True),
}
# For `evaluations`: the body, and the decisions, the only decision, or the status.
SEVERAL: Final[dict[str, tuple[Any, list[bool] | bool | int]]] = {
    "batch-request-with-evaluations-array": (BATCH, [True, True]),
    "batch-with-fixture-decisions-validated": ({**OF_BOB, "evaluations": [{"action": READ}, {"action": WRITE}]}, [True, False]),
    "batch-with-fully-specified-evaluations": ({"evaluations": [ONE, {**OF_BOB, "action": WRITE}]}, [True, False]),
    "batch-with-context-inheritance": ({**BATCH, "context": {"time": "2025-06-27T18:03-07:00"}}, [True, True]),
    "evaluation-level-errors": ({**BATCH, "evaluations": [{"resource": FIRST}, {}]}, [True, False]),
    "default-semantic-is-execute-all": ({**OF_BOB, "evaluations": [{"action": WRITE}, {"action": READ}]}, [False, True]),
    "execute-all-explicit": (semantic("execute_all", WRITE, READ), [False, True]),
    "deny-on-first-deny": (semantic("deny_on_first_deny", READ, WRITE, READ), [True, False]),
    "permit-on-first-permit": (semantic("permit_on_first_permit", WRITE, READ, WRITE), [False, True]),
    "unknown-semantic-value": ({**BATCH, "options": {"evaluations_semantic": "bogus_value"}}, 400),
    "per-eval-overrides-default": ({**OF_BOB, "action": WRITE, "evaluations": [{"action": READ}, {}]}, [True, False]),
    "missing-subject-returns-decision-false": ({"action": READ, "evaluations": [{"resource": FIRST}]}, [False]),
    "missing-evaluations-array-backward-compat": (ONE, True),
    "empty-evaluations-array-backward-compat": ({**ONE, "evaluations": []}, True),
    "unknown-top-level-fields-ignored": (
        {**OF_BOB, "evaluations": [{"action": READ}, {"action": WRITE}], "foo": "bar", "futureField": {"nested": True}},
        [True, False],
    ),
}
BOTH: Final = (EVALUATION_PATH, EVALUATIONS_PATH)


class Pep:
    """The suite: a program with an application's API key. The suite asks about this application's permissions."""

    def __init__(self, api: Api, key: str) -> None:
        self.api, self.key = api, key

    async def send(self, path: str, body: Any, **headers: str) -> Answer:
        return await self.api.post(path, body, headers={"Authorization": f"Bearer {self.key}", **headers})


@pytest.fixture
async def pep(acme: Tenant) -> Pep:
    """An application with the permissions read and write: Alice has read and write, and Bob has one permission."""

    async def call(method: str, path: str, body: Any = None, token: str = acme.token("owner"), **headers: str) -> Any:
        answer = await acme.api.call(method, path, body, token=token, headers=headers)
        assert answer.status in (200, 201, 204), answer.text
        return answer.json if answer.status != 204 else None

    service = f"{acme.path}/services/records"
    application = {"name": "Records", "slug": "records", "service_type": "web", "redirect_uris": ["https://records.example.com/callback"]}
    await call("POST", f"{acme.path}/services", application)
    roles = {"editor": ["read", "write"], "reader": ["read"]}
    document = {
        "permissions": [{"name": name} for name in ("read", "write", "delete")],
        "roles": [{"slug": slug, "name": slug.title(), "permissions": permissions} for slug, permissions in roles.items()],
    }
    await call("PUT", f"{service}/authorization", document)
    directory = (await call("POST", f"{acme.path}/scim-tokens", {"name": "Directory"}))["token"]
    for name, role in (("alice", "editor"), ("bob", "reader")):
        user = {
            "schemas": ["urn:ietf:params:scim:schemas:core:2.0:User"],
            "userName": name,
            "emails": [{"value": f"{name}@records.example.com", "primary": True}],
            "active": True,
        }
        user_id = (await call("POST", "/scim/v2/Users", user, directory))["id"]
        await call("PUT", f"{service}/roles/{role}/users/{user_id}")
    return Pep(acme.api, (await call("POST", f"{service}/api-keys", {"name": "PEP", "permissions": ["evaluate:access"]}))["key"])


def differs(answer: Answer, expected: list[bool] | bool | int) -> bool:
    """Return whether an answer differs from the expected decisions, decision or status."""
    if not isinstance(expected, bool | list):
        return answer.status != expected
    if answer.status != 200 or not answer.headers["Content-Type"].startswith("application/json"):
        return True
    if isinstance(expected, bool):
        return "evaluations" in answer.json or answer.json["decision"] is not expected
    return "decision" in answer.json or [each["decision"] for each in answer.json["evaluations"]] != expected


@pytest.mark.parametrize(("path", "modules"), [(EVALUATION_PATH, SINGLE), (EVALUATIONS_PATH, SEVERAL)], ids=["evaluation", "evaluations"])
async def test_each_module_gets_its_decision(pep: Pep, path: str, modules: dict[str, tuple[Any, Any]]) -> None:
    answers = {module: await pep.send(path, body) for module, (body, _) in modules.items()}
    findings = {module: answer.text for module, answer in answers.items() if differs(answer, modules[module][1])}
    assert findings == {}


async def test_idempotency(pep: Pep) -> None:
    for path, body in ((EVALUATION_PATH, ONE), (EVALUATIONS_PATH, BATCH)):
        assert len({(await pep.send(path, body)).text for _ in range(3)}) == 1


async def test_x_request_id_echoed(pep: Pep) -> None:
    request_id = "conformance-0e1f3a52-7a5d-4d3f-9b3c-1f6f2f6f3a11"
    for path in BOTH:
        assert (await pep.send(path, ONE, **{"X-Request-Id": request_id})).headers["X-Request-Id"] == request_id


@pytest.mark.parametrize(
    ("raw", "content_type", "statuses"),
    [
        (b"[{}]", "application/json", {400}),  # reject-top-level-array
        (b'{ "subject": { "type": "user" } , broken', "application/json", {400}),  # reject-malformed-json
        (b"", "application/json", {400}),  # reject-empty-body
        (b"{}", "text/plain", {400, 415}),  # reject-non-json-content-type
    ],
)
async def test_malformed_bodies(pep: Pep, raw: bytes, content_type: str, statuses: set[int]) -> None:
    for path in BOTH:
        headers = {"Authorization": f"Bearer {pep.key}", "Content-Type": content_type}
        assert (await pep.api.call("POST", path, raw=raw, headers=headers)).status in statuses


async def test_accept_content_type_with_charset(pep: Pep) -> None:
    for path in BOTH:
        answer = await pep.send(path, ONE, **{"Content-Type": "application/json; charset=utf-8"})
        assert answer.json["decision"] is True


async def test_reject_get_and_put_method(app: QuartTrio) -> None:
    assert {(await ask(app, method, path)).status for path in BOTH for method in ("GET", "PUT")} == {405}


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer invalid-bogus-credential"}], ids=["missing", "invalid"])
async def test_credentials_returns_401(pep: Pep, headers: dict[str, str]) -> None:
    for path in BOTH:
        answer = await pep.api.post(path, ONE, headers=headers)
        assert (answer.status, "WWW-Authenticate" in answer.headers) == (401, True)


async def test_discovery(pep: Pep) -> None:
    answer = await pep.api.get(METADATA_PATH)
    assert answer.status == 200
    assert answer.headers["Content-Type"].startswith("application/json")
    assert all(isinstance(value, str) and value for value in answer.json.values())
    assert not [name for name in answer.json if name.startswith("search_")], "no search is offered"
    base = answer.json["policy_decision_point"]
    assert (answer.json["access_evaluation_endpoint"], answer.json["access_evaluations_endpoint"]) == tuple(base + path for path in BOTH)
