"""Personal access tokens, added directly."""

from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from core.accounts.model.accounts import Account
from core.authentication.model.tokens import PersonalToken, new_personal_token
from core.kernel.api_scopes import ApiScope
from core.kernel.causes import SYSTEM
from core.kernel.values import digest, new_id
from ports import Ports

ALL_OF_ORGANIZATION = tuple(scope for scope in ApiScope if not scope.area.is_of_platform and scope.area != "account")
ALL_OF_ACCOUNT = (ApiScope.ACCOUNT_READ, ApiScope.ACCOUNT_WRITE)


@dataclass(frozen=True, slots=True)
class AddedToken:
    """A personal access token and its text."""

    id: UUID
    text: str
    prefix: str
    scopes: frozenset[ApiScope]


async def add_personal_token(
    ports: Ports,
    account: Account,
    org: UUID | None = None,
    scopes: tuple[ApiScope, ...] | None = None,
    *,
    name: str = "Nightly export",
    lifetime: timedelta = timedelta(days=30),
) -> AddedToken:
    """Add the user's token, which acts in the organization, or on their own account. It has all scopes by default."""
    text, prefix = new_personal_token(None)
    now = ports.clock.now()
    if scopes is None:
        scopes = ALL_OF_ACCOUNT if org is None else ALL_OF_ORGANIZATION
    token = PersonalToken(
        id=new_id(),
        user_id=account.id,
        name=name,
        prefix=prefix,
        scopes=scopes,
        org_id=org,
        org_slug=None,
        org_name=None,
        created_at=now,
        expires_at=now + lifetime,
        last_used_at=None,
    )
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.personal_tokens.add(token, digest(text), SYSTEM)
    return AddedToken(token.id, text, prefix, frozenset(scopes))
