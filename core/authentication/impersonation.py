"""Impersonation: a platform owner acts as a user, to see what the user sees.

Sources: decision 151; security I-2, I-3, I-4, I-5.

An impersonation is a session of the user with an `impersonator_id`. `SessionContextsRead.load` says when it ends early.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from core.accounts import devices, platform
from core.accounts.model.accounts import Account
from core.accounts.model.devices import DeviceFingerprint, LoginRisk, PresentedDevice
from core.accounts.model.platform import AccountNotFound, AccountNotUsable
from core.applications.model.plans import Entitlement
from core.applications.model.services import ServiceNotFound
from core.authentication import events
from core.authentication.model import sessions
from core.authentication.tokens import issuing
from core.kernel import access, callers, errors, values
from core.kernel.display import PLATFORM_SUPPORT
from core.tenancy.model.organizations import Organization
from ports import Ports
from ports.storage import Transaction

TTL: Final = timedelta(hours=1)
ARGUMENT_LENGTH = 200  # characters; no existing object has a longer name
# The device that the user sees in their list. The hash is not a SHA-256, so no
# client id has it.
DEVICE_HASH: Final = b"platform support"
NO_RISK: Final = LoginRisk(0, ())  # an impersonation is not a login


class ServiceWithoutOrganization(errors.Invalid):
    """Send org_slug with service_slug: the organization that the application belongs to."""


class CannotImpersonateSelf(errors.Invalid):
    """You cannot impersonate yourself."""


class CannotImpersonatePlatformOwner(errors.Invalid):
    """You cannot impersonate a platform owner. Remove their platform ownership first."""


class TargetNotAMember(errors.Invalid):
    """This user is not a member of this organization. Choose one of the user's organizations."""


class TargetNotAUser(errors.Invalid):
    """This user does not use this application. Choose an application that the user uses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Impersonation:
    """A new impersonation session with its tokens. All of them end at `expires_at` (UTC). `entry_id` is in the platform's audit log."""

    session_id: UUID
    user_id: UUID
    email: values.Email
    access_token: str = field(repr=False)
    refresh_token: str = field(repr=False)
    expires_at: datetime
    entry_id: UUID


@dataclass(frozen=True, slots=True)
class _ImpersonationContext:
    """The organization or the service that the user is impersonated in, if any."""

    organization: Organization | None = None
    service: callers.ServiceContext | None = None

    @property
    def org_id(self) -> UUID | None:
        return self.service.org_id if self.service else self.organization.id if self.organization else None


async def start(
    ports: Ports, caller: callers.Person, user_id: UUID, reason: str, *, org_slug: str | None = None, service_slug: str | None = None
) -> Impersonation:
    """Start a session in which the caller acts as this user, for an hour or until the caller's own session ends.

    With `org_slug` alone, the context is an organization that the user is a member of. With `service_slug` too, it is a
    service that the user uses. Then the impersonation can act in that organization only. An impersonation is not a
    login: no login is recorded and no email is sent. The platform's audit log stores the reason. The log of the
    organization stores the impersonator, but not the reason.

    Raises: AccountNotFound, ServiceWithoutOrganization, OrganizationNotFound,
    OrganizationNotActive, ServiceNotFound, TargetNotAMember, CannotImpersonateSelf,
    NotAPlatformOwner, CannotImpersonatePlatformOwner, AccountNotUsable, TargetNotAUser,
    SessionEnded.
    """
    if service_slug is not None and org_slug is None:
        raise ServiceWithoutOrganization
    fingerprint = devices.fingerprint(ports, replace(caller, address=None, agent=None), PresentedDevice(name=PLATFORM_SUPPORT))
    now, entry_id = ports.clock.now(), values.new_id()
    async with ports.storage.transaction(by=caller) as tx:
        context = await _load_context(tx, user_id, org_slug, service_slug)
        account = await _lock_target(tx, caller, user_id)
        entitlement = sessions.NO_ENTITLEMENT
        if context.service is not None:
            # Checked under the lock on the account: a user is removed from a service under the same
            # lock.
            if await tx.service_users.by_id(context.service.org_id, context.service.id, account.id) is None:
                raise TargetNotAUser
            entitlement = await tx.subscriptions.entitlement(context.service.id, account.id, now)
        caller_ends_at = await tx.sessions.ends_at(caller.session_id, caller.user_id, now) or errors.refuse(errors.SessionEnded)
        device_id = await _save_device(tx, account.id, fingerprint, now)
        session = _new_session(caller, account, context, device_id, min(now + TTL, caller_ends_at), now)
        refresh_token = values.new_secret()
        await tx.sessions.begin(session, values.digest(refresh_token))
        event = events.impersonated(session)
        tx.record(events.impersonated_for_the_platform(event, entry_id, reason))
        if event.org_id is not None:
            tx.record(event)
    pair = issuing.issue_tokens(ports, _token_subject(session, account, context, entitlement), refresh_token, now)
    return Impersonation(
        session_id=session.id,
        user_id=account.id,
        email=account.email,
        access_token=pair.access_token,
        refresh_token=pair.refresh_token,
        expires_at=session.expires_at,
        entry_id=entry_id,
    )


def _new_session(
    caller: callers.Person, account: Account, context: _ImpersonationContext, device_id: UUID, expires_at: datetime, now: datetime
) -> sessions.Session:
    """Return a session in which the caller acts as the user of this account."""
    return sessions.Session(
        id=values.new_id(),
        user_id=account.id,
        created_at=now,
        expires_at=expires_at,
        ends_at=expires_at,
        address=None,  # the user and the organization see the session
        agent=None,
        impersonator_id=caller.user_id,
        impersonator_session_id=caller.session_id,
        impersonated_in=context.org_id,
        service=context.service,
        org_id=context.org_id,
        device_id=device_id,
        key_thumbprint=caller.key_thumbprint,
    )


def _token_subject(
    session: sessions.Session, account: Account, context: _ImpersonationContext, entitlement: Entitlement
) -> sessions.TokenSubject:
    return sessions.TokenSubject(
        session_id=session.id,
        user_id=account.id,
        email=account.email,
        email_verified=account.email_verified_at is not None,
        ends_at=session.ends_at,
        org_id=context.org_id,
        org_slug=context.organization.slug if context.organization else "",
        service=context.service,
        entitlement=entitlement,
        impersonator_id=session.impersonator_id,
        key_thumbprint=session.key_thumbprint,
    )


async def record_request(ports: Ports, caller: callers.Person, method: str, route: str, arguments: Mapping[str, str]) -> UUID:
    """Record an impersonator's request, sent as `caller`, in the platform's audit log, before it is answered (security I-5).

    `route` is the path template and `arguments` are its path parameters. If the impersonation began without an
    organization, its first request in an organization is recorded in that organization's log too. Return the id of the
    entry, for `record_failure`.

    If the entry cannot be written, AuditFailed refuses the request.
    """
    shortened = {name: value[:ARGUMENT_LENGTH] for name, value in arguments.items()}
    entry_id = values.new_id()
    try:
        async with ports.storage.transaction(by=caller) as tx:
            tx.record(events.impersonation_request(caller.user_id, caller.session_id, entry_id, method, route, shortened))
            if isinstance(caller, callers.Member) and caller.impersonated_in is None:
                expires_at = await tx.impersonations.begin_in(caller.session_id, caller.acts_in.id)
                if expires_at is not None:
                    tx.record(events.impersonated_in(caller, expires_at))
    except errors.StorageDown as error:
        raise errors.AuditFailed from error
    return entry_id


async def record_failure(ports: Ports, entry_id: UUID) -> None:
    """Set `success` of a recorded request to false, because it was refused or failed."""
    async with ports.storage.autocommit() as statements:
        await statements.audit.mark_failed(entry_id)


async def _load_context(tx: Transaction, user_id: UUID, org_slug: str | None, service_slug: str | None) -> _ImpersonationContext:
    """Load the context by its slugs, and lock the user's membership, so that a concurrent removal also ends the new session."""
    if org_slug is None:
        return _ImpersonationContext()
    org_id = await tx.organizations.id_by_slug(org_slug) or errors.refuse(access.OrganizationNotFound)
    membership = await tx.members.lock(org_id, user_id) if service_slug is None else None
    organization = await tx.organizations.by_id(org_id) or errors.refuse(access.OrganizationNotFound)
    if organization.status is not callers.OrganizationStatus.ACTIVE:
        raise errors.OrganizationNotActive
    if service_slug is not None:
        return _ImpersonationContext(service=await tx.services.context_by_slug(org_slug, service_slug) or errors.refuse(ServiceNotFound))
    if membership is None:
        raise TargetNotAMember
    return _ImpersonationContext(organization=organization)


async def _lock_target(tx: Transaction, caller: callers.Person, user_id: UUID) -> Account:
    """Lock and return the account to impersonate. The caller stays a platform owner until the transaction ends."""
    if user_id == caller.user_id:
        raise CannotImpersonateSelf
    account, is_platform_owner = await platform.lock_target_account(tx, caller, user_id)
    if not is_platform_owner:
        raise access.NotAPlatformOwner
    if account is None:
        raise AccountNotFound
    if account.is_platform_owner:
        raise CannotImpersonatePlatformOwner
    if not account.is_usable:
        raise AccountNotUsable
    return account


async def _save_device(tx: Transaction, user_id: UUID, fingerprint: DeviceFingerprint, now: datetime) -> UUID:
    """Save the device that stands for all impersonators who act as this user, and return its id.

    The account is locked.

    If the user revokes the device, the running impersonation ends, as sessions on any device do.
    """
    fingerprint = replace(fingerprint, client_hash=DEVICE_HASH)
    known = await tx.devices.by_client(user_id, DEVICE_HASH)
    if known is None:
        device = devices.new_device(user_id, fingerprint, NO_RISK, now)
        await tx.devices.add(device)
    else:
        device = devices.refresh_device(known, fingerprint, NO_RISK, now)
        await tx.devices.update(device)
    return device.id
