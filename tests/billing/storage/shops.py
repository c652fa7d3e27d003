"""A service with a customer, checkouts, facts, a subscription and a cancellation, for the tests of billing statements."""

from dataclasses import dataclass, replace
from uuid import UUID, uuid4

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.applications.model.plans import Cancellation, SubscriptionStatus
from core.billing.model.checkout import Checkout
from core.billing.model.provider_objects import CheckoutMetadata
from core.billing.model.subscriptions import SubscribedPlan, Subscription
from core.kernel.causes import SYSTEM
from tests.support.builders import add_organization
from tests.support.rows import DAY, HOUR, NOW
from tests.support.services import add_plan, add_service

PRICE = "price_gold"


@dataclass(frozen=True, slots=True)
class Shop:
    """A service with an object of every kind. The provider's ids end with the organization's slug."""

    slug: str
    metadata: CheckoutMetadata
    checkout: UUID
    key: UUID
    subscription: UUID

    def ref(self, kind: str) -> str:
        return f"{kind}_{self.slug}"

    @property
    def org(self) -> UUID:
        return self.metadata.org_id

    @property
    def cancellation(self) -> Cancellation:
        return Cancellation(self.ref("gone"), self.subscription, self.org, self.metadata.service_id, NOW)

    @property
    def owned_subscription(self) -> Subscription:
        return Subscription(
            id=self.subscription,
            org_id=self.org,
            service_id=self.metadata.service_id,
            user_id=self.metadata.user_id,
            plan=SubscribedPlan(self.metadata.plan_id, self.metadata.service_id, "Gold", ("exports",), False, PRICE),
            status=SubscriptionStatus.ACTIVE,
            current_period_end=NOW + DAY,
            provider_subscription_id=self.ref("sub"),
            created_at=NOW - DAY,
        )


async def open_shop(storage: Postgres, pool: Pool, slug: str, user: UUID) -> Shop:
    org = await add_organization(pool, slug)
    service = await add_service(pool, org)
    shop = Shop(slug, CheckoutMetadata(org, service, user, await add_plan(pool, service, price=PRICE)), uuid4(), uuid4(), uuid4())
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.customers.find_or_add(org, shop.key, NOW)
        await tx.customers.save(org, shop.key, shop.ref("cus"))
        await tx.customers.save_user(org, shop.ref("cus"), user, NOW)
        await tx.customers.attach_payment_method(shop.ref("cus"), shop.ref("pm"), NOW, NOW)
        await tx.checkouts.add(
            Checkout(id=shop.checkout, metadata=shop.metadata, price_id=PRICE, success_url="", cancel_url="", created_at=NOW), NOW + HOUR
        )
        await tx.checkouts.save_session(org, shop.checkout, shop.ref("cs"), shop.ref("cus"))
        other = Checkout(id=uuid4(), metadata=shop.metadata, price_id=PRICE, success_url="", cancel_url="", created_at=NOW)
        await tx.checkouts.add(other, NOW + HOUR)
        await tx.checkouts.complete(other.id, shop.ref("cs_other"), shop.ref("sub"), None, None)
        await tx.subscriptions.add(shop.owned_subscription)
        facts = await tx.billing.lock_facts(shop.ref("sub"), NOW)
        await tx.billing.save_facts(replace(facts, org_id=org, customer_id=shop.ref("cus")), NOW, check_at=NOW + DAY)
        await tx.cancellations.request(shop.cancellation)
    return shop
