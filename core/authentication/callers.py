"""The callers of our own API: users and service accounts, by their access tokens, and users by their personal access tokens.

Every function reads the token, uses up its DPoP proof, loads the facts with one statement, and checks what the route requires. A token with
scopes is refused if a scope is missing. A personal access token is never bound to a key.
"""

from core.accounts.model.profiles import OwnProfile
from core.authentication import sessions
from core.authentication.model.dpop import BearerTokenAsBound, PresentedToken
from core.authentication.model.tokens import START
from core.authentication.tokens import dpop, personal_tokens
from core.kernel import callers
from core.kernel.access import Requirement
from core.kernel.causes import Caller
from core.kernel.claims import ProgramClaims
from core.programs import service_account_callers
from ports import Ports


async def authenticate(
    ports: Ports, caller: Caller, presented: PresentedToken, requirement: Requirement, *, allow_former_users: bool = False
) -> callers.Person:
    """Return the user that presents this access token on a route about their own account.

    `allow_former_users` accepts users who have left the organization or the service of the token.

    Raises: NeedsPerson for a service account.
    """
    if (token := _personal_token(presented)) is not None:
        return await personal_tokens.authenticate(ports, caller, token, requirement)
    claims = await dpop.read_token(ports, presented)
    if isinstance(claims, ProgramClaims):
        return await service_account_callers.refuse_on_account(ports, claims, dpop.reading(ports, presented.proof))
    return await sessions.load_person(ports, caller, claims, presented.proof, allow_former_users=allow_former_users)


async def authenticate_with_profile(
    ports: Ports, caller: Caller, presented: PresentedToken, requirement: Requirement
) -> tuple[callers.Person, OwnProfile]:
    """Return the user that presents this access token, and their profile."""
    if (token := _personal_token(presented)) is not None:
        return await personal_tokens.authenticate_with_profile(ports, caller, token, requirement)
    claims = await dpop.read_token(ports, presented)
    if isinstance(claims, ProgramClaims):
        return await service_account_callers.refuse_on_account(ports, claims, dpop.reading(ports, presented.proof))
    return await sessions.load_person_with_profile(ports, caller, claims, presented.proof)


async def authenticate_member(
    ports: Ports, caller: Caller, presented: PresentedToken, slug: str, requirement: Requirement
) -> callers.OrganizationCaller:
    """Return the user or the service account that presents this access token, acting in the organization of `slug`."""
    if (token := _personal_token(presented)) is not None:
        return await personal_tokens.authenticate_member(ports, caller, token, slug, requirement)
    claims = await dpop.read_token(ports, presented)
    if isinstance(claims, ProgramClaims):
        return await service_account_callers.authenticate_member(
            ports, caller, claims, dpop.reading(ports, presented.proof), slug, requirement
        )
    return await sessions.load_member(ports, caller, claims, presented.proof, slug, requirement)


async def authenticate_on_platform(
    ports: Ports, caller: Caller, presented: PresentedToken, requirement: Requirement
) -> callers.PlatformCaller:
    """Return the user or the service account of the platform that presents this access token.

    Whether the user is a platform owner is checked by the caller, who first records the request of an impersonator.
    """
    if (token := _personal_token(presented)) is not None:
        return await personal_tokens.refuse_on_platform(ports, token)
    claims = await dpop.read_token(ports, presented)
    if isinstance(claims, ProgramClaims):
        return await service_account_callers.authenticate_on_platform(
            ports, caller, claims, dpop.reading(ports, presented.proof), requirement
        )
    return await sessions.load_person(ports, caller, claims, presented.proof, allow_former_users=True)


def _personal_token(presented: PresentedToken) -> str | None:
    """Return the token if it is a personal access token, else None. Raises: BearerTokenAsBound if it is presented with a DPoP proof."""
    if not presented.text.startswith(START):
        return None
    if presented.proof is not None:
        raise BearerTokenAsBound
    return presented.text
