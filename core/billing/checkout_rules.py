"""Entities, refusals and pure rules of `core.billing.checkout`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.kernel.errors import Invalid

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from core.billing.payments import Meant

    pass


class PlanUnknown(Invalid):
    """There is no such plan."""


class PlanOfAnotherService(Invalid):
    """This plan belongs to another service. Name a plan of this one."""


class PlanWithoutPrice(Invalid):
    """This plan has no price at the payment provider, so it cannot be bought. Its billing_price_id says which one it is."""


class SubscribedAlready(Invalid):
    """You have a subscription to this service that is active or past due. It has to end before you can buy another one."""


class AddressInvalid(Invalid):
    """Both success_url and cancel_url must begin with http(s)://, name a host, and have no spaces, control characters and backslashes."""


@dataclass(frozen=True, slots=True)
class Customer:
    """As whom the provider knows an organization, None as long as it does not; `key` goes along with the request that changes that."""

    key: UUID
    customer_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkout:
    """What somebody wants to buy: this plan, at this price of the provider's."""

    id: UUID
    meant: Meant
    price_id: str
    success_url: str
    cancel_url: str
    created_at: datetime
