"""Several questions in one request."""

from typing import Any

import pytest

from core.applications.model.evaluation import MAX_EVALUATIONS
from tests.applications.api.evaluation.asking import READ, RESOURCE, WRITE, Asking, question, reason_of
from tests.support.tenants import Tenant


def decisions(answer: Any) -> list[bool]:
    assert answer.status == 200, answer.text
    assert answer.json.keys() == {"evaluations"}
    return [each["decision"] for each in answer.json["evaluations"]]


async def test_questions_share_the_members_of_the_request(shop: Asking, acme: Tenant) -> None:
    body = {
        **question(acme.id("member")),
        "evaluations": [{}, {"action": {"name": WRITE}}, {"resource": {"id": "2"}}, {"subject": {"id": "x"}}],
    }
    assert decisions(await shop.ask_all(body)) == [True, False, True, False]


async def test_an_incomplete_question_is_denied(shop: Asking, acme: Tenant) -> None:
    answer = await shop.ask_all({"action": {"name": READ}, "evaluations": [{"resource": RESOURCE}, question(acme.id("member"))]})
    assert decisions(answer) == [False, True]
    assert answer.json["evaluations"][0]["context"]["reason"] == {
        "code": "evaluation_invalid",
        "message": 'The field "subject" must be a JSON object.',
    }


@pytest.mark.parametrize(
    ("semantic", "expected"),
    [("execute_all", [True, False, True]), ("deny_on_first_deny", [True, False]), ("permit_on_first_permit", [True])],
)
async def test_the_semantic_ends_the_answer(shop: Asking, acme: Tenant, semantic: str, expected: list[bool]) -> None:
    asked = [question(acme.id("member"), permission) for permission in (READ, WRITE, READ)]
    assert decisions(await shop.ask_all({"evaluations": asked, "options": {"evaluations_semantic": semantic}})) == expected


@pytest.mark.parametrize("options", [{"evaluations_semantic": "bogus"}, {"evaluations_semantic": 1}, "all"])
async def test_an_unknown_semantic_is_refused(shop: Asking, acme: Tenant, options: Any) -> None:
    answer = await shop.ask_all({"evaluations": [question(acme.id("member"))], "options": options})
    assert answer.status == 400


@pytest.mark.parametrize("evaluations", [{}, {"evaluations": []}])
async def test_without_evaluations_the_answer_is_one_decision(shop: Asking, acme: Tenant, evaluations: dict[str, Any]) -> None:
    answer = await shop.ask_all({**question(acme.id("member")), **evaluations})
    assert answer.json.keys() == {"decision", "context"}
    assert reason_of(answer) == "viewer"


@pytest.mark.parametrize("evaluations", ["x", {}, [1], [[]], [None]])
async def test_evaluations_are_objects(shop: Asking, acme: Tenant, evaluations: Any) -> None:
    assert (await shop.ask_all({**question(acme.id("member")), "evaluations": evaluations})).status == 400


async def test_a_request_has_a_limited_number_of_questions(shop: Asking, acme: Tenant) -> None:
    body = question(acme.id("member"))
    assert decisions(await shop.ask_all({"evaluations": [body] * MAX_EVALUATIONS})) == [True] * MAX_EVALUATIONS
    assert (await shop.ask_all({"evaluations": [body] * (MAX_EVALUATIONS + 1)})).status == 400
