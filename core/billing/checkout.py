"""Hosted checkout: members subscribe to a plan on a page of the payment provider (organizations.md sections 2.11 and 4.1; decisions, points
162 to 164; security.md H-6).

What is to be bought is written down before the provider is asked, so that whatever comes back can be held against it; and each request says
which one it is, so that one that is sent again does nothing twice. What came of it, the provider's events tell (core.billing).
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from core.applications import services
from core.billing import subscriptions
from core.billing.payments import SOON, Begun, BillingNotConfigured, CustomerGone, KeySpent, Meant
from core.kernel.errors import PaymentsFailed, refuse
from core.kernel.principals import SYSTEM, Capability
from core.kernel.values import new_id

if TYPE_CHECKING:
    from uuid import UUID

    from core.kernel.principals import Member
    from ports import Ports
from core.billing.checkout_rules import AddressInvalid, Checkout, PlanOfAnotherService, PlanUnknown, PlanWithoutPrice, SubscribedAlready


def _is_address(url: str) -> bool:
    """Whether a browser can be sent there. Braces and the like stay as they are: the provider puts the session's id in their place."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and url.isprintable() and not set(url) & set(" \\")


async def begin(ports: Ports, caller: Member, slug: str, plan_id: UUID, success_url: str, cancel_url: str) -> Begun:
    """A checkout of this plan for the caller, who goes on at the provider.

    Raises AddressInvalid, BillingNotConfigured, PlanUnknown, PlanOfAnotherService, PlanWithoutPrice, SubscribedAlready, PaymentsFailed, and
    what services.enter raises.
    """
    if not _is_address(success_url) or not _is_address(cancel_url):
        raise AddressInvalid
    if not ports.payments.is_on:
        raise BillingNotConfigured("SSO_BILLING_API_URL and SSO_BILLING_API_KEY are not set")
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        organization, service = await services.enter(tx, caller, slug, Capability.SERVICES_VIEW)
        of_service = await tx.plans.service_of(organization.id, plan_id) or refuse(PlanUnknown)
        if of_service != service.id:
            raise PlanOfAnotherService
        plan = await tx.plans.by_id(organization.id, service.id, plan_id) or refuse(PlanUnknown)
        price_id = plan.billing_price_id or refuse(PlanWithoutPrice)
        await subscriptions.mark_run_out(tx, organization.id, service.id, caller.user_id, now)
        current = await tx.subscriptions.of_user(organization.id, service.id, caller.user_id, now)
        if current is not None and current.status.is_live:
            raise SubscribedAlready
        customer = await tx.billing.customer(organization.id, new_id(), now)
        checkout = Checkout(
            id=new_id(),
            meant=Meant(organization.id, service.id, caller.user_id, plan.id),
            price_id=price_id,
            success_url=success_url,
            cancel_url=cancel_url,
            created_at=now,
        )
        await tx.billing.add_checkout(checkout, check_at=now + SOON)
    customer_id = customer.customer_id or await _new_customer(ports, organization.id, organization.name, customer.key)
    try:
        begun = await ports.payments.begin_checkout(checkout, customer_id)
    except CustomerGone:  # and nobody has told us
        async with ports.storage.transaction(by=SYSTEM) as tx:
            await tx.billing.forget_customer(organization.id, customer_id, new_id(), now)
        raise
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.billing.checkout_begun(organization.id, checkout.id, begun.session_id, customer_id)
    return begun


async def _new_customer(ports: Ports, org_id: UUID, name: str, key: UUID) -> str:
    """The organization's customer, made unless somebody else was faster. Raises PaymentsFailed."""
    try:
        made = await ports.payments.create_customer(org_id, name, key)
    except KeySpent:
        # The provider answers to a key what it has answered before, for a day, failures included. Should it have made one after all, an
        # event tells, or nobody ever uses it.
        async with ports.storage.transaction(by=SYSTEM) as tx:
            await tx.billing.renew_customer_key(org_id, key, new_id())
        raise
    async with ports.storage.transaction(by=SYSTEM) as tx:
        kept = await tx.billing.keep_customer(org_id, key, made)
    if kept is None:  # the organization, or that customer, is gone by now
        raise PaymentsFailed("the customer was deleted meanwhile")
    return kept
