"""SCIM tokens, with which directories provision users (security C-1, C-8), and the last requests with them."""

import hmac
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from uuid import UUID

from core.kernel import access, callers, errors, roles, values
from core.kernel.causes import Caller
from core.programs.model import organization_tokens
from core.provisioning import events
from core.provisioning.model import directories
from core.tenancy import organizations
from core.tenancy.model import groups
from core.tenancy.model.organizations import Organization
from ports import Ports
from ports.storage import Transaction

# Management by members


async def create(
    ports: Ports, caller: callers.OrganizationCaller, name: str, expires_at: datetime | None, *, directory_groups: bool = False
) -> tuple[directories.ScimToken, str]:
    """Create a token. Return it with its secret, which is never returned again.

    Raises: TokenExpiryPast; the errors of `store`.
    """
    now = ports.clock.now()
    organization_tokens.check_expiry(expires_at, now)
    secret, prefix = directories.new_token()
    draft = TokenDraft(name, prefix, values.digest(secret), expires_at, directory_groups)
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


async def store(tx: Transaction, caller: callers.OrganizationCaller, draft: TokenDraft, now: datetime) -> directories.ScimToken:
    """Add a token. Raises: DirectoryAboveOwn, DirectoryGivesMore, TooManyTokens; the errors of `require_power_of_admin`."""
    organization, rights = await organizations.lock_organization_for(tx, caller, roles.Capability.INTEGRATIONS_MANAGE)
    access.require_power_of_admin(
        caller, rights, directories.rights_used(directory_groups=draft.directory_groups), directories.DirectoryAboveOwn
    )
    if draft.directory_groups:
        await _require_power_over_groups(tx, caller, organization.id, rights)
    if (
        sum(not organization_tokens.is_expired(token.expires_at, now) for token in await tx.scim_tokens.of_org(organization.id))
        >= organization_tokens.MAX_TOKENS
    ):
        raise organization_tokens.TooManyTokens
    token = directories.ScimToken(
        id=values.new_id(),
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


async def set_directory_groups(
    ports: Ports, caller: callers.OrganizationCaller, token_id: UUID, *, directory_groups: bool
) -> directories.ScimToken:
    """Let a directory create groups, or no longer, and return its token. The change counts from the next request on.

    Groups that the directory created stay. If the organization has no other token with directory groups, admins manage
    the groups.
    """
    async with ports.storage.transaction(by=caller) as tx:
        organization, rights = await organizations.lock_organization_for(tx, caller, roles.Capability.INTEGRATIONS_MANAGE)
        old = await tx.scim_tokens.by_id(organization.id, token_id) or errors.refuse(directories.ScimTokenNotFound)
        given = roles.NO_RIGHTS
        if directory_groups:
            access.require_power_of_admin(caller, rights, directories.rights_used(directory_groups=True), directories.DirectoryAboveOwn)
            given = await _require_power_over_groups(tx, caller, organization.id, rights)
        new = replace(old, directory_groups=directory_groups)
        if new != old:
            await tx.scim_tokens.set_directory_groups(organization.id, new.id, directory_groups=directory_groups)
            if directory_groups:
                creators = await tx.scim_tokens.creators(organization.id, ports.clock.now())
                groups.require_equal_creators([each for each in creators if each.token_id == new.id], given)
            tx.record(events.scim_token_updated(old, new))
    return new


async def _require_power_over_groups(
    tx: Transaction, caller: callers.OrganizationCaller, org_id: UUID, rights: roles.Rights
) -> roles.Rights:
    """Check that the caller has the rights that directories' groups give now, and return these rights.

    A service account needs an owner's grant for every right that can be granted: the directory remains when the account is gone.
    """
    given = groups.rights_by_directories(await tx.group_roles.active(org_id))
    if missing := given - access.lasting_rights(caller, rights):
        raise directories.DirectoryGivesMore(sorted(missing))
    return given


async def list_tokens(ports: Ports, caller: callers.OrganizationCaller) -> list[directories.ScimToken]:
    """Return all the organization's tokens, including expired tokens, oldest first."""
    async with ports.storage.reading() as read:
        return await read.scim_tokens.of_org(caller.acts_in.id)


async def describe_end(ports: Ports, caller: callers.OrganizationCaller, token_id: UUID) -> directories.TokenEnd:
    """Return what happens when a token is revoked."""
    async with ports.storage.reading() as read:
        token = await read.scim_tokens.by_id(caller.acts_in.id, token_id) or errors.refuse(directories.ScimTokenNotFound)
        users = await read.scim_users.page(caller.acts_in.id, None, 0, 1)
        requests = await read.scim_requests.last(caller.acts_in.id)
    return directories.TokenEnd(token, users.total, next((request.at for request in requests if request.token_id == token.id), None))


async def revoke(ports: Ports, caller: callers.OrganizationCaller, token_id: UUID) -> None:
    """Revoke a token. A revoked token stops working with the next request."""
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.lock_organization_for(tx, caller, roles.Capability.INTEGRATIONS_MANAGE)
        token = await tx.scim_tokens.by_id(organization.id, token_id) or errors.refuse(directories.ScimTokenNotFound)
        await tx.scim_tokens.remove(organization.id, token.id)
        tx.record(events.scim_token_revoked(token))


# Use by directories


async def load_record(ports: Ports, token: str) -> directories.ScimTokenRecord:
    """Return this token's record, also for an expired token. Pass the record to `authenticate` before use.

    The lookup uses the hash, in constant time (security K-1).

    Raises: ScimTokenInvalid.
    """
    if len(token) > directories.MAX_TOKEN_LENGTH or not token.startswith(directories.TOKEN_START):
        raise directories.ScimTokenInvalid
    token_hash = values.digest(token)
    async with ports.storage.reading() as read:
        record = await read.scim_tokens.by_hash(token_hash, ports.clock.now())
    if record is None or not hmac.compare_digest(record.token_hash, token_hash):
        raise directories.ScimTokenInvalid
    return record


def authenticate(caller: Caller, record: directories.ScimTokenRecord) -> callers.ScimClient:
    """Return the directory that sent this token. Raises: ScimTokenInvalid if it has expired; OrganizationNotActive."""
    if record.is_expired:
        raise directories.ScimTokenInvalid
    if record.status is not callers.OrganizationStatus.ACTIVE:
        raise errors.OrganizationNotActive
    return callers.ScimClient(
        token_id=record.token_id,
        org_id=record.org_id,
        org_slug=record.org_slug,
        directory_groups=record.directory_groups,
        has_attributes=record.has_attributes,
        address=caller.address,
        agent=caller.agent,
    )


async def authority_of(tx: Transaction, caller: callers.ScimClient) -> roles.Authority:
    """Return the directory's power over members (security R-10). The caller has locked the organization."""
    creator = await tx.created_secrets.creator(caller.org_id, caller.token_id)
    return directories.with_rights_of(roles.NO_RIGHTS if creator is None else creator.rights)


def lock_organization(
    tx: Transaction, caller: callers.ScimClient, now: datetime, *, creates_groups: bool = False
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
            raise directories.ScimTokenInvalid
        if organization.status is not callers.OrganizationStatus.ACTIVE:
            raise errors.OrganizationNotActive
        return organization

    return locked_organization


async def list_last_requests(
    ports: Ports, caller: callers.OrganizationCaller, *, failed: bool | None = None
) -> list[directories.ScimRequest]:
    """Return the last MAX_ENTRIES requests by the organization's directory, newest first.

    `failed`: return only requests that failed, or with False only requests that succeeded.
    """
    async with ports.storage.reading() as read:
        requests = await read.scim_requests.last(caller.acts_in.id)
    return [request for request in requests if failed is None or request.has_failed is failed]


async def write_requests(ports: Ports, org_id: UUID, requests: Sequence[directories.ScimRequest]) -> None:
    """Store at most MAX_ENTRIES requests, oldest first, in place of the oldest requests."""
    async with ports.storage.autocommit() as autocommit:
        await autocommit.scim_requests.add(org_id, requests)
