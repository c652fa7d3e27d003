"""A service's plans, managed by members (decision 161)."""

from dataclasses import replace
from uuid import UUID

from core.applications import events, services
from core.applications.model import plans
from core.applications.model.services import Service, ServiceNotFound
from core.kernel import values
from core.kernel.callers import OrganizationCaller
from core.kernel.errors import refuse
from core.kernel.roles import Capability
from ports import Ports
from ports.storage import Transaction


async def require(ports: Ports, caller: OrganizationCaller, slug: str, plan_id: UUID) -> None:
    """Check that this service in the caller's organization has the plan."""
    async with ports.storage.reading() as read:
        service = await read.services.by_slug(caller.acts_in.id, slug) or refuse(ServiceNotFound)
        if await read.plans.by_id(service.org_id, service.id, plan_id) is None:
            raise plans.PlanNotFound


async def list_plans(ports: Ports, caller: OrganizationCaller, slug: str) -> values.Batches[plans.Plan]:
    """Return all plans that the service has, oldest first."""
    service = await services.find(ports, caller, slug)

    async def read_batch(last: plans.Plan | None, count: int) -> list[plans.Plan]:
        async with ports.storage.reading() as read:
            return await read.plans.list_after(service.org_id, service.id, last, count)

    return values.Batches(read_batch, size=plans.PLAN_BATCH)


async def create(ports: Ports, caller: OrganizationCaller, slug: str, terms: plans.PlanTerms) -> plans.Plan:
    """Add a plan to the service."""
    now = ports.clock.now()
    currency, features = plans.parse_currency(terms.currency), plans.check_features(terms.features)
    async with ports.storage.transaction(by=caller) as tx:
        _, service = await services.lock_organization_for(tx, caller, slug, Capability.BILLING_MANAGE)
        plan = plans.Plan(
            id=values.new_id(),
            org_id=service.org_id,
            service_id=service.id,
            name=terms.name,
            price_cents=terms.price_cents,
            currency=currency,
            features=features,
            billing_price_id=terms.billing_price_id,
            created_at=now,
            updated_at=now,
        )
        await tx.plans.add(plan)
        tx.record(events.plan_created(plan, service))
    return plan


async def update(ports: Ports, caller: OrganizationCaller, slug: str, plan_id: UUID, changes: plans.PlanChanges) -> plans.Plan:
    """Change a plan and return it.

    Raises: EmptyPlanUpdate, CurrencyInvalid, FeaturesTooLong, PlanNotFound; the errors of
    `services.lock_organization_for`.
    """
    fields = values.provided(
        name=changes.name,
        price_cents=changes.price_cents,
        currency=values.KEEP if changes.currency is values.KEEP else plans.parse_currency(changes.currency),
        features=values.KEEP if changes.features is values.KEEP else plans.check_features(changes.features),
        billing_price_id=changes.billing_price_id,
    )
    if not fields:
        raise plans.EmptyPlanUpdate
    async with ports.storage.transaction(by=caller) as tx:
        service, old = await _lock_organization_for(tx, caller, slug, plan_id)
        new = replace(old, **fields)
        if new != old:
            new = replace(new, updated_at=ports.clock.now())
            await tx.plans.save(new)
            tx.record(events.plan_updated(old, new, service))
    return new


async def delete(ports: Ports, caller: OrganizationCaller, slug: str, plan_id: UUID) -> None:
    """Delete a plan without live subscriptions. Ended subscriptions keep referring to the plan.

    The lock on the organization prevents new subscriptions to the plan at the same time.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        service, plan = await _lock_organization_for(tx, caller, slug, plan_id)
        if await tx.subscriptions.uses_plan(plan.org_id, plan.id, now):
            raise plans.PlanInUse
        await tx.plans.remove(plan.org_id, plan.id, now)
        tx.record(events.plan_deleted(plan, service))


async def _lock_organization_for(tx: Transaction, caller: OrganizationCaller, slug: str, plan_id: UUID) -> tuple[Service, plans.Plan]:
    _, service = await services.lock_organization_for(tx, caller, slug, Capability.BILLING_MANAGE)
    return service, await tx.plans.by_id(service.org_id, service.id, plan_id) or refuse(plans.PlanNotFound)
