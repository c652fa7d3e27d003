"""Hosted checkout: members subscribe to a plan on the payment provider's page (security H-6).

Every purchase is stored before the provider is called, so that later events can be compared with it. Every call has an
idempotency key, so that a repeated call has no second effect. The result arrives as events
(core.billing.provider_events).
"""

from uuid import UUID

from core.applications import services
from core.billing import subscriptions
from core.billing.model import checkout as checkout_model
from core.billing.model.provider_facts import SOON
from core.billing.model.provider_objects import CheckoutMetadata
from core.kernel import errors
from core.kernel.callers import Member
from core.kernel.causes import SYSTEM
from core.kernel.roles import Capability
from core.kernel.values import new_id
from ports import Ports


async def begin(
    ports: Ports, caller: Member, slug: str, plan_id: UUID, success_url: str, cancel_url: str
) -> checkout_model.CheckoutSession:
    """Start a checkout for this plan and the caller, and return the provider's page for it.

    Raises: ReturnUrlInvalid, BillingNotConfigured, UnknownPlan, CheckoutPlanOfAnotherService,
    PlanWithoutPrice, HasLiveSubscription, PaymentsFailed.
    """
    if not checkout_model.is_return_url(success_url) or not checkout_model.is_return_url(cancel_url):
        raise checkout_model.ReturnUrlInvalid
    if not ports.payments.is_on:
        raise checkout_model.BillingNotConfigured
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        organization, service = await services.lock_organization_for(tx, caller, slug, Capability.SERVICES_VIEW)
        plan_service_id = await tx.plans.service_id_of(organization.id, plan_id) or errors.refuse(checkout_model.UnknownPlan)
        if plan_service_id != service.id:
            raise checkout_model.CheckoutPlanOfAnotherService
        plan = await tx.plans.by_id(organization.id, service.id, plan_id) or errors.refuse(checkout_model.UnknownPlan)
        price_id = plan.billing_price_id or errors.refuse(checkout_model.PlanWithoutPrice)
        await subscriptions.expire_overdue(tx, organization.id, service.id, caller.user_id, now)
        current = await tx.subscriptions.of_user(organization.id, service.id, caller.user_id, now)
        if current is not None and current.status.is_live:
            raise checkout_model.HasLiveSubscription
        customer = await tx.customers.find_or_add(organization.id, new_id(), now)
        checkout = checkout_model.Checkout(
            id=new_id(),
            metadata=CheckoutMetadata(organization.id, service.id, caller.user_id, plan.id),
            price_id=price_id,
            success_url=success_url,
            cancel_url=cancel_url,
            created_at=now,
        )
        await tx.checkouts.add(checkout, check_at=now + SOON)
    customer_id = customer.customer_id or await _create_customer(ports, organization.id, organization.name, customer.key)
    try:
        session = await ports.payments.begin_checkout(checkout, customer_id)
    except checkout_model.CustomerNotFound:  # the event about the customer's deletion has not arrived yet
        async with ports.storage.transaction(by=SYSTEM) as tx:
            await tx.customers.mark_deleted(organization.id, customer_id, new_id(), now)
        raise
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.checkouts.save_session(organization.id, checkout.id, session.session_id, customer_id)
    return session


async def _create_customer(ports: Ports, org_id: UUID, name: str, key: UUID) -> str:
    """Create the organization's customer record and return its id. A concurrent request may have created the record."""
    try:
        created = await ports.payments.create_customer(org_id, name, key)
    except checkout_model.IdempotencyKeySpent:
        # For one day the provider repeats its answer to an idempotency key, including failures. The
        # next attempt therefore needs a new key. If the provider created a record in spite of the
        # failure, an event tells us its id, or the record stays unused.
        async with ports.storage.transaction(by=SYSTEM) as tx:
            await tx.customers.renew_key(org_id, key, new_id())
        raise
    async with ports.storage.transaction(by=SYSTEM) as tx:
        customer_id = await tx.customers.save(org_id, key, created)
    if customer_id is None:  # the organization or the customer record was deleted in between
        raise errors.PaymentsFailed("the customer was deleted in the meantime")
    return customer_id
