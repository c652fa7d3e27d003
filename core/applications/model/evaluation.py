"""Questions whether a subject may do something, and their answers (AuthZEN Authorization API 1.0)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

from core.kernel import errors
from core.kernel.values import is_printable, parse_id

API_PATH: Final = "/access/v1"  # with the base URL, the audience in an application's own tokens for these questions
EVALUATION_PATH: Final = f"{API_PATH}/evaluation"
EVALUATIONS_PATH: Final = f"{API_PATH}/evaluations"
METADATA_PATH: Final = "/.well-known/authzen-configuration"
ACCEPTED_CREDENTIALS: Final = (
    "Send an API key with the permission evaluate:access in the header X-Api-Key. Or send the client id and secret of the application "
    "with HTTP Basic. Or send an access token for the scope evaluate:access that the application got with its credentials."
)
MAX_EVALUATIONS: Final = 100  # per request
MAX_TEXT: Final = 2048  # characters in an id, a type or a name


class EvaluatorUnknown(errors.WrongToken):
    """This credential cannot ask for decisions. Send an API key, or the credentials of the application."""

    def __init__(self) -> None:
        super().__init__(f"This credential cannot ask for decisions. {ACCEPTED_CREDENTIALS}")


class EvaluationInvalid(errors.Invalid):
    """This evaluation is not valid. It needs a subject and a resource with a type and an id, and an action with a name."""


class TooManyEvaluations(errors.Invalid):
    """A request can have at most 100 evaluations. Send several requests."""


class SemanticUnknown(errors.Invalid):
    """The evaluations_semantic must be execute_all, deny_on_first_deny or permit_on_first_permit. Send one of them, or leave it out."""


class SubjectType(StrEnum):
    """The subject types that can have permissions."""

    USER = "user"
    SERVICE_ACCOUNT = "service_account"  # has no application role today


class Semantic(StrEnum):
    """The evaluation after which a request ends."""

    EXECUTE_ALL = "execute_all"
    DENY_ON_FIRST_DENY = "deny_on_first_deny"
    PERMIT_ON_FIRST_PERMIT = "permit_on_first_permit"


@dataclass(frozen=True, slots=True)
class Question:
    """The question whether a subject has a permission. The resource is only logged: application roles are not about resources."""

    subject_type: str
    subject_id: str
    permission: str
    resource_type: str
    resource_id: str

    @property
    def is_about_user(self) -> bool:
        return self.subject_type == SubjectType.USER

    @property
    def user_id(self) -> UUID | None:
        """The subject as a user id, or None if it is no id. A subject that is not an id can be a user name."""
        return parse_id(self.subject_id) if self.is_about_user else None

    @property
    def user_name(self) -> str | None:
        """The subject as the user name in the organization's directory, or None."""
        return self.subject_id if self.is_about_user and self.user_id is None else None


@dataclass(frozen=True, slots=True)
class Questions:
    """The questions in one request, in their order. An invalid question is the refusal that says why.

    `is_batch` is true if the answer is a list.
    """

    questions: tuple[Question | EvaluationInvalid, ...]
    semantic: Semantic = Semantic.EXECUTE_ALL
    is_batch: bool = False

    @property
    def valid(self) -> list[Question]:
        return [question for question in self.questions if isinstance(question, Question)]


NO_QUESTIONS: Final = Questions(())


class SubjectState(StrEnum):
    """A user's state at an application."""

    UNKNOWN = "unknown"  # the application knows no such user (security K-3)
    INACTIVE = "inactive"  # deactivated, blocked, or not allowed to use the application
    ACTIVE = "active"


@dataclass(frozen=True, slots=True)
class SubjectFacts:
    """The stored facts about a question, all from the same moment.

    `role` is the slug of the user's role that has the permission, or None. `group` is the name of the group that gives
    the role, or None if the user has it themselves.
    """

    state: SubjectState
    is_declared: bool  # the application declares the permission
    role: str | None = None
    group: str | None = None


class DenialReason(StrEnum):
    """Why a decision is negative."""

    EVALUATION_INVALID = "evaluation_invalid"
    SUBJECT_TYPE_UNKNOWN = "subject_type_unknown"
    SUBJECT_UNKNOWN = "subject_unknown"
    SUBJECT_INACTIVE = "subject_inactive"
    PERMISSION_UNKNOWN = "permission_unknown"
    ROLE_MISSING = "role_missing"

    @property
    def sentence(self) -> str:
        return _SENTENCES[self]


_SENTENCES: Final[Mapping[DenialReason, str]] = {
    DenialReason.EVALUATION_INVALID: str(EvaluationInvalid.__doc__),
    DenialReason.SUBJECT_TYPE_UNKNOWN: "Only subjects of the types user and service_account can have permissions.",
    DenialReason.SUBJECT_UNKNOWN: "The application has no user with this id.",
    DenialReason.SUBJECT_INACTIVE: "The user is deactivated or blocked, or may not use the application.",
    DenialReason.PERMISSION_UNKNOWN: "The application declares no such permission.",
    DenialReason.ROLE_MISSING: "No role of the subject has this permission.",
}


@dataclass(frozen=True, slots=True)
class AccessDecision:
    """The answer to a question. A decision is positive if a role gives the permission, and has a reason otherwise."""

    role: str | None = None
    group: str | None = None
    reason: DenialReason | None = None
    explanation: str | None = None  # explains the reason

    @property
    def is_positive(self) -> bool:
        return self.role is not None

    @classmethod
    def denial(cls, reason: DenialReason, explanation: str | None = None) -> "AccessDecision":
        return cls(reason=reason, explanation=explanation or reason.sentence)


def parse_single(body: Mapping[str, Any]) -> Questions:
    """Return the question in a request to `POST /access/v1/evaluation`. Unknown members are ignored."""
    question = _parse_question(body)
    if isinstance(question, EvaluationInvalid):
        raise question
    return Questions((question,))


def parse_batch(body: Mapping[str, Any]) -> Questions:
    """Return the questions in a request to `POST /access/v1/evaluations`.

    A request without `evaluations`, or with an empty list, has one question (AuthZEN section 7.1). If an evaluation
    lacks a member, the request's member counts. An invalid question does not make the request invalid (section 7.2.1).
    """
    semantic, items = _parse_semantic(body.get("options")), body.get("evaluations")
    if items is None or items == []:
        return replace(parse_single(body), semantic=semantic)
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise EvaluationInvalid("The evaluations must be an array of JSON objects.")
    if len(items) > MAX_EVALUATIONS:
        raise TooManyEvaluations
    return Questions(tuple(_parse_question(_with_defaults(item, body)) for item in items), semantic, is_batch=True)


def _parse_semantic(options: Any) -> Semantic:
    if options is None:
        return Semantic.EXECUTE_ALL
    if not isinstance(options, dict):
        raise SemanticUnknown("The options must be a JSON object.")
    semantic = options.get("evaluations_semantic", Semantic.EXECUTE_ALL)
    if semantic not in tuple(Semantic):
        raise SemanticUnknown
    return Semantic(semantic)


def _with_defaults(item: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
    """Return an evaluation. If the evaluation lacks a subject, action or resource, or a member in these, the request's value counts."""
    merged = {}
    for name in ("subject", "action", "resource"):
        default, own = request.get(name), item.get(name)
        merged[name] = {**default, **own} if isinstance(default, dict) and isinstance(own, dict) else default if name not in item else own
    return merged


def _parse_question(body: Mapping[str, Any]) -> Question | EvaluationInvalid:
    values: list[str] = []
    for name, members in (("subject", ("type", "id")), ("action", ("name",)), ("resource", ("type", "id"))):
        entity = body.get(name)
        if not isinstance(entity, dict):
            return EvaluationInvalid(f'The field "{name}" must be a JSON object.')
        for member in members:
            value = entity.get(member)
            if not isinstance(value, str) or not 0 < len(value) <= MAX_TEXT or not is_printable(value):
                return EvaluationInvalid(f'The field "{name}.{member}" must be a text with 1 to {MAX_TEXT:,} printable characters.')
            values.append(value)
    subject_type, subject_id, permission, resource_type, resource_id = values
    return Question(subject_type, subject_id, permission, resource_type, resource_id)


def decide(question: Question, facts: SubjectFacts) -> AccessDecision:
    """Return the decision about a question. Everything that is not certain is a denial."""
    if question.subject_type not in tuple(SubjectType):
        return AccessDecision.denial(DenialReason.SUBJECT_TYPE_UNKNOWN)
    if question.is_about_user and facts.state is SubjectState.UNKNOWN:
        return AccessDecision.denial(DenialReason.SUBJECT_UNKNOWN)
    if question.is_about_user and facts.state is SubjectState.INACTIVE:
        return AccessDecision.denial(DenialReason.SUBJECT_INACTIVE)
    if not facts.is_declared:
        return AccessDecision.denial(DenialReason.PERMISSION_UNKNOWN)
    if not question.is_about_user or facts.role is None:
        return AccessDecision.denial(DenialReason.ROLE_MISSING)
    return AccessDecision(facts.role, facts.group)


def decide_all(request: Questions, facts: Sequence[SubjectFacts]) -> list[AccessDecision]:
    """Return the decisions for a request, up to the decision after which it ends.

    `facts` are for the request's valid questions, in their order.
    """
    decisions: list[AccessDecision] = []
    known = iter(facts)
    for question in request.questions:
        if isinstance(question, Question):
            decision = decide(question, next(known))
        else:
            decision = AccessDecision.denial(DenialReason.EVALUATION_INVALID, question.message)
        decisions.append(decision)
        if _ends(request.semantic, decision):
            break
    return decisions


def _ends(semantic: Semantic, decision: AccessDecision) -> bool:
    if semantic is Semantic.EXECUTE_ALL:
        return False
    return decision.is_positive == (semantic is Semantic.PERMIT_ON_FIRST_PERMIT)
