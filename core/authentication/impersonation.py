"""Acting as somebody else, which platform owners may to see what the person sees (identity.md sections 2.9 and 4.8; decisions, points 149
to 153; security.md I-2 to I-5).

It is a session of the person, in which somebody else is behind all that is done. When it ends besides by itself is said in
`ports.storage.SessionsRead.standing`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from core.accounts import devices, platform
from core.accounts.devices_rules import Client
from core.accounts.platform_rules import AccountNotUsable, PersonNotFound
from core.accounts.risk import Risk
from core.applications.services_rules import ServiceNotFound
from core.authentication import events, sessions
from core.authentication.sessions_rules import NO_ENTITLEMENT, Session
from core.kernel.errors import AuditFailed, Invalid, OrganizationNotActive, SessionEnded, StorageDown, refuse
from core.kernel.principals import NotAPlatformOwner, OrganizationNotFound, OrganizationStatus
from core.kernel.values import digest, new_id, new_secret

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from core.accounts.accounts_rules import Account
    from core.accounts.devices_rules import Look
    from core.kernel.principals import Person, ServiceContext
    from core.kernel.values import Email
    from core.tenancy.organizations_rules import Organization
    from ports import Ports
    from ports.storage import Transaction

TTL: Final = timedelta(hours=1)  # organizations.md section 8
ARGUMENT_LENGTH = 200  # characters; what is longer names nothing that exists
# What the person sees among the own devices (decisions, point 151). No client has an id with this hash, which is no SHA-256 of anything.
DEVICE_NAME: Final = "Platform support"
DEVICE_HASH: Final = b"platform support"
NO_RISK: Final = Risk(0, ())  # nobody has signed in


class ServiceWithoutOrganization(Invalid):
    """Send org_slug beside service_slug: the organization that the service belongs to."""


class NotOneself(Invalid):
    """You cannot impersonate yourself."""


class NotAnotherPlatformOwner(Invalid):
    """A platform owner cannot be impersonated. Withdraw the ownership first."""


class TargetNotAMember(Invalid):
    """The person is not a member of this organization."""


class TargetNotAUser(Invalid):
    """The person does not use this service."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Impersonation:
    """A session that has begun, and its tokens; neither outlives `expires_at`, in UTC. `entry_id` is that of the platform's log."""

    session_id: UUID
    user_id: UUID
    email: Email
    access_token: str = field(repr=False)
    refresh_token: str = field(repr=False)
    expires_at: datetime
    entry_id: UUID


@dataclass(frozen=True, slots=True)
class _Context:
    """As what the person is looked at: as a member of an organization, as a user of a service, or neither."""

    organization: Organization | None = None
    service: ServiceContext | None = None

    @property
    def org_id(self) -> UUID | None:
        return self.service.org_id if self.service else self.organization.id if self.organization else None


async def start(
    ports: Ports, caller: Person, user_id: UUID, reason: str, *, org_slug: str | None = None, service_slug: str | None = None
) -> Impersonation:
    """Let the caller act as this person for an hour, but not longer than the session of the caller can last; in the context of an
    organization that the person is a member of, or of a service that the person uses, where one is named (decisions, point 152).

    Nobody has signed in: there is no login and no mail. The platform's log has the reason; that of the organization, if one is named, has
    who it was (points 153 and 207). Raises PersonNotFound, ServiceWithoutOrganization, OrganizationNotFound, OrganizationNotActive,
    ServiceNotFound, TargetNotAMember, NotOneself, NotAPlatformOwner, NotAnotherPlatformOwner, AccountNotUsable, TargetNotAUser,
    SessionEnded.
    """
    if service_slug is not None and org_slug is None:
        raise ServiceWithoutOrganization
    look = devices.look(ports, caller, Client(name=DEVICE_NAME))
    now, entry_id = ports.clock.now(), new_id()
    async with ports.storage.transaction(by=caller) as tx:
        context = await _context(tx, user_id, org_slug, service_slug)
        account = await _lock(tx, caller, user_id)
        entitlement = NO_ENTITLEMENT
        if context.service is not None:
            # With the account locked, since nobody ceases to use a service without that.
            if await tx.service_users.by_id(context.service.org_id, context.service.id, account.id) is None:
                raise TargetNotAUser
            entitlement = await tx.subscriptions.entitlement(context.service.id, account.id, now)
        last = await tx.sessions.ends_at(caller.session_id, caller.user_id, now) or refuse(SessionEnded)
        expires_at = min(now + TTL, last)
        session = Session(
            id=new_id(),
            user_id=account.id,
            created_at=now,
            expires_at=expires_at,
            ends_at=expires_at,
            address=caller.address,
            agent=caller.agent,
            impersonator_id=caller.user_id,
            impersonator_session_id=caller.session_id,
            service=context.service,
            org_id=context.org_id,
            device_id=await _device(tx, account.id, look, now),
        )
        refresh_token = new_secret()
        await tx.sessions.begin(session, digest(refresh_token))
        begun = events.impersonated(session)
        tx.record(events.impersonated_for_the_platform(begun, entry_id, reason))
        if begun.org_id is not None:
            tx.record(begun)
    pair = sessions.pair(
        ports,
        session.id,
        account.id,
        account.email,
        verified=account.email_verified_at is not None,
        ends_at=expires_at,
        now=now,
        refresh_token=refresh_token,
        org=context.organization.slug if context.organization else "",
        org_id=context.org_id,
        service=context.service,
        entitlement=entitlement,
        impersonator_id=caller.user_id,
    )
    return Impersonation(
        session_id=session.id,
        user_id=account.id,
        email=account.email,
        access_token=pair.access_token,
        refresh_token=pair.refresh_token,
        expires_at=expires_at,
        entry_id=entry_id,
    )


async def record_request(ports: Ports, caller: Person, method: str, route: str, arguments: Mapping[str, str]) -> None:
    """Have the platform's log say that somebody who impersonates `caller` asks for this, before anything is answered (security.md I-5).

    `route` is a template and `arguments` what stands in its places. Raises AuditFailed, and then nothing is to be answered.
    """
    shown = {name: value[:ARGUMENT_LENGTH] for name, value in arguments.items()}
    try:
        async with ports.storage.transaction(by=caller) as tx:
            tx.record(events.impersonation_request(caller.user_id, caller.session_id, method, route, shown))
    except StorageDown as error:
        raise AuditFailed from error


async def _context(tx: Transaction, user_id: UUID, org_slug: str | None, service_slug: str | None) -> _Context:
    """Where a membership counts, it is locked, so that whoever ends it afterwards ends the session as well."""
    if org_slug is None:
        return _Context()
    org_id = await tx.organizations.id_by_slug(org_slug) or refuse(OrganizationNotFound)
    membership = await tx.members.lock(org_id, user_id) if service_slug is None else None
    organization = await tx.organizations.by_id(org_id) or refuse(OrganizationNotFound)
    if organization.status is not OrganizationStatus.ACTIVE:
        raise OrganizationNotActive
    if service_slug is not None:
        return _Context(service=await tx.services.context_by_slug(org_slug, service_slug) or refuse(ServiceNotFound))
    if membership is None:
        raise TargetNotAMember
    return _Context(organization=organization)


async def _lock(tx: Transaction, caller: Person, user_id: UUID) -> Account:
    """The account of the person, locked, if it may be impersonated, and the caller may impersonate, now and until the transaction ends."""
    if user_id == caller.user_id:
        raise NotOneself
    account, may = await platform.lock_person(tx, caller, user_id)
    if not may:
        raise NotAPlatformOwner
    if account is None:
        raise PersonNotFound
    if account.is_platform_owner:
        raise NotAnotherPlatformOwner
    if not account.is_usable:
        raise AccountNotUsable
    return account


async def _device(tx: Transaction, user_id: UUID, look: Look, now: datetime) -> UUID:
    """The one device of a person that all who impersonate them have; the account is locked.

    Who revokes it ends the impersonation that is under way, as with any other device.
    """
    # Another one of them comes with another machine, so its kind is what can be seen now.
    # It says nothing of where they are: that is theirs, and would outlive them here.
    look = replace(look, client_hash=DEVICE_HASH, told_type=look.device_type, address=None, place=None)
    known = await tx.devices.of_client(user_id, DEVICE_HASH)
    device = devices.new_device(user_id, look, NO_RISK, now) if known is None else devices.used_again(known, look, NO_RISK, now)
    await tx.devices.keep(device)
    return device.id
