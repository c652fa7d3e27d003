"""Decisions about permissions: how requests are read, and what follows from the stored facts."""

from typing import Any
from uuid import uuid4

import pytest

from core.applications.model.evaluation import (
    MAX_EVALUATIONS,
    MAX_TEXT,
    DenialReason,
    EvaluationInvalid,
    Question,
    Questions,
    Semantic,
    SemanticUnknown,
    SubjectFacts,
    SubjectState,
    TooManyEvaluations,
    decide,
    decide_all,
    parse_batch,
    parse_single,
)
from tests.tables import table

ADA = {"type": "user", "id": "ada"}
READ = {"name": "read"}
RECORD = {"type": "record", "id": "record-1"}
BODY: dict[str, Any] = {"subject": ADA, "action": READ, "resource": RECORD}
QUESTION = Question("user", "ada", "read", "record", "record-1")
GRANTED = SubjectFacts(SubjectState.ACTIVE, is_declared=True, role="reader")
DENIED = SubjectFacts(SubjectState.ACTIVE, is_declared=True)


def test_a_single_request_has_one_question() -> None:
    assert parse_single(BODY) == Questions((QUESTION,))


def test_unknown_members_properties_and_the_context_change_nothing() -> None:
    more = {**BODY, "subject": {**ADA, "properties": {"role": "admin"}, "x": [1]}, "context": {"time": "now"}, "evaluations": 7, "foo": {}}
    assert parse_single(more) == Questions((QUESTION,))


@table("name", ["subject", "action", "resource"])
@table("value", [None, "ada", 7, [], {}, True])
def test_each_member_must_be_a_complete_object(name: str, value: Any) -> None:
    with pytest.raises(EvaluationInvalid, match=f'The field "{name}'):
        parse_single({**BODY, name: value})


@table(("name", "member"), [("subject", "type"), ("subject", "id"), ("action", "name"), ("resource", "type"), ("resource", "id")])
@table("value", [None, "", 7, ["read"], "a\x00b", "a" * (MAX_TEXT + 1)])
def test_each_text_must_be_printable(name: str, member: str, value: Any) -> None:
    with pytest.raises(EvaluationInvalid, match=f"{name}.{member}"):
        parse_single({**BODY, name: {**BODY[name], member: value}})


@table("evaluations", [{}, {"evaluations": []}, {"evaluations": None}])
def test_a_batch_without_evaluations_is_a_single_request(evaluations: dict[str, Any]) -> None:
    assert parse_batch({**BODY, **evaluations}) == Questions((QUESTION,))


def test_an_evaluation_takes_missing_parts_from_the_request() -> None:
    items = [{}, {"action": {"name": "write"}}, {"resource": {"id": "record-2"}}, {"subject": {"type": "user", "id": "bob"}}]
    assert parse_batch({**BODY, "evaluations": items}).questions == (
        QUESTION,
        Question("user", "ada", "write", "record", "record-1"),
        Question("user", "ada", "read", "record", "record-2"),
        Question("user", "bob", "read", "record", "record-1"),
    )


def test_a_null_in_an_evaluation_does_not_take_the_default() -> None:
    [question] = parse_batch({**BODY, "evaluations": [{"subject": None}]}).questions
    assert isinstance(question, EvaluationInvalid)


def test_an_incomplete_evaluation_is_denied_and_the_others_are_decided() -> None:
    request = parse_batch({"action": READ, "resource": RECORD, "evaluations": [{"subject": ADA}, {}, {"subject": ADA}]})
    decisions = decide_all(request, [GRANTED, DENIED])
    assert [decision.is_positive for decision in decisions] == [True, False, False]
    assert [decision.reason for decision in decisions] == [None, DenialReason.EVALUATION_INVALID, DenialReason.ROLE_MISSING]
    assert decisions[1].explanation == 'The field "subject" must be a JSON object.'


@table("items", ["all", {}, 7, [BODY, "x"], [None], [[]]])
def test_evaluations_must_be_objects(items: Any) -> None:
    with pytest.raises(EvaluationInvalid):
        parse_batch({**BODY, "evaluations": items})


def test_a_request_has_a_limited_number_of_evaluations() -> None:
    assert len(parse_batch({"evaluations": [BODY] * MAX_EVALUATIONS}).questions) == MAX_EVALUATIONS
    with pytest.raises(TooManyEvaluations):
        parse_batch({"evaluations": [BODY] * (MAX_EVALUATIONS + 1)})


@table("options", [{"evaluations_semantic": value} for value in ("all", "", None, 1, ["execute_all"])] + ["x", 1, []])
def test_an_unknown_semantic_is_refused(options: Any) -> None:
    for evaluations in ([BODY], []):
        with pytest.raises(SemanticUnknown):
            parse_batch({**BODY, "options": options, "evaluations": evaluations})


@table(
    ("semantic", "answers"),
    [
        (None, [False, True, False, True]),
        (Semantic.EXECUTE_ALL, [False, True, False, True]),
        (Semantic.DENY_ON_FIRST_DENY, [False]),
        (Semantic.PERMIT_ON_FIRST_PERMIT, [False, True]),
    ],
)
def test_the_semantic_ends_the_evaluations(semantic: Semantic | None, answers: list[bool]) -> None:
    options = {} if semantic is None else {"options": {"evaluations_semantic": semantic.value, "other": 1}}
    request = parse_batch({"evaluations": [BODY] * 4, **options})
    assert request.is_batch
    decisions = decide_all(request, [DENIED, GRANTED, DENIED, GRANTED])
    assert [decision.is_positive for decision in decisions] == answers


def test_an_invalid_evaluation_counts_as_a_denial_that_ends_the_request() -> None:
    request = parse_batch({"evaluations": [{}, BODY], "options": {"evaluations_semantic": "deny_on_first_deny"}})
    assert [decision.reason for decision in decide_all(request, [GRANTED])] == [DenialReason.EVALUATION_INVALID]


@table("type_", ["service_account", "group", "User", "robot"])
@table("facts", [GRANTED, DENIED])
def test_only_users_have_permissions(type_: str, facts: SubjectFacts) -> None:
    decision = decide(Question(type_, str(uuid4()), "read", "record", "1"), facts)
    assert not decision.is_positive
    assert decision.reason is (DenialReason.ROLE_MISSING if type_ == "service_account" else DenialReason.SUBJECT_TYPE_UNKNOWN)


@table("state", SubjectState)
@table("is_declared", [True, False])
@table("role", ["reader", None])
def test_a_permission_needs_an_active_user_a_declaration_and_a_role(state: SubjectState, is_declared: bool, role: str | None) -> None:
    decision = decide(QUESTION, SubjectFacts(state, is_declared, role))
    assert decision.is_positive == (state is SubjectState.ACTIVE and is_declared and role is not None)
    assert decision.is_positive == (decision.reason is None) == (decision.explanation is None)


def test_a_decision_names_the_role_and_the_group() -> None:
    decision = decide(QUESTION, SubjectFacts(SubjectState.ACTIVE, is_declared=True, role="reader", group="Sales"))
    assert (decision.role, decision.group) == ("reader", "Sales")


def test_the_id_of_a_user_is_no_user_name() -> None:
    user_id = uuid4()
    by_id, by_name, robot = (
        Question(*names, "read", "record", "1") for names in (("user", str(user_id)), ("user", "ada"), ("robot", "ada"))
    )
    assert (by_id.user_id, by_id.user_name) == (user_id, None)
    assert (by_name.user_id, by_name.user_name) == (None, "ada")
    assert (robot.user_id, robot.user_name) == (None, None)
