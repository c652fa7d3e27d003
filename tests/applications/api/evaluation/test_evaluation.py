"""Single questions: decisions with their reasons, credentials, malformed requests, and the access log."""

import json
from typing import Any
from uuid import UUID, uuid4

import pytest
from quart_trio import QuartTrio

from core.applications.model.evaluation import EVALUATION_PATH, EVALUATIONS_PATH, METADATA_PATH
from core.kernel.roles import Permission
from entrypoints.http.app import Application, Edge, configure
from entrypoints.http.base.request_record import RequestRecord
from ports import Ports
from tests.applications.api.evaluation.asking import READ, RESOURCE, WRITE, Asking, basic, question, reason_of
from tests.fakes.outside import FakeClock
from tests.support.builders import BASE_URL, add_account, run_sql
from tests.support.direct import ask
from tests.support.refusals import FORBIDDEN, NOT_ACTIVE, UNAUTHORIZED, refused
from tests.support.scim import GroupDirectory, directory_of
from tests.support.services import add_api_key, add_service, sign_in_to
from tests.support.tenants import Tenant
from tests.tenancy.groups import GroupAdmin


async def test_a_decision_has_its_reason(shop: Asking, acme: Tenant) -> None:
    granted = await shop.ask(acme.id("member"))
    assert (granted.status, granted.json) == (200, {"decision": True, "context": {"reason": {"role": "viewer", "group": None}}})
    assert granted.headers["Cache-Control"] == "no-store"
    denied = await shop.ask(acme.id("member"), WRITE)
    assert (denied.status, denied.json) == (
        200,
        {"decision": False, "context": {"reason": {"code": "role_missing", "message": "No role of the subject has this permission."}}},
    )


async def test_each_denial_has_its_code(shop: Asking, acme: Tenant) -> None:
    member = acme.id("member")
    assert await shop.reason(member, "documents:erase") == "permission_unknown"
    assert await shop.reason(uuid4()) == "subject_unknown"
    assert await shop.reason(acme.id("owner")) == "subject_unknown", "the owner has not come to the application (security K-3)"
    for type_, code in (("service_account", "role_missing"), ("group", "subject_type_unknown"), ("User", "subject_type_unknown")):
        assert reason_of(await shop.ask(member, of_type=type_)) == code
    await run_sql(acme.pool, "update users set deactivated_at = now() where id = %s", member)
    assert await shop.reason(member) == "subject_inactive"


async def test_users_of_other_organizations_and_of_none_look_alike(shop: Asking, acme: Tenant, other_tenant: Tenant) -> None:
    service = await add_service(other_tenant.pool, other_tenant.org)
    await sign_in_to(other_tenant.ports, other_tenant.pool, service, other_tenant.people["member"])
    await add_account(acme.ports, "stranger@example.com")
    unknown = (await shop.ask(uuid4())).json
    for subject in (other_tenant.id("member"), other_tenant.people["member"].email, "stranger@example.com"):
        assert (await shop.ask(subject)).json == unknown


async def test_only_the_permissions_of_the_own_service_count(shop: Asking, acme: Tenant) -> None:
    forum = await add_service(acme.pool, acme.org, "forum")
    key = await add_api_key(acme.pool, forum, [Permission.EVALUATE_ACCESS])
    answer = await acme.api.post(EVALUATION_PATH, question(acme.id("member")), headers={"X-Api-Key": key})
    assert reason_of(answer) == "subject_unknown"
    await sign_in_to(acme.ports, acme.pool, forum, acme.people["member"])
    answer = await acme.api.post(EVALUATION_PATH, question(acme.id("member")), headers={"X-Api-Key": key})
    assert reason_of(answer) == "permission_unknown"


async def test_a_role_that_was_taken_away_counts_no_longer(shop: Asking, acme: Tenant) -> None:
    for _ in range(3):
        assert await shop.reason(acme.id("member")) == "viewer"
        await run_sql(acme.pool, "delete from service_role_users")
        assert await shop.reason(acme.id("member")) == "subject_unknown"
        await shop.store.give("viewer", acme.id("member"))


async def test_a_role_of_a_group_names_the_group_as_its_reason(shop: Asking, acme: Tenant) -> None:
    groups, member = GroupAdmin(acme), acme.id("member")
    group = await groups.create()
    await groups.add(group, member)
    assert (await shop.store.give_group("editor", group)).status == 204
    reason = {"reason": {"role": "editor", "group": "Engineering"}}
    assert (await shop.ask(member, WRITE)).json == {"decision": True, "context": reason}
    await groups.remove(group, member)
    assert await shop.reason(member, WRITE) == "role_missing"
    await groups.add(group, member)
    assert await shop.reason(member, WRITE) == "editor"
    await shop.store.take_from_group("editor", group)
    assert await shop.reason(member, WRITE) == "role_missing"


async def test_a_user_with_a_role_by_a_group_whom_the_directory_blocks_is_inactive(shop: Asking, acme: Tenant) -> None:
    directory = await directory_of(acme, groups=True)
    user = UUID((await directory.create_user("ada@acme.example"))["id"])
    group = await GroupDirectory(directory).create("Engineering", user)
    assert (await shop.store.give_group("editor", UUID(group))).status == 204
    assert await shop.reason(user, WRITE) == "editor"
    await directory.deactivate(user)
    assert await shop.reason(user, WRITE) == "subject_inactive"


async def test_a_role_that_lost_the_permission_gives_it_no_longer(shop: Asking, acme: Tenant) -> None:
    document = await shop.store.document()
    for role in document["roles"]:
        role["permissions"] = []
    assert (await shop.store.put(document, "?confirm=true")).status == 200
    assert await shop.reason(acme.id("member")) == "role_missing"


# Credentials


@pytest.mark.parametrize("way", ["X-Api-Key", "bearer", "client"])
@pytest.mark.parametrize("path", [EVALUATION_PATH, EVALUATIONS_PATH])
async def test_keys_and_clients_ask(shop: Asking, acme: Tenant, way: str, path: str) -> None:
    [(client_id,)] = await run_sql(acme.pool, "select client_id from services")
    headers = {
        "X-Api-Key": {"X-Api-Key": shop.key},
        "bearer": {"Authorization": f"Bearer {shop.key}"},
        "client": basic(client_id),
    }[way]
    assert reason_of(await acme.api.post(path, question(acme.id("member")), headers=headers)) == "viewer"
    await run_sql(acme.pool, "update organizations set status = 'suspended' where id = %s", acme.org)
    assert refused(await acme.api.post(path, question(acme.id("member")), headers=headers)) == NOT_ACTIVE
    assert refused(await acme.api.post(path, {}, headers=headers)) == NOT_ACTIVE, "before the body"


async def test_wrong_credentials_are_refused(shop: Asking, acme: Tenant, clock: FakeClock) -> None:
    service = shop.store.service
    [(client_id,)] = await run_sql(acme.pool, "select client_id from services")
    spa = await add_service(acme.pool, acme.org, "spa", "spa")
    [(public_client,)] = await run_sql(acme.pool, "select client_id from services where id = %s", spa)
    session = await sign_in_to(acme.ports, acme.pool, service, acme.people["member"])
    expired = await add_api_key(acme.pool, service, expires_at=clock.now())
    for headers in (
        {},
        {"X-Api-Key": ""},
        {"X-Api-Key": "sk_abcdef_x"},
        {"X-Api-Key": expired},
        {"X-Api-Key": "sk_" + "x" * 300},
        {"Authorization": "Bearer sk_abcdef_x"},
        {"Authorization": "Bearer"},
        {"Authorization": f"Bearer {acme.token('owner')}"},
        {"Authorization": f"Bearer {session.access_token}"},
        {"Authorization": f"Basic {shop.key}"},
        basic(client_id, "wrong"),
        basic(client_id, ""),
        basic(public_client, ""),
        basic(uuid4()),
        basic("frontend", ""),
        basic(shop.key),
    ):
        for body in (question(acme.id("member")), {}):
            answer = await acme.api.post(EVALUATION_PATH, body, headers=headers)
            assert refused(answer) == UNAUTHORIZED, headers
            assert answer.headers["WWW-Authenticate"].split()[0] in ("ApiKey", "Basic", "Bearer")


async def test_a_key_needs_the_permission(shop: Asking, acme: Tenant) -> None:
    others = [permission for permission in Permission if permission is not Permission.EVALUATE_ACCESS]
    key = await add_api_key(acme.pool, shop.store.service, others)
    for body in (question(acme.id("member")), {}):
        answer = await acme.api.post(EVALUATION_PATH, body, headers={"X-Api-Key": key})
        assert refused(answer) == FORBIDDEN
        assert "evaluate:access" in answer.json["error"]


async def test_the_use_of_a_key_is_recorded(shop: Asking, acme: Tenant) -> None:
    await shop.ask(acme.id("member"))
    [(used_at,)] = await run_sql(acme.pool, "select last_used_at from api_keys where permissions = '{evaluate:access}'")
    assert used_at is not None


# Requests


@pytest.mark.parametrize("path", [EVALUATION_PATH, EVALUATIONS_PATH])
@pytest.mark.parametrize(
    "change",
    [
        {"subject": None},
        {"subject": "alice"},
        {"subject": {"type": "user"}},
        {"subject": {"id": "x"}},
        {"subject": {"type": "user", "id": ""}},
        {"action": {}},
        {"action": {"name": 123}},
        {"action": None},
        {"resource": None},
        {"resource": {"type": "record"}},
        {"resource": {"id": "record-1"}},
        {"resource": {"type": "record", "id": "a\u0000b"}},
    ],
)
async def test_an_incomplete_question_is_refused(shop: Asking, acme: Tenant, path: str, change: dict[str, Any]) -> None:
    answer = await acme.api.post(path, {**question(acme.id("member")), **change}, headers={"X-Api-Key": shop.key})
    assert answer.status == 400, answer.text
    assert next(iter(change)) in answer.json["error"]


@pytest.mark.parametrize("path", [EVALUATION_PATH, EVALUATIONS_PATH])
@pytest.mark.parametrize(
    ("raw", "content_type", "status"),
    [
        (b"", "application/json", 400),
        (b"[]", "application/json", 400),
        (b'{"subject": ', "application/json", 400),
        (b"null", "application/json", 400),
        (b'{"subject": {}}', "text/plain", 415),
        (b'{"a": 1, "a": 2}', "application/json", 400),
    ],
)
async def test_a_malformed_body_is_refused(shop: Asking, acme: Tenant, path: str, raw: bytes, content_type: str, status: int) -> None:
    headers = {"X-Api-Key": shop.key, "Content-Type": content_type}
    assert (await acme.api.call("POST", path, raw=raw, headers=headers)).status == status
    assert (await acme.api.call("POST", path, raw=raw, headers={**headers, "X-Api-Key": "sk_x"})).status == 401


async def test_unknown_members_are_ignored(shop: Asking, acme: Tenant) -> None:
    more: dict[str, Any] = {
        "foo": "bar",
        "context": {"ip": "192.0.2.1"},
        "resource": {**RESOURCE, "properties": {"status": "x"}, "y": [1]},
        "evaluations": 3,
    }
    assert reason_of(await shop.ask(acme.id("member"), **more)) == "viewer"


async def test_the_request_id_comes_back(shop: Asking, acme: Tenant) -> None:
    for path in (EVALUATION_PATH, EVALUATIONS_PATH):
        answer = await acme.api.post(path, question(acme.id("member")), headers={"X-Api-Key": shop.key, "X-Request-Id": "conformance-1"})
        assert answer.headers["X-Request-Id"] == "conformance-1"


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_questions_are_posts(app: QuartTrio, method: str) -> None:
    assert [(await ask(app, method, path)).status for path in (EVALUATION_PATH, EVALUATIONS_PATH)] == [405, 405]


async def test_the_metadata_names_the_endpoints(acme: Tenant) -> None:
    answer = await acme.api.get(METADATA_PATH)
    assert (answer.status, answer.json) == (
        200,
        {
            "policy_decision_point": BASE_URL,
            "access_evaluation_endpoint": f"{BASE_URL}/access/v1/evaluation",
            "access_evaluations_endpoint": f"{BASE_URL}/access/v1/evaluations",
        },
    )


# The access log


async def test_the_access_log_has_the_resource_and_the_decision(
    worker_app: Application, ports: Ports, edge: Edge, shop: Asking, acme: Tenant
) -> None:
    observed: list[RequestRecord] = []
    configure(worker_app, ports, edge, observe=observed.append, exposition=lambda: b"", exposition_type="text/plain")
    asked = question(acme.id("member")), question("ada@example.com", "x" * 300)
    for path, body in (
        (EVALUATION_PATH, asked[0]),
        (EVALUATION_PATH, asked[1]),
        (EVALUATION_PATH, {}),
        (EVALUATIONS_PATH, {"evaluations": [question(acme.id("member"), WRITE), {}]}),
    ):
        headers = [(b"x-api-key", shop.key.encode()), (b"content-type", b"application/json")]
        await ask(worker_app, "POST", path, headers=headers, body=json.dumps(body).encode())
    logged = {"subject": acme.id("member"), "action": READ, "resource_type": "document", "resource_id": "q3-report", "decision": True}
    assert [record.evaluations for record in observed] == [
        [logged],
        [{**logged, "subject": None, "action": "x" * 100, "decision": False}],
        None,
        [{**logged, "action": WRITE, "decision": False}, {"decision": False}],
    ]
    assert {record.organization for record in observed} == {"acme"}
