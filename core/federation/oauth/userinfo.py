"""The userinfo endpoint (OpenID Connect Core section 5.3)."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from core.authentication.model import claim_rules
from core.authentication.model.dpop import PresentedToken
from core.authentication.model.openid import Scope
from core.authentication.tokens import dpop
from core.kernel import errors
from core.kernel.access import to_person
from core.kernel.api_scopes import ScopeInsufficient
from core.kernel.callers import OrganizationStatus
from core.kernel.causes import Anonymous
from core.kernel.claims import FRONTEND_CLIENT_ID, Accepts, Claims
from ports import Ports


@dataclass(frozen=True, slots=True)
class UserInfo:
    """The claims that an application may see, and the session of its access token. `jwt` has them if they are signed."""

    claims: dict[str, Any]
    session_id: UUID
    client_id: UUID | None  # of the application if it authenticates, or else None
    jwt: str | None = None


async def load(ports: Ports, presented: PresentedToken) -> UserInfo:
    """Return the claims that the application with this access token may see, as they are now.

    An ID token can have a token in `_claim_sources`. It reads the claims that were too large, as a JWT (OpenID Connect Core
    section 5.6.2).

    Raises: WrongToken, TokenInvalid, SessionEnded, NotAnEndUser, OrganizationNotActive,
    ScopeInsufficient.
    """
    claims, now = await dpop.read_token(ports, presented, accepts=Accepts.CLAIMS), ports.clock.now()
    if not isinstance(claims, Claims):
        raise errors.WrongToken
    if Scope.OPENID not in claims.scope:
        raise ScopeInsufficient(Scope.OPENID)
    # The tokens of the platform's own frontend are for the API, and userinfo takes them too.
    is_source = claims.audience == ports.tokens.claims_audience
    if claims.client_id is not None and claims.audience != ports.tokens.userinfo_audience and not is_source:
        raise errors.TokenInvalid
    async with dpop.reading(ports, presented.proof) as read:
        context, grant, facts, authenticates = await read.session_contexts.load_userinfo(
            claims.client_id, claims.session_id, claims.user_id, now
        ) or errors.refuse(errors.SessionEnded)
    person = to_person(Anonymous(), claims, context)
    if person.service is not None and person.service.status is not OrganizationStatus.ACTIVE:
        raise errors.OrganizationNotActive
    grant = grant.narrow(claims.scope)  # a refresh can leave scopes out
    facts = facts.seen_by(context.restricted_to)
    shown = {"sub": str(context.user_id), **(claim_rules.large_claims if is_source else claim_rules.userinfo_claims)(facts, grant)}
    client_id = FRONTEND_CLIENT_ID if claims.client_id is None else str(claims.client_id)
    jwt = ports.tokens.sign_claims(shown, client_id, now) if is_source else None
    return UserInfo(shown, claims.session_id, claims.client_id if authenticates else None, jwt)
