"""Plans of a service: what its users can subscribe to (organizations.md sections 2.2 and 4.1; decisions, points 160 and 161)."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from core.applications import events, services, services_rules
from core.applications.services_rules import Plan
from core.kernel.errors import Invalid, NotFound, refuse
from core.kernel.principals import Capability
from core.kernel.values import KEEP, Batches, Keep, given, new_id

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from core.applications.services_rules import Service
    from core.kernel.principals import Member
    from ports import Ports
    from ports.storage import Transaction

LISTED_AT_ONCE: Final = 500
# Bytes of JSON in UTF-8. Features go into every token of the plan's subscribers, and tokens over 8 KiB are refused (security.md J-7).
MOST_FEATURES: Final = 3000


class PlanNotFound(NotFound):
    """There is no such plan."""


class CurrencyInvalid(Invalid):
    """A currency is given by its code of three letters, such as usd."""


class FeaturesTooLong(Invalid):
    """The features of a plan go into every token of its subscribers, so together they may have 3,000 bytes in UTF-8. Shorten them."""


class NothingToChange(Invalid):
    """Say what to change, at least one of name, price_cents, currency, features and billing_price_id."""


class PlanInUse(Invalid):
    """Somebody is subscribed to this plan. End those subscriptions, or move them to another plan, and then delete it."""


_CURRENCY = re.compile(r"[a-z]{3}")


def currency(text: str) -> str:
    """The code of a currency as it is kept. Raises CurrencyInvalid."""
    # ASCII is asked for before case is folded: the Kelvin sign, for one, has a plain "k" as its lower case.
    code = text.lower() if text.isascii() else ""
    if not _CURRENCY.fullmatch(code):
        raise CurrencyInvalid
    return code


def features(named: Sequence[str]) -> tuple[str, ...]:
    """What a plan offers, in this order. Raises FeaturesTooLong."""
    if len(json.dumps(list(named), ensure_ascii=False).encode()) > MOST_FEATURES:
        raise FeaturesTooLong
    return tuple(named)


async def find(ports: Ports, caller: Member, slug: str, plan_id: UUID) -> None:
    """Raises ServiceNotFound or PlanNotFound unless there is such a plan of this service of the caller's organization."""
    async with ports.storage.reading() as read:
        service = await read.services.by_slug(caller.acts_in.id, slug) or refuse(services_rules.ServiceNotFound)
        if await read.plans.by_id(service.org_id, service.id, plan_id) is None:
            raise PlanNotFound


async def listed(ports: Ports, caller: Member, slug: str) -> Batches[Plan]:
    """All plans of the service, the oldest first. Raises ServiceNotFound."""
    service = await services.find(ports, caller, slug)

    async def read_on(last: Plan | None, count: int) -> list[Plan]:
        async with ports.storage.reading() as read:
            return await read.plans.listed(service.org_id, service.id, last, count)

    return Batches(read_on, size=LISTED_AT_ONCE)


async def create(
    ports: Ports,
    caller: Member,
    slug: str,
    name: str,
    price_cents: int,
    currency_code: str,
    offers: Sequence[str] = (),
    billing_price_id: str | None = None,
) -> Plan:
    """A new plan of the service. Raises CurrencyInvalid, FeaturesTooLong, ServiceNotFound, and what organizations.enter raises."""
    now = ports.clock.now()
    code, offered = currency(currency_code), features(offers)
    async with ports.storage.transaction(by=caller) as tx:
        _, service = await services.enter(tx, caller, slug, Capability.BILLING_MANAGE)
        plan = Plan(
            id=new_id(),
            org_id=service.org_id,
            service_id=service.id,
            name=name,
            price_cents=price_cents,
            currency=code,
            features=offered,
            billing_price_id=billing_price_id,
            created_at=now,
            updated_at=now,
        )
        await tx.plans.add(plan)
        tx.record(events.plan_created(plan, service))
    return plan


async def update(
    ports: Ports,
    caller: Member,
    slug: str,
    plan_id: UUID,
    *,
    name: str | Keep = KEEP,
    price_cents: int | Keep = KEEP,
    currency_code: str | Keep = KEEP,
    offers: Sequence[str] | Keep = KEEP,
    billing_price_id: str | Keep | None = KEEP,
) -> Plan:
    """The plan with these changes. Raises NothingToChange, PlanNotFound, and what `create` raises."""
    wanted = given(
        name=name,
        price_cents=price_cents,
        currency=KEEP if currency_code is KEEP else currency(currency_code),
        features=KEEP if offers is KEEP else features(offers),
        billing_price_id=billing_price_id,
    )
    if not wanted:
        raise NothingToChange
    async with ports.storage.transaction(by=caller) as tx:
        service, old = await _enter(tx, caller, slug, plan_id)
        new = replace(old, **wanted)
        if new != old:
            new = replace(new, updated_at=ports.clock.now())
            await tx.plans.save(new)
            tx.record(events.plan_updated(old, new, service))
    return new


async def delete(ports: Ports, caller: Member, slug: str, plan_id: UUID) -> None:
    """Remove the plan, which ended subscriptions keep.

    Whoever subscribes somebody holds the organization, too, so nobody is subscribed to it meanwhile. Raises PlanInUse, PlanNotFound,
    ServiceNotFound, and what organizations.enter raises.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        service, plan = await _enter(tx, caller, slug, plan_id)
        if await tx.subscriptions.uses_plan(plan.org_id, plan.id, now):
            raise PlanInUse
        await tx.plans.remove(plan.org_id, plan.id, now)
        tx.record(events.plan_deleted(plan, service))


async def _enter(tx: Transaction, caller: Member, slug: str, plan_id: UUID) -> tuple[Service, Plan]:
    _, service = await services.enter(tx, caller, slug, Capability.BILLING_MANAGE)
    return service, await tx.plans.by_id(service.org_id, service.id, plan_id) or refuse(PlanNotFound)
