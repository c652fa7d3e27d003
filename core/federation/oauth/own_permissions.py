"""Questions of an application about its permissions, with an access token that it got for itself (RFC 6749 section 4.4)."""

from core.applications import authorization
from core.applications.model.evaluation import API_PATH, AccessDecision, EvaluatorUnknown, Questions
from core.authentication.model.dpop import PresentedToken
from core.authentication.tokens import dpop
from core.kernel.callers import ServiceContext
from core.kernel.claims import Accepts, ProgramClaims
from core.kernel.errors import TokenInvalid
from core.kernel.roles import Permission
from ports import Ports

SCOPE = Permission.EVALUATE_ACCESS.value


def audience(ports: Ports) -> str:
    """Return the audience of these tokens. A token for another resource is refused, so that no API can use the tokens that it receives."""
    return ports.tokens.issuer + API_PATH


async def answer(ports: Ports, presented: PresentedToken, questions: Questions) -> tuple[ServiceContext, list[AccessDecision]]:
    """Return the application with this token, and the decisions about its permissions.

    Raises: EvaluatorUnknown unless it is such a token; TokenExpired, and the other errors of `dpop.read_token` and
    `authorization.answer_credential`.
    """
    try:
        claims = await dpop.read_token(ports, presented, accepts=Accepts.RESOURCES)
    except TokenInvalid:  # can be a credential of another kind
        raise EvaluatorUnknown from None
    if not isinstance(claims, ProgramClaims) or claims.audience != audience(ports) or SCOPE not in claims.scope:
        raise EvaluatorUnknown
    async with dpop.reading(ports, presented.proof) as read:
        now = ports.clock.now()
        service, decisions = await authorization.answer_credential(read, claims.client_id, claims.credential_id, questions, now)
    return service, decisions
