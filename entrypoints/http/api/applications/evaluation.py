"""The question whether a user may do something (AuthZEN Authorization API 1.0)."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from pydantic import Field
from quart import Blueprint, g, request
from werkzeug.exceptions import HTTPException

from core.applications import authorization
from core.applications.model.api_keys import ApiKeyInvalid
from core.applications.model.evaluation import (
    ACCEPTED_CREDENTIALS,
    EVALUATION_PATH,
    EVALUATIONS_PATH,
    MAX_EVALUATIONS,
    METADATA_PATH,
    NO_QUESTIONS,
    AccessDecision,
    DenialReason,
    EvaluatorUnknown,
    Question,
    Questions,
    Semantic,
    parse_batch,
    parse_single,
)
from core.federation.oauth import own_permissions
from core.kernel import errors
from core.kernel.callers import ServiceContext
from core.kernel.roles import Permission
from core.kernel.values import parse_id
from entrypoints.http import kit
from entrypoints.http.api.federation.oauth import client_authentication

routes = Blueprint("evaluation", __name__)

_KEY_START: Final = "sk_"
_LOGGED: Final = 100  # characters from a text in the access log
_IGNORED: Final = "Ignored: the permissions of roles do not depend on it."
_SECURITY: Final[Sequence[Mapping[str, Sequence[str]]]] = (
    {"api_key": []},
    {"api_key_as_bearer": []},
    {"client": []},
    {"bearer": [own_permissions.SCOPE]},
    {"dpop": [own_permissions.SCOPE]},
)


# Callers


async def _as_evaluator(parse: Callable[[Mapping[str, Any]], Questions], access: kit.Access) -> None:
    """Identify the application that asks, and answer its questions with the same statement.

    The body is read first. If it is refused, the view raises the refusal, after the caller is known.
    """
    questions = NO_QUESTIONS
    g.refusal = None
    try:
        questions = parse(await request.get_json())
    except errors.Invalid as refusal:
        g.refusal = refusal
    except HTTPException:  # about the content type; the view raises it again
        pass
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    key = request.headers.get("X-Api-Key")
    if key is None and scheme.lower() == "bearer" and token.strip().startswith(_KEY_START):
        key = token.strip()
    if key:
        assert access.permission is not None, "the access of an API key has a permission"
        program, decisions = await authorization.answer_key(kit.ports(), kit.anonymous(), key, questions)
        g.caller = program
        kit.request_record().caller, kit.request_record().organization = str(program.key_id), program.service.org_slug
    elif scheme.lower() == "basic":
        g.caller, service = kit.anonymous(), await _client()
        decisions = await authorization.answer_service(kit.ports(), service, questions)
    elif scheme.lower() in ("bearer", "dpop"):
        g.caller = kit.anonymous()
        service, decisions = await own_permissions.answer(kit.ports(), await kit.presented_token(), questions)
        kit.request_record().caller, kit.request_record().organization = str(service.client_id), service.org_slug
    else:
        raise ApiKeyInvalid(f"No credential was sent. {ACCEPTED_CREDENTIALS}")
    g.answers = questions, decisions
    # A request can end before its last question.
    kit.request_record().evaluations = [_logged(*each) for each in zip(questions.questions, decisions, strict=False)] or None


async def _client() -> ServiceContext:
    """Return the application that authenticates with HTTP Basic."""
    client = await client_authentication.identify_client(client_authentication.ClientRequest(), ())
    return (client.context if client is not None and not client.relies_on_pkce else None) or errors.refuse(EvaluatorUnknown)


def _logged(question: Question | errors.Invalid, decision: AccessDecision) -> dict[str, object]:
    """Return a decision's entry in the access log. Subjects are logged by id only: a user name can be an email address."""
    if not isinstance(question, Question):
        return {"decision": False}
    return {
        "subject": question.subject_id if parse_id(question.subject_id) else None,
        "action": question.permission[:_LOGGED],
        "resource_type": question.resource_type[:_LOGGED],
        "resource_id": question.resource_id[:_LOGGED],
        "decision": decision.is_positive,
    }


def _evaluator(parse: Callable[[Mapping[str, Any]], Questions]) -> kit.AccessDecorator:
    """Return the decorator for API keys with the permission `evaluate:access`, and for the application itself."""
    access = kit.Access(
        "service_key_or_application",
        kit.Credentials.API_KEY,
        declared=kit.SHOWS,
        permission=Permission.EVALUATE_ACCESS,
        own_scope=own_permissions.SCOPE,
    )
    return kit.AccessDecorator(access, partial(_as_evaluator, parse))


def _answers() -> tuple[Questions, list[AccessDecision]]:
    """Return the questions in the request and their answers."""
    if g.refusal is not None:
        raise g.refusal
    questions, decisions = g.answers
    return questions, decisions


# Requests


class SubjectRequest(kit.RequestModel):
    """The subject that wants to do something. Properties are ignored."""

    type: kit.Text = Field(min_length=1, description="`user` or `service_account`. Other types have no permissions.", examples=["user"])
    id: kit.Text = Field(
        min_length=1, description="For a user: the `sub` in its tokens, or the `userName` that the organization's directory gave the user."
    )


class ActionRequest(kit.RequestModel):
    """The action that the subject wants to do. Properties are ignored."""

    name: kit.Text = Field(min_length=1, description="A permission of the application.", examples=["documents:write"])


class ResourceRequest(kit.RequestModel):
    """The resource that the action needs. It is in the access log, and changes no decision. Properties are ignored."""

    type: kit.Text = Field(min_length=1, description="The type of the resource.", examples=["document"])
    id: kit.Text = Field(min_length=1, description="The id of the resource.", examples=["q3-report"])


class EvaluationRequest(kit.RequestModel):
    """The question whether a subject may do something."""

    subject: SubjectRequest = Field(description="The user.")
    action: ActionRequest = Field(description="The permission.")
    resource: ResourceRequest = Field(description="The resource.")
    context: dict[str, Any] | None = Field(None, description=_IGNORED)


class EvaluationOptionsRequest(kit.RequestModel):
    """The options in a request with several questions."""

    evaluations_semantic: Semantic = Field(
        Semantic.EXECUTE_ALL, strict=False, description="Whether the request ends at the first negative or positive decision."
    )


class EvaluationsRequest(kit.RequestModel):
    """Several questions. Without `evaluations`, it is a single question."""

    subject: dict[str, Any] | None = Field(None, description="The subject of evaluations that have none.")
    action: dict[str, Any] | None = Field(None, description="The action of evaluations that have none.")
    resource: dict[str, Any] | None = Field(None, description="The resource of evaluations that have none.")
    context: dict[str, Any] | None = Field(None, description=_IGNORED)
    evaluations: list[dict[str, Any]] | None = Field(
        None,
        max_length=MAX_EVALUATIONS,
        description="The questions, every question as for `POST /access/v1/evaluation`, without the common parts.",
    )
    options: EvaluationOptionsRequest | None = Field(None, description="The options of the request.")


# Responses


class GrantReasonResponse(kit.ResponseModel):
    """Why a decision is positive."""

    role: str = Field(description="The slug of the role that has the permission.")
    group: str | None = Field(description="The group that gives the role, or null if the user has it themselves.")


class DenialReasonResponse(kit.ResponseModel):
    """Why a decision is negative."""

    code: DenialReason = Field(description="The reason, for programs.")
    message: str = Field(description="The reason as a sentence.")


class DecisionContextResponse(kit.ResponseModel):
    """The facts beside a decision."""

    reason: GrantReasonResponse | DenialReasonResponse = Field(description="The reason of the decision.")


class DecisionResponse(kit.ResponseModel):
    """A decision."""

    decision: bool = Field(description="Whether the subject may do it.")
    context: DecisionContextResponse = Field(description="The reason of the decision.")


class DecisionsResponse(kit.ResponseModel):
    """The decision, or the decisions for a request with `evaluations`."""

    decision: bool | None = kit.absent_if_none("The decision, if the request had no `evaluations`.")
    context: DecisionContextResponse | None = kit.absent_if_none("The reason of the decision, if the request had no `evaluations`.")
    evaluations: list[DecisionResponse] | None = kit.absent_if_none(
        "The decisions in the order of the questions. There are fewer if the `evaluations_semantic` ended the request."
    )


class PolicyDecisionPointResponse(kit.ResponseModel):
    """The policy decision point's metadata (AuthZEN section 9)."""

    policy_decision_point: str = Field(description="The base URL of this installation.")
    access_evaluation_endpoint: str = Field(description="The URL for a single question.")
    access_evaluations_endpoint: str = Field(description="The URL for several questions.")


def _to_response(decision: AccessDecision) -> DecisionResponse:
    reason: GrantReasonResponse | DenialReasonResponse
    if decision.reason is None:
        reason = GrantReasonResponse(role=decision.role or "", group=decision.group)
    else:
        reason = DenialReasonResponse(code=decision.reason, message=decision.explanation or "")
    return DecisionResponse(decision=decision.is_positive, context=DecisionContextResponse(reason=reason))


_NO_STORE: Final = {"Cache-Control": "no-store"}


@routes.post(EVALUATION_PATH)
@_evaluator(parse_single)
@kit.authenticates(*_SECURITY)
async def evaluate(data: EvaluationRequest) -> tuple[DecisionResponse, int, dict[str, str]]:
    """Ask whether a user has an application's permission.

    The application authenticates with an API key that has `evaluate:access`, or with its client id and secret. An
    access token that it got for itself is enough, too. It can ask about its own permissions only. The decision is valid
    for this moment: a role that was taken away counts in no later answer. Unknown users and permissions get a negative
    decision.
    """
    _, [decision] = _answers()
    return _to_response(decision), 200, _NO_STORE


@routes.post(EVALUATIONS_PATH)
@_evaluator(parse_batch)
@kit.authenticates(*_SECURITY)
async def evaluate_all(data: EvaluationsRequest) -> tuple[DecisionsResponse, int, dict[str, str]]:
    """Ask several such questions at once.

    All decisions are valid for the same moment. An incomplete question gets a negative decision.
    """
    questions, decisions = _answers()
    responses = [_to_response(decision) for decision in decisions]
    if questions.is_batch:
        return DecisionsResponse(evaluations=responses), 200, _NO_STORE
    [only] = responses
    return DecisionsResponse(decision=only.decision, context=only.context), 200, _NO_STORE


@routes.get(METADATA_PATH)
@kit.operations
@kit.any_origin
async def get_metadata() -> tuple[PolicyDecisionPointResponse, int, dict[str, str]]:
    """Show the policy decision point's metadata.

    Clients can cache it for five minutes.
    """
    base = kit.app_context().base_url
    metadata = PolicyDecisionPointResponse(
        policy_decision_point=base,
        access_evaluation_endpoint=f"{base}{EVALUATION_PATH}",
        access_evaluations_endpoint=f"{base}{EVALUATIONS_PATH}",
    )
    return metadata, 200, {"Cache-Control": "public, max-age=300"}
