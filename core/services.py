"""Services: the applications of an organization (organizations.md sections 2.1 and 4.1; decisions, points 89, 92, 154, 157 to 159)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Final
from uuid import UUID

from core import cancellations, events, organizations, uris
from core.access import Capability, NotWhileImpersonating, OrganizationNotFound, OrganizationStatus
from core.errors import Invalid, NotFound, OrganizationNotActive, refuse
from core.values import KEEP, Batches, Keep, Slug, digest, given, new_id, new_secret

if TYPE_CHECKING:
    from core.access import Member, ServiceContext
    from core.organizations import Organization
    from ports import Ports
    from ports.storage import Reading, Transaction

# The plan of every new service; it is what users without a subscription have, for as long as there is one of this name (decisions, 37).
FREE: Final = "Free"
USERS_AT_ONCE: Final = 10_000  # how many are removed by a statement
# A service can be as large as a request; this many are held at once where all are listed.
LISTED_AT_ONCE: Final = 100


class ServiceNotFound(NotFound):
    """There is no such service."""


class ServiceSlugTaken(Invalid):
    """The organization has a service with this slug already. Choose another one."""


class ServiceLimitExceeded(Invalid):
    """The organization has as many services as it may have. Delete one, or ask the platform's operator for more."""

    code = "SERVICE_LIMIT_EXCEEDED"


class NothingToChange(Invalid):
    """Say what to change, at least one of the fields."""


class ScopeInvalid(Invalid):
    """A scope is printable ASCII without spaces, quotation marks and backslashes, and is named once."""


class RedirectUriInvalid(Invalid):
    """A redirect URI begins with https://, http://localhost or, in apps, com.example.app:/, and has no user name, fragment or asterisk."""


class RedirectUriTwice(Invalid):
    """A redirect URI is named twice. Name each of them once."""


class ActivationUriInvalid(Invalid):
    """The device activation page begins with https:// or http://localhost, and has no user name, fragment or asterisk."""


class NoClientSecret(Invalid):
    """Mobile and desktop services have no client secret: they cannot keep one, and use PKCE instead."""


class ServiceType(StrEnum):
    """What kind of application it is."""

    WEB = "web"
    MOBILE = "mobile"
    DESKTOP = "desktop"
    API = "api"

    @property
    def is_public(self) -> bool:
        """Whether it runs where everybody can read what it holds, so that it has no secret and PKCE instead."""
        return self in (ServiceType.MOBILE, ServiceType.DESKTOP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """An application that signs people in through us. Times are UTC.

    Scopes are None where the platform's default ones hold, and empty for none (decisions, point 102). `subscription_count` is kept by the
    transactions that add and remove. Only confidential clients have a secret, of which this is the SHA-256; with `pkce_without_secret` they
    may rely on PKCE instead where they show none (point 92).
    """

    id: UUID
    org_id: UUID
    slug: Slug
    name: str
    service_type: ServiceType
    client_id: UUID
    client_secret_hash: bytes | None = field(repr=False)
    codehost_scopes: tuple[str, ...] | None
    websuite_scopes: tuple[str, ...] | None
    officesuite_scopes: tuple[str, ...] | None
    redirect_uris: tuple[str, ...]
    device_activation_uri: str | None
    subscription_count: int
    created_at: datetime
    updated_at: datetime
    pkce_without_secret: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Something that the users of a service can subscribe to. Times are UTC; `currency` is a lower-case code of ISO 4217."""

    id: UUID
    org_id: UUID
    service_id: UUID
    name: str
    price_cents: int
    currency: str
    features: tuple[str, ...]
    billing_price_id: str | None
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What is chosen about a service, and may be chosen anew. Arrays replace what was there, and None clears them."""

    name: str | Keep = KEEP
    service_type: ServiceType | Keep = KEEP
    codehost_scopes: Sequence[str] | Keep | None = KEEP
    websuite_scopes: Sequence[str] | Keep | None = KEEP
    officesuite_scopes: Sequence[str] | Keep | None = KEEP
    redirect_uris: Sequence[str] | Keep | None = KEEP
    device_activation_uri: str | Keep | None = KEEP
    pkce_without_secret: bool | Keep = KEEP


SCOPES: Final = ("codehost_scopes", "websuite_scopes", "officesuite_scopes")


@dataclass(frozen=True, slots=True)
class Usage:
    """How many services there are and may be, and the name of the tier for people; None for an organization that has no tier."""

    current_services: int
    max_services: int
    tier: str | None


@dataclass(frozen=True, slots=True)
class Created:
    """A new service. Its secret, if it has one, is known here and never again."""

    service: Service
    default_plan: Plan
    usage: Usage
    client_secret: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class ListedService:
    """A service, and how many plans it has."""

    service: Service
    plan_count: int


# What a service may be

# RFC 6749 section 3.3.
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")


def configured(service: Service, settings: Settings) -> Service:
    """The service with these settings. Raises NothingToChange, ScopeInvalid, RedirectUriInvalid, RedirectUriTwice, ActivationUriInvalid.

    All redirect URIs are judged by the type that it has then, also those that stay.
    """
    wanted = given(**asdict(settings))
    if not wanted:
        raise NothingToChange
    for name in SCOPES:
        if wanted.get(name) is not None:
            wanted[name] = _scopes(wanted[name])
    if "redirect_uris" in wanted:
        wanted["redirect_uris"] = tuple(wanted["redirect_uris"] or ())
    new = replace(service, **wanted)
    if "redirect_uris" in wanted or "service_type" in wanted:
        check_redirect_uris(new.service_type, new.redirect_uris)
    if "device_activation_uri" in wanted and new.device_activation_uri is not None and not uris.is_web(new.device_activation_uri):
        raise ActivationUriInvalid
    return new


def _scopes(scopes: Sequence[str]) -> tuple[str, ...]:
    if len(set(scopes)) < len(scopes) or not all(_SCOPE.fullmatch(scope) for scope in scopes):
        raise ScopeInvalid
    return tuple(scopes)


def check_redirect_uris(service_type: ServiceType, redirect_uris: Sequence[str]) -> None:
    """Raises RedirectUriInvalid, RedirectUriTwice unless services of this type may have these. Public ones may have whatever any may."""
    if len(set(redirect_uris)) < len(redirect_uris):
        raise RedirectUriTwice
    for uri in redirect_uris:
        if not uris.is_web(uri) and not (service_type.is_public and uris.is_of_an_application(uri)):
            raise RedirectUriInvalid


def with_secret(service: Service) -> tuple[Service, str | None]:
    """The service with a client secret if its type needs one and without one if not; and that secret, if it is new."""
    if service.service_type.is_public:
        return replace(service, client_secret_hash=None), None
    if service.client_secret_hash is not None:
        return service, None
    secret = new_secret()
    return replace(service, client_secret_hash=digest(secret)), secret


def _usage(organization: Organization, count: int) -> Usage:
    return Usage(count, organization.service_limit.value, organization.tier.display_name if organization.tier else None)


# What members do


async def find(ports: Ports, caller: Member, slug: str) -> Service:
    """The service of this slug of the organization that the caller acts in. Raises ServiceNotFound."""
    async with ports.storage.reading() as read:
        return await read.services.by_slug(caller.acts_in.id, slug) or refuse(ServiceNotFound)


async def enter(tx: Transaction, caller: Member, slug: str, capability: Capability) -> tuple[Organization, Service]:
    """The organization that `caller` acts in, locked, and its service of this slug, if the caller may still do this.

    Whoever changes or deletes a service holds its organization, so the service stays what it is but for its counters. Its own row is locked
    by those who count, after the account's, and by nobody before. Raises ServiceNotFound, and what organizations.enter raises.
    """
    organization, _ = await organizations.enter(tx, caller, capability)
    return organization, await tx.services.by_slug(organization.id, slug) or refuse(ServiceNotFound)


async def check_open(read: Reading | Transaction, org_slug: str, found: ServiceContext | None) -> ServiceContext:
    """The service that was found under this organization's slug, if anybody can sign in to it.

    Raises OrganizationNotFound, OrganizationNotActive, ServiceNotFound, in this order.
    """
    status = found.status if found else await read.organizations.status(org_slug) or refuse(OrganizationNotFound)
    if status is not OrganizationStatus.ACTIVE:
        raise OrganizationNotActive
    return found or refuse(ServiceNotFound)


async def create(ports: Ports, caller: Member, slug: str, name: str, service_type: ServiceType, settings: Settings) -> Created:
    """A new service of the organization that the caller acts in, with a free plan; `settings` need not repeat name and type.

    Raises SlugInvalid, SlugReserved, ServiceLimitExceeded, ServiceSlugTaken, and what `configured` and organizations.enter raise.
    """
    now = ports.clock.now()
    plain = Service(
        id=new_id(),
        org_id=caller.acts_in.id,
        slug=Slug.parse(slug),
        name=name,
        service_type=service_type,
        client_id=new_id(),
        client_secret_hash=None,
        codehost_scopes=None,
        websuite_scopes=None,
        officesuite_scopes=None,
        redirect_uris=(),
        device_activation_uri=None,
        subscription_count=0,
        created_at=now,
        updated_at=now,
    )
    service, client_secret = with_secret(configured(plain, replace(settings, name=name, service_type=service_type)))
    plan = Plan(
        id=new_id(),
        org_id=service.org_id,
        service_id=service.id,
        name=FREE,
        price_cents=0,
        currency="usd",
        features=(),
        billing_price_id=None,
        created_at=now,
        updated_at=now,
    )
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.enter(tx, caller, Capability.SERVICES_CREATE)
        usage = _usage(organization, await tx.services.count(organization.id) + 1)
        if usage.current_services > usage.max_services:
            raise ServiceLimitExceeded
        await tx.services.add(service)
        await tx.plans.add(plan)
        tx.record(events.service_created(service))
        tx.record(events.plan_created(plan, service))
    return Created(service, plan, usage, client_secret)


async def listed(
    ports: Ports, caller: Member, service_type: ServiceType | None, limit: int | None, offset: int
) -> tuple[Batches[ListedService], Usage]:
    """The services of this type, the oldest first, and how many there are of any. Raises OrganizationNotFound."""

    async def read_on(last: ListedService | None, count: int) -> list[ListedService]:
        async with ports.storage.reading() as read:
            after = last.service if last else None
            return await read.services.listed(caller.acts_in.id, service_type, after, count, 0 if last else offset)

    async with ports.storage.reading() as read:
        organization = await read.organizations.by_id(caller.acts_in.id) or refuse(OrganizationNotFound)
        usage = _usage(organization, await read.services.count(organization.id))
    return Batches(read_on, limit, size=LISTED_AT_ONCE), usage


async def update(ports: Ports, caller: Member, slug: str, settings: Settings) -> tuple[Service, str | None]:
    """The service with these settings; and its client secret, if it gets one by becoming confidential (decisions, point 158).

    Raises NotWhileImpersonating for the latter, ServiceNotFound, and what `configured` and organizations.enter raise.
    """
    async with ports.storage.transaction(by=caller) as tx:
        _, old = await enter(tx, caller, slug, Capability.SERVICES_MANAGE)
        new, client_secret = with_secret(configured(old, settings))
        if client_secret is not None and caller.impersonator_id is not None:
            raise NotWhileImpersonating  # or it would be the way around what is refused when a secret is rotated
        return await change(tx, old, new, ports.clock.now()), client_secret


async def change(tx: Transaction, old: Service, new: Service, now: datetime) -> Service:
    """Make of a service of a locked organization what it is to be; nothing happens where it is that already."""
    if new != old:
        new = replace(new, updated_at=now)
        await tx.services.save(new)
        tx.record(events.service_updated(old, new))
    return new


async def rotate_secret(ports: Ports, caller: Member, slug: str) -> str:
    """A new client secret of a confidential service; the old one is worth nothing any more (decisions, point 92).

    Raises ServiceNotFound, NoClientSecret, and what organizations.enter raises.
    """
    async with ports.storage.transaction(by=caller) as tx:
        _, service = await enter(tx, caller, slug, Capability.SERVICES_MANAGE)
        if service.service_type.is_public:
            raise NoClientSecret
        secret = new_secret()
        await tx.services.save(replace(service, client_secret_hash=digest(secret), updated_at=ports.clock.now()))
        tx.record(events.client_secret_rotated(service))
    return secret


async def delete(ports: Ports, caller: Member, slug: str) -> None:
    """Delete a service for good, with all that belongs to it (decisions, point 159). The accounts of its users stay.

    Of its logins, the housekeeper removes what is too much for one transaction. Its sessions are worth nothing without it.
    What was paid for is cancelled at the payment provider. Raises ServiceNotFound, and what organizations.enter and cancellations.at_once
    raise.
    """
    async with ports.storage.transaction(by=caller) as tx:
        organization, service = await enter(tx, caller, slug, Capability.ORGANIZATION_OWN)
        await remove(tx, organization.id, service.id, ports.clock.now())
        tx.record(events.service_deleted(service))
    await cancellations.at_once(ports, organization.id, service.id)


async def remove(tx: Transaction, org_id: UUID, service_id: UUID, now: datetime) -> None:
    """Delete a service of a locked organization, with its users, however many they are: no statement about these takes long.

    The first takes along what refers to the service, such as subscriptions and identities: a second or two for a million of them
    (ops/decisions/0006).
    """
    # Waits for those who are signing in to it; what they wrote, the statements after it find. Who comes from now on finds no service.
    await tx.services.delete(org_id, service_id, now)
    last, forgotten = None, 0
    while (until := await tx.services.lock_users(org_id, service_id, last, USERS_AT_ONCE)) is not None:
        forgotten += await tx.services.remove_users(org_id, service_id, last, until)
        last = until
    # In the end, since others who change an end user hold that before they come to count.
    await tx.services.remove_totals(org_id, service_id, forgotten)
    await tx.services.purge(service_id, organizations.PURGED_AT_ONCE)
