"""Services, managed by their organization's members (decisions 92, 154, 158, 159), or added by the operator with a command."""

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from core.accounts import images
from core.applications import cancellations, events
from core.applications.model import client_settings, plans, services
from core.applications.model.services import CreatedService, ServiceSlugTaken, ServiceType, SettingChanges
from core.applications.model.users import AccessPolicy, AccessSettings
from core.kernel import callers, errors, values
from core.kernel.access import OrganizationNotFound
from core.kernel.callers import OrganizationStatus
from core.kernel.causes import SYSTEM
from core.kernel.errors import refuse
from core.kernel.images import ImageOwner
from core.kernel.roles import Capability
from core.tenancy import organizations, sign_in_policies
from core.tenancy.group_names import require_free_new_name
from core.tenancy.model import organizations as organizations_model
from core.tenancy.model.organizations import ApplicationClosed, Organization
from ports import Ports, storage

ANYONE: Final = AccessSettings()  # the API's default


async def find(ports: Ports, caller: callers.OrganizationCaller, slug: str) -> services.Service:
    """Return the service with this slug in the caller's organization."""
    async with ports.storage.reading() as read:
        return await read.services.by_slug(caller.acts_in.id, slug) or refuse(services.ServiceNotFound)


async def lock_organization_for(
    tx: storage.Transaction, caller: callers.OrganizationCaller, slug: str, capability: Capability
) -> tuple[Organization, services.Service]:
    """Lock the caller's organization, and return it with the service that has this slug. Check the capability again.

    Lock order: organization, account, service. Changing or deleting a service requires the lock on its organization.
    While this lock is held, only the service's counters can therefore change. Transactions lock the service's row only
    to change the counters, after the account.
    """
    organization, _ = await organizations.lock_organization_for(tx, caller, capability)
    return organization, await tx.services.by_slug(organization.id, slug) or refuse(services.ServiceNotFound)


async def require_open(
    read: storage.Reading | storage.Transaction, org_slug: str, service: callers.ServiceContext | None
) -> callers.ServiceContext:
    """Return the service that was looked up in this organization, if users can sign in to it.

    Raises: OrganizationNotFound, ApplicationClosed, ServiceNotFound, in this order.
    """
    status = service.status if service else await read.organizations.status_by_slug(org_slug) or refuse(OrganizationNotFound)
    if status is not callers.OrganizationStatus.ACTIVE:
        raise ApplicationClosed(org_slug)
    return service or refuse(services.ServiceNotFound)


@dataclass(frozen=True, slots=True)
class ServiceDraft:
    """A service that is not stored yet, with its free plan and its client secret."""

    service: services.Service
    plan: plans.Plan
    client_secret: str | None = field(repr=False)


async def create(
    ports: Ports,
    caller: callers.OrganizationCaller,
    slug: str,
    name: str,
    service_type: services.ServiceType,
    settings: services.SettingChanges,
    access: AccessSettings = ANYONE,
) -> services.CreatedService:
    """Create a service with a free plan in the caller's organization. `settings` need not repeat the name and the type.

    Raises: the errors of `draft`, `add` and `require_compatible`.
    """
    new = draft(ports, caller.acts_in.id, slug, name, service_type, settings, access)
    async with ports.storage.transaction(by=caller) as tx:
        created = await add(tx, caller, new)  # locks the organization, so that its policy cannot change
        await sign_in_policies.require_compatible(ports, tx, new.service.org_id, new.service.policy_application)
    return created


def draft(
    ports: Ports,
    org_id: UUID,
    slug: str,
    name: str,
    service_type: services.ServiceType,
    settings: services.SettingChanges,
    access: AccessSettings = ANYONE,
) -> ServiceDraft:
    """Return a new service for the organization. `access` must not have the policy `assigned`, which needs a free name.

    Raises: SlugInvalid, SlugReserved; the errors of `_apply`.
    """
    now = ports.clock.now()
    empty = services.Service(
        id=values.new_id(),
        org_id=org_id,
        slug=values.Slug.parse(slug),
        name=name,
        service_type=service_type,
        client_id=values.new_id(),
        credential_id=values.new_id(),
        client_secret_hash=None,
        redirect_uris=(),
        device_activation_uri=None,
        subscription_count=0,
        created_at=now,
        updated_at=now,
        access=access,
    )
    service, client_secret = services.ensure_client_secret(_apply(ports, empty, {**settings, "name": name, "service_type": service_type}))
    plan = plans.Plan(
        id=values.new_id(),
        org_id=service.org_id,
        service_id=service.id,
        name=plans.FREE_PLAN_NAME,
        price_cents=0,
        currency="usd",
        features=(),
        billing_price_id=None,
        created_at=now,
        updated_at=now,
    )
    return ServiceDraft(service, plan, client_secret)


async def add(tx: storage.Transaction, caller: callers.OrganizationCaller, new: ServiceDraft) -> services.CreatedService:
    """Store a new service. Raises: ServiceLimitExceeded, ServiceSlugTaken."""
    organization, _ = await organizations.lock_organization_for(tx, caller, Capability.SERVICES_CREATE)
    return await store(tx, organization, new)


async def store(tx: storage.Transaction, organization: Organization, new: ServiceDraft) -> services.CreatedService:
    """Store a new service in a locked organization."""
    quota = _quota(organization, await tx.services.count(organization.id) + 1)
    if quota.current_services > quota.max_services:
        raise services.ServiceLimitExceeded
    await tx.services.add(new.service)
    await tx.plans.add(new.plan)
    tx.record(events.service_created(new.service))
    tx.record(events.plan_created(new.plan, new.service))
    return services.CreatedService(new.service, new.plan, quota, new.client_secret)


async def create_by_form(
    ports: Ports,
    caller: callers.OrganizationCaller,
    name: str,
    service_type: services.ServiceType,
    settings: services.SettingChanges,
    access: AccessSettings,
) -> services.CreatedService:
    """Create a service as `create` does, with the first free slug that resembles its name."""
    return await values.create_with_free_slug(
        name, "application", lambda slug: create(ports, caller, slug, name, service_type, settings, access), services.ServiceSlugTaken
    )


def _apply(ports: Ports, service: services.Service, settings: services.SettingChanges) -> services.Service:
    """Return the service with these settings. The platform's limits are checked only if its client settings change.

    Raises: TokenSecondsInvalid, KeyPortNotAllowed, ClientKeysInvalid.
    """
    new = services.apply_settings(service, settings)
    if new.jwks is not None and new.jwks != service.jwks:
        ports.client_assertions.check_keys(new.jwks)
    if any(getattr(new, name) != getattr(service, name) for name in client_settings.ClientSettings.__slots__):
        client_settings.check_limits(new, ports.policy)
    return new


def _quota(organization: Organization, count: int) -> services.ServiceQuota:
    return services.ServiceQuota(count, organization.service_limit.value, organization.tier.display_name if organization.tier else None)


async def load_quota(ports: Ports, caller: callers.OrganizationCaller) -> services.ServiceQuota:
    """Return how many services the caller's organization has, and its limit."""
    async with ports.storage.reading() as read:
        organization = await read.organizations.by_id(caller.acts_in.id) or refuse(OrganizationNotFound)
        return _quota(organization, await read.services.count(organization.id))


async def list_services(
    ports: Ports,
    caller: callers.OrganizationCaller,
    service_type: services.ServiceType | None,
    limit: int | None,
    offset: int,
    *,
    search: str | None = None,
    order: services.ServiceOrder = services.ServiceOrder.CREATED,
) -> tuple[values.Batches[services.ServiceSummary], services.ServiceQuota]:
    """Return the services with this type, and the quota, which counts all services. None means all types.

    `search` matches any part of the name or the slug, or the client id. Case is ignored.
    """

    text = (search or "").strip().lower() or None

    async def read_batch(last: services.ServiceSummary | None, count: int) -> list[services.ServiceSummary]:
        async with ports.storage.reading() as read:
            after = last.service if last else None
            skipped = 0 if last else offset
            return await read.services.list_after(caller.acts_in.id, service_type, after, count, skipped, search=text, order=order)

    return values.Batches(read_batch, limit, size=services.SERVICE_BATCH), await load_quota(ports, caller)


async def update(
    ports: Ports, caller: callers.OrganizationCaller, slug: str, settings: services.SettingChanges
) -> tuple[services.Service, str | None]:
    """Change a service. Return the service with its client secret if it became a confidential client and got a secret.

    Raises: ServiceNotFound; the errors of `require_compatible`.
    """
    async with ports.storage.transaction(by=caller) as tx:
        _, old = await lock_organization_for(tx, caller, slug, Capability.SERVICES_MANAGE)
        new, client_secret = services.ensure_client_secret(_apply(ports, old, settings))
        limits_more = new.policy_application.limits_more(old.policy_application)
        if limits_more:
            await sign_in_policies.lock_listed(tx, new.org_id)
        saved = await save_changes(tx, old, new, ports.clock.now())
        if limits_more:
            await sign_in_policies.require_compatible(ports, tx, new.org_id, new.policy_application)
        return saved, client_secret


async def save_changes(tx: storage.Transaction, old: services.Service, new: services.Service, now: datetime) -> services.Service:
    """Save a changed service in a locked organization. Nothing is written if `new` equals `old`.

    OpenID Connect sessions end if their sign-in is weaker than the service now requires. If the service loses a key or
    the secret, the tokens that it got for itself end.

    Raises: SharedNameTaken if only assigned users may use the service, and its new name is taken.
    """
    if new != old:
        if _loses_credential(old, new):
            new = replace(new, credential_id=values.new_id())
        if new.access.policy is AccessPolicy.ASSIGNED:
            await require_free_new_name(tx, new.org_id, old.name, new.name, of=new.id)
        new = replace(new, updated_at=now)
        await tx.services.save(new)
        if new.required_strength > old.required_strength:
            await tx.organization_sessions.end_without_access(new.org_id, [new.id], None, now)
        tx.record(events.service_updated(old, new))
    return new


async def set_logo(
    ports: Ports, caller: callers.OrganizationCaller, slug: str, content: bytes, content_type: str | None = None
) -> services.Service:
    """Make an uploaded image the service's logo, and return it."""
    image = await images.reencode(ports, content, content_type)
    async with ports.storage.transaction(by=caller) as tx:
        _, service = await lock_organization_for(tx, caller, slug, Capability.SERVICES_MANAGE)
        await tx.images.put(ImageOwner(org_id=service.org_id, service_id=service.id), image, ports.clock.now())
        return await save_changes(tx, service, replace(service, logo_url=ports.images.url(image.key)), ports.clock.now())


async def remove_logo(ports: Ports, caller: callers.OrganizationCaller, slug: str) -> services.Service:
    """Remove the service's logo, if it has one, and return the service."""
    async with ports.storage.transaction(by=caller) as tx:
        _, service = await lock_organization_for(tx, caller, slug, Capability.SERVICES_MANAGE)
        await tx.images.remove(ImageOwner(org_id=service.org_id, service_id=service.id))
        return await save_changes(tx, service, replace(service, logo_url=None), ports.clock.now())


def _loses_credential(old: services.Service, new: services.Service) -> bool:
    """Return whether the new service lacks the secret or a key that the old service has, or gets its keys from elsewhere."""
    is_key_lost = any(key not in (new.jwks or ()) for key in old.jwks or ())
    is_moved = old.jwks_uri not in (None, new.jwks_uri)
    return is_key_lost or is_moved or old.client_secret_hash not in (None, new.client_secret_hash)


async def rotate_secret(
    ports: Ports, caller: callers.OrganizationCaller, slug: str, overlap_seconds: int = 0, *, ends_former: bool = True
) -> str:
    """Replace a confidential client's secret, and return it.

    The old secret still works for `overlap_seconds`, at most MAX_SECRET_OVERLAP. By default the old secret stops
    working immediately, and so do the tokens that the application got for itself. A secret from before the old secret
    always stops at once. Without `ends_former`, a replacement is refused while such a secret still works.
    """
    if not 0 <= overlap_seconds <= client_settings.MAX_SECRET_OVERLAP:
        raise client_settings.SecretOverlapInvalid
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        _, service = await lock_organization_for(tx, caller, slug, Capability.SERVICES_MANAGE)
        if service.service_type.is_public:
            raise services.NoClientSecret
        if not ends_former and service.former_secret_works(now):
            raise services.FormerSecretWorks
        secret = values.new_secret()
        former_hash, expires_at = None, None
        if overlap_seconds:
            former_hash, expires_at = service.client_secret_hash, now + timedelta(seconds=overlap_seconds)
        credential_id = service.credential_id if overlap_seconds else values.new_id()
        service = replace(service, credential_id=credential_id, former_secret_hash=former_hash, former_secret_expires_at=expires_at)
        await tx.services.save(replace(service, client_secret_hash=values.digest(secret), updated_at=now))
        tx.record(events.client_secret_rotated(service))
    return secret


async def delete(ports: Ports, caller: callers.Member, slug: str) -> None:
    """Delete a service and everything that belongs to it. The users' accounts stay.

    The service's sessions become invalid at once. If a service has too many logins for one transaction, the housekeeper
    deletes the rest. Paid subscriptions are canceled at the payment provider.
    """
    async with ports.storage.transaction(by=caller) as tx:
        organization, service = await lock_organization_for(tx, caller, slug, Capability.ORGANIZATION_OWN)
        await remove(tx, organization.id, service.id, ports.clock.now())
        tx.record(events.service_deleted(service))
    await cancellations.cancel_now(ports, organization.id, service.id)


async def remove(tx: storage.Transaction, org_id: UUID, service_id: UUID, now: datetime, *, keeps_sign_ins: bool = False) -> None:
    """Delete a service in a locked organization with its users, in batches, so that no statement about users takes long.

    The first statement cascades to rows such as subscriptions and identities. The first statement takes one or two
    seconds per million rows (docs/adr/0006). With `keeps_sign_ins`, the sign-in logs keep the service's sign-ins.
    """
    # This statement waits for sign-ins to the service that are in progress. The statements below
    # find the rows that these sign-ins wrote. Later sign-ins no longer find the service.
    await tx.services.delete(org_id, service_id, None if keeps_sign_ins else now)
    last, removed_end_users = None, 0
    while (until := await tx.services.lock_users(org_id, service_id, last, services.USER_BATCH)) is not None:
        removed_end_users += await tx.services.remove_users(org_id, service_id, last, until)
        last = until
    # Lock order: end users, then totals. Other transactions that change an end user lock it before
    # they count.
    await tx.services.remove_totals(org_id, service_id, removed_end_users)
    if not keeps_sign_ins:
        await tx.services.purge(service_id, organizations_model.IMMEDIATE_PURGE_LIMIT)


MAX_NAMED = 10  # organizations in an error


class NoOrganizationForService(errors.Invalid):
    """No organization can get this application. Name an active one."""


async def create_by_operator(
    ports: Ports, org_slug: str | None, slug: str, name: str, service_type: ServiceType, settings: SettingChanges
) -> tuple[Organization, CreatedService]:
    """Create a service in an active organization. Return the organization and the service.

    Without `org_slug`, the service is created in the only active organization. The service's slug is `slug` or, if the organization has
    such a service, the first free slug that resembles it. The audit log names the system, as for all commands.

    Raises: NoOrganizationForService; the errors of `services.draft`, `services.store` and `require_compatible`.
    """
    org_id = await _find_organization_of_operator(ports, org_slug)

    async def add(free: values.Slug) -> tuple[Organization, CreatedService]:
        new = draft(ports, org_id, free, name, service_type, settings)
        async with ports.storage.transaction(by=SYSTEM) as tx:
            organization = await tx.organizations.lock(org_id) or errors.refuse(NoOrganizationForService)
            if organization.status is not OrganizationStatus.ACTIVE:
                raise NoOrganizationForService(_describe_inactive(organization.slug, organization.status))
            created = await store(tx, organization, new)
            await sign_in_policies.require_compatible(ports, tx, org_id, new.service.policy_application)
        return organization, created

    return await values.create_with_free_slug(slug, "application", add, ServiceSlugTaken)


async def _find_organization_of_operator(ports: Ports, org_slug: str | None) -> UUID:
    """Return the id of the organization with this slug, or of the only active organization."""
    async with ports.storage.reading() as read:
        if org_slug is not None:
            org_id = await read.organizations.id_by_slug(org_slug)
            if org_id is not None:
                return org_id
        active = await read.organizations.page_with_owners(OrganizationStatus.ACTIVE, None, MAX_NAMED, 0)
        counts = await read.organizations.counts()
    slugs = ", ".join(sorted(listed.organization.slug for listed in active.items)) + (", ..." if active.total > MAX_NAMED else "")
    if active.total == 0:
        solution = "Approve the one that waits" if counts[OrganizationStatus.PENDING] else "Create one"
        raise NoOrganizationForService(f"There is no active organization. {solution} in the console, and run the command again.")
    if org_slug is not None:
        raise NoOrganizationForService(f"There is no organization {org_slug}. Active organizations are: {slugs}.")
    if active.total > 1:
        raise NoOrganizationForService(f"There are several organizations: {slugs}. Name one of them by --organization.")
    return active.items[0].organization.id


def _describe_inactive(slug: str, status: OrganizationStatus) -> str:
    return f"The organization {slug} is not active, but {status}. A platform owner changes that in the console."
