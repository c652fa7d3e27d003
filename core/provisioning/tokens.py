"""SCIM tokens, with which directories provision users (security C-1, C-8), and the last requests with them."""

import hmac
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from uuid import UUID

from core.kernel.access import lasting_rights, require_power_of_admin
from core.kernel.callers import OrganizationCaller, OrganizationStatus, ScimClient
from core.kernel.causes import Caller
from core.kernel.errors import OrganizationNotActive, refuse
from core.kernel.roles import NO_RIGHTS, Authority, Capability, Rights
from core.kernel.values import digest, new_id
from core.programs.model.organization_tokens import MAX_TOKENS, TooManyTokens, check_expiry, is_expired
from core.provisioning import events
from core.provisioning.model.directories import (
    MAX_TOKEN_LENGTH,
    TOKEN_START,
    DirectoryAboveOwn,
    DirectoryGivesMore,
    ScimRequest,
    ScimToken,
    ScimTokenInvalid,
    ScimTokenNotFound,
    ScimTokenRecord,
    TokenEnd,
    new_token,
    rights_used,
    with_rights_of,
)
from core.tenancy import organizations
from core.tenancy.model.groups import require_equal_creators, rights_by_directories
from core.tenancy.model.organizations import Organization
from ports import Ports
from ports.storage import Transaction

# Management by members


async def create(
    ports: Ports, caller: OrganizationCaller, name: str, expires_at: datetime | None, *, directory_groups: bool = False
) -> tuple[ScimToken, str]:
    """Create a token. Return it with its secret, which is never returned again.

    Raises: TokenExpiryPast; the errors of `store`.
    """
    now = ports.clock.now()
    check_expiry(expires_at, now)
    secret, prefix = new_token()
    draft = TokenDraft(name, prefix, digest(secret), expires_at, directory_groups)
    async with ports.storage.transaction(by=caller) as tx:
        return await store(tx, caller, draft, now), secret


@dataclass(frozen=True, slots=True)
class TokenDraft:
    """A new token's values."""

    name: str
    prefix: str
    token_hash: bytes = field(repr=False)
    expires_at: datetime | None = None
    directory_groups: bool = False


async def store(tx: Transaction, caller: OrganizationCaller, draft: TokenDraft, now: datetime) -> ScimToken:
    """Add a token. Raises: DirectoryAboveOwn, DirectoryGivesMore, TooManyTokens; the errors of `require_power_of_admin`."""
    organization, rights = await organizations.lock_organization_for(tx, caller, Capability.INTEGRATIONS_MANAGE)
    require_power_of_admin(caller, rights, rights_used(directory_groups=draft.directory_groups), DirectoryAboveOwn)
    if draft.directory_groups:
        await _require_power_over_groups(tx, caller, organization.id, rights)
    if sum(not is_expired(token.expires_at, now) for token in await tx.scim_tokens.of_org(organization.id)) >= MAX_TOKENS:
        raise TooManyTokens
    token = ScimToken(
        id=new_id(),
        org_id=organization.id,
        name=draft.name,
        prefix=draft.prefix,
        expires_at=draft.expires_at,
        created_by=caller.actor_id,
        created_at=now,
        directory_groups=draft.directory_groups,
    )
    await tx.scim_tokens.add(token, draft.token_hash)
    tx.record(events.scim_token_created(token))
    return token


async def set_directory_groups(ports: Ports, caller: OrganizationCaller, token_id: UUID, *, directory_groups: bool) -> ScimToken:
    """Let a directory create groups, or no longer, and return its token. The change counts from the next request on.

    Groups that the directory created stay. If the organization has no other token with directory groups, admins manage
    the groups.
    """
    async with ports.storage.transaction(by=caller) as tx:
        organization, rights = await organizations.lock_organization_for(tx, caller, Capability.INTEGRATIONS_MANAGE)
        old = await tx.scim_tokens.by_id(organization.id, token_id) or refuse(ScimTokenNotFound)
        given = NO_RIGHTS
        if directory_groups:
            require_power_of_admin(caller, rights, rights_used(directory_groups=True), DirectoryAboveOwn)
            given = await _require_power_over_groups(tx, caller, organization.id, rights)
        new = replace(old, directory_groups=directory_groups)
        if new != old:
            await tx.scim_tokens.set_directory_groups(organization.id, new.id, directory_groups=directory_groups)
            if directory_groups:
                creators = await tx.scim_tokens.creators(organization.id, ports.clock.now())
                require_equal_creators([each for each in creators if each.token_id == new.id], given)
            tx.record(events.scim_token_updated(old, new))
    return new


async def _require_power_over_groups(tx: Transaction, caller: OrganizationCaller, org_id: UUID, rights: Rights) -> Rights:
    """Check that the caller has the rights that directories' groups give now, and return these rights.

    A service account needs an owner's grant for every right that can be granted: the directory remains when the account is gone.
    """
    given = rights_by_directories(await tx.group_roles.active(org_id))
    if missing := given - lasting_rights(caller, rights):
        raise DirectoryGivesMore(sorted(missing))
    return given


async def list_tokens(ports: Ports, caller: OrganizationCaller) -> list[ScimToken]:
    """Return all the organization's tokens, including expired tokens, oldest first."""
    async with ports.storage.reading() as read:
        return await read.scim_tokens.of_org(caller.acts_in.id)


async def describe_end(ports: Ports, caller: OrganizationCaller, token_id: UUID) -> TokenEnd:
    """Return what happens when a token is revoked."""
    async with ports.storage.reading() as read:
        token = await read.scim_tokens.by_id(caller.acts_in.id, token_id) or refuse(ScimTokenNotFound)
        users = await read.scim_users.page(caller.acts_in.id, None, 0, 1)
        requests = await read.scim_requests.last(caller.acts_in.id)
    return TokenEnd(token, users.total, next((request.at for request in requests if request.token_id == token.id), None))


async def revoke(ports: Ports, caller: OrganizationCaller, token_id: UUID) -> None:
    """Revoke a token. A revoked token stops working with the next request."""
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.lock_organization_for(tx, caller, Capability.INTEGRATIONS_MANAGE)
        token = await tx.scim_tokens.by_id(organization.id, token_id) or refuse(ScimTokenNotFound)
        await tx.scim_tokens.remove(organization.id, token.id)
        tx.record(events.scim_token_revoked(token))


# Use by directories


async def load_record(ports: Ports, token: str) -> ScimTokenRecord:
    """Return this token's record, also for an expired token. Pass the record to `authenticate` before use.

    The lookup uses the hash, in constant time (security K-1).

    Raises: ScimTokenInvalid.
    """
    if len(token) > MAX_TOKEN_LENGTH or not token.startswith(TOKEN_START):
        raise ScimTokenInvalid
    token_hash = digest(token)
    async with ports.storage.reading() as read:
        record = await read.scim_tokens.by_hash(token_hash, ports.clock.now())
    if record is None or not hmac.compare_digest(record.token_hash, token_hash):
        raise ScimTokenInvalid
    return record


def authenticate(caller: Caller, record: ScimTokenRecord) -> ScimClient:
    """Return the directory that sent this token. Raises: ScimTokenInvalid if it has expired; OrganizationNotActive."""
    if record.is_expired:
        raise ScimTokenInvalid
    if record.status is not OrganizationStatus.ACTIVE:
        raise OrganizationNotActive
    return ScimClient(
        token_id=record.token_id,
        org_id=record.org_id,
        org_slug=record.org_slug,
        directory_groups=record.directory_groups,
        has_attributes=record.has_attributes,
        address=caller.address,
        agent=caller.agent,
    )


async def authority_of(tx: Transaction, caller: ScimClient) -> Authority:
    """Return the directory's power over members (security R-10). The caller has locked the organization."""
    creator = await tx.created_secrets.creator(caller.org_id, caller.token_id)
    return with_rights_of(NO_RIGHTS if creator is None else creator.rights)


def lock_organization(
    tx: Transaction, caller: ScimClient, now: datetime, *, creates_groups: bool = False
) -> Callable[[], Awaitable[Organization]]:
    """Lock the organization and check the token again (security Z-5).

    Every change by a directory starts here. The caller may run its first statement in the same round trip, which may raise its own errors,
    and then awaits the returned function. The returned function returns the organization or raises ScimTokenInvalid or
    OrganizationNotActive. With `creates_groups`, the token must allow directory groups.

    Revoking a token also locks the organization, so no change happens after a revocation. All other
    changes by the directory wait for this lock, so it is held for as few round trips as possible.
    """
    organization_row = tx.organizations.lock(caller.org_id)
    is_live = tx.scim_tokens.is_live(caller.org_id, caller.token_id, now, creates_groups=creates_groups)

    async def locked_organization() -> Organization:
        organization = await organization_row
        if organization is None or not await is_live:
            raise ScimTokenInvalid
        if organization.status is not OrganizationStatus.ACTIVE:
            raise OrganizationNotActive
        return organization

    return locked_organization


async def list_last_requests(ports: Ports, caller: OrganizationCaller, *, failed: bool | None = None) -> list[ScimRequest]:
    """Return the last MAX_ENTRIES requests by the organization's directory, newest first.

    `failed`: return only requests that failed, or with False only requests that succeeded.
    """
    async with ports.storage.reading() as read:
        requests = await read.scim_requests.last(caller.acts_in.id)
    return [request for request in requests if failed is None or request.has_failed is failed]


async def write_requests(ports: Ports, org_id: UUID, requests: Sequence[ScimRequest]) -> None:
    """Store at most MAX_ENTRIES requests, oldest first, in place of the oldest requests."""
    async with ports.storage.autocommit() as autocommit:
        await autocommit.scim_requests.add(org_id, requests)
