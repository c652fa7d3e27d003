"""The users' subscriptions to a service's plans, and subscriptions to cancel at the payment provider."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import ClassVar, Final, LiteralString
from uuid import UUID

from adapters.postgres.applications.plans import ENTITLEMENT, FIRST, RAN_OUT, STATUS, entitlement
from adapters.postgres.engine import records
from adapters.postgres.engine.records import Record
from adapters.postgres.engine.statements import Repository
from core.applications.model import plans
from core.billing.model import subscriptions
from core.kernel.values import PageResult
from ports.signals import Signal

PLAN: Final = records.Record(
    subscriptions.SubscribedPlan, "p", features=tuple, is_removed="p.removed_at is not null", price_id="p.billing_price_id"
)
SUBSCRIPTION: Final = records.Record(
    subscriptions.Subscription, "s", plan=PLAN.as_field(), status=records.Column(sql=STATUS, read=plans.SubscriptionStatus)
)
# For subscriptions that a payment provider manages: they do not expire by time.
STORED_SUBSCRIPTION: Final = records.Record(subscriptions.Subscription, "s", plan=PLAN.as_field(), status=plans.SubscriptionStatus)
OLDEST_FIRST: Final = "order by s.created_at, s.id"
OF_USER: Final = f"""
    select {SUBSCRIPTION.columns} from subscriptions s join plans p on p.id = s.plan_id
    where s.org_id = %(org_id)s and s.service_id = %(service_id)s and s.user_id = %(user_id)s {FIRST} limit 1"""
# Maps a current status to queries for the stored rows. An index returns every query's rows in the
# page's order, except overdue subscriptions. Because of the sweeper, overdue subscriptions are few,
# and an index finds them by their time. Keep "offset 0": without it the planner may read all active
# subscriptions in the page's order instead.
ROWS: Final = "select s.* from subscriptions s where s.org_id = %(org_id)s and s.service_id = %(service_id)s"
STORED: Final[Mapping[plans.SubscriptionStatus | None, Sequence[LiteralString]]] = {
    None: (ROWS,),
    plans.SubscriptionStatus.ACTIVE: (f"{ROWS} and s.status = 'active' and not ({RAN_OUT})",),
    plans.SubscriptionStatus.CANCELLED: (f"{ROWS} and s.status = 'cancelled'",),
    plans.SubscriptionStatus.EXPIRED: (
        f"{ROWS} and s.status = 'expired'",
        f"select s.* from ({ROWS} and s.status = 'active' and {RAN_OUT} offset 0) s",
    ),
    plans.SubscriptionStatus.PAST_DUE: (f"{ROWS} and s.status = 'past_due'",),
}


def _count(stored: LiteralString, further: LiteralString = "true") -> LiteralString:
    # No condition on the organization, because the index does not have it. OF_SERVICE checks that
    # the service belongs to the organization.
    return f"(select count(*) from subscriptions s where s.service_id = %(service_id)s and s.status = '{stored}' and {further})"


# How many subscriptions have a current status, from indexes alone.
COUNTS: Final[Mapping[plans.SubscriptionStatus, LiteralString]] = {
    plans.SubscriptionStatus.ACTIVE: _count("active") + " - " + _count("active", RAN_OUT),
    plans.SubscriptionStatus.CANCELLED: _count("cancelled"),
    plans.SubscriptionStatus.EXPIRED: _count("expired") + " + " + _count("active", RAN_OUT),
    plans.SubscriptionStatus.PAST_DUE: _count("past_due"),
}
OF_SERVICE: Final = "from services v where v.org_id = %(org_id)s and v.id = %(service_id)s"
# Marks the rows in `due` as expired. Keep the array: it makes the planner look them up by index,
# even if it expects many rows in `due`.
EXPIRE: Final = f"""
    update subscriptions s set status = 'expired', updated_at = %(now)s
    from plans p where s.id = any(array(select id from due)) and s.status = 'active' and p.id = s.plan_id
    returning {SUBSCRIPTION.columns}"""


class Subscriptions(Repository):
    """Implements `ports.storage.billing.Subscriptions`."""

    constraints: ClassVar = {"subscriptions_one_live": subscriptions.AlreadySubscribed}

    async def entitlement(self, service_id: UUID, user_id: UUID, now: datetime) -> plans.Entitlement:
        result = await self._one(
            ENTITLEMENT.read, entitlement("%(service_id)s", "%(user_id)s"), service_id=service_id, user_id=user_id, now=now
        )
        return result or plans.Entitlement()

    async def uses_plan(self, org_id: UUID, plan_id: UUID, now: datetime) -> bool:
        sql = f"""
            select 1 from subscriptions s
            where s.org_id = %(org_id)s and s.plan_id = %(plan_id)s and {STATUS} in ('active', 'past_due') limit 1"""
        return await self._exists(sql, org_id=org_id, plan_id=plan_id, now=now)

    async def plan(self, plan_id: UUID) -> subscriptions.SubscribedPlan | None:
        return await self._one(PLAN.read, f"select {PLAN.columns} from plans p where p.id = %(plan_id)s", plan_id=plan_id)

    async def purchase(self, org_id: UUID, subscription_id: UUID) -> subscriptions.Purchase | None:
        sql = """
            select p.name, v.name from subscriptions s join plans p on p.id = s.plan_id join services v on v.id = s.service_id
            where s.org_id = %(org_id)s and s.id = %(subscription_id)s and s.status in ('active', 'past_due')"""
        return await self._one(
            lambda row: subscriptions.Purchase(plan=row[0], service=row[1]), sql, org_id=org_id, subscription_id=subscription_id
        )

    async def page(
        self, org_id: UUID, service_id: UUID, status: plans.SubscriptionStatus | None, limit: int, offset: int, now: datetime
    ) -> PageResult[subscriptions.Subscription]:
        return await self._page(SUBSCRIPTION.read, _page(status), org_id=org_id, service_id=service_id, limit=limit, offset=offset, now=now)

    async def counts(self, org_id: UUID, service_id: UUID, now: datetime) -> Mapping[plans.SubscriptionStatus, int]:
        sql = f"select {', '.join(COUNTS.values())} {OF_SERVICE}"
        counted = await self._one(lambda row: dict(zip(COUNTS, row, strict=True)), sql, org_id=org_id, service_id=service_id, now=now)
        return counted or dict.fromkeys(COUNTS, 0)

    async def of_user(self, org_id: UUID, service_id: UUID, user_id: UUID, now: datetime) -> subscriptions.Subscription | None:
        return await self._one(SUBSCRIPTION.read, OF_USER, org_id=org_id, service_id=service_id, user_id=user_id, now=now)

    async def list_of_user(self, user_id: UUID, limit: int, now: datetime) -> list[subscriptions.OwnSubscription]:
        return await self._all(
            lambda row: subscriptions.OwnSubscription(SUBSCRIPTION.read(row), service=row[-2], organization=row[-1]),
            f"""
            select s.* from (
                select distinct on (s.service_id) {SUBSCRIPTION.columns}, {STATUS} in ('active', 'past_due') as is_live,
                       v.name as service, coalesce(b.product_name, o.name) as organization
                from subscriptions s join plans p on p.id = s.plan_id join services v on v.id = s.service_id
                join organizations o on o.id = s.org_id left join branding b on b.org_id = o.id
                where s.user_id = %(user_id)s
                order by s.service_id, {FIRST.removeprefix("order by ")}) s
            order by s.is_live desc, s.organization, s.service limit %(limit)s""",
            user_id=user_id,
            limit=limit,
            now=now,
        )

    async def lock_of_user(self, org_id: UUID, service_id: UUID, user_id: UUID, now: datetime) -> subscriptions.Subscription | None:
        # This statement may wait for the sweeper. The sweeper only marks overdue subscriptions, so
        # the same subscription still comes first.
        sql = f"{OF_USER} for no key update of s"
        return await self._one(SUBSCRIPTION.read, sql, org_id=org_id, service_id=service_id, user_id=user_id, now=now)

    async def lock_of_provider(self, org_id: UUID, provider_subscription_id: str) -> subscriptions.Subscription | None:
        sql = f"""
            select {STORED_SUBSCRIPTION.columns} from subscriptions s join plans p on p.id = s.plan_id
            where s.org_id = %(org_id)s and s.provider_subscription_id = %(provider_subscription_id)s for no key update of s"""
        return await self._one(SUBSCRIPTION.read, sql, org_id=org_id, provider_subscription_id=provider_subscription_id)

    async def exists(self, org_id: UUID, subscription_id: UUID) -> bool:
        sql = "select 1 from subscriptions where org_id = %(org_id)s and id = %(subscription_id)s"
        return await self._exists(sql, org_id=org_id, subscription_id=subscription_id)

    async def add(self, subscription: subscriptions.Subscription) -> None:
        sql = """
            with added as (
                insert into subscriptions (id, org_id, service_id, user_id, plan_id, status, current_period_end,
                                           provider_subscription_id, created_at, updated_at)
                values (%(id)s, %(org_id)s, %(service_id)s, %(user_id)s, %(plan_id)s, %(status)s, %(current_period_end)s,
                        %(provider_subscription_id)s, %(created_at)s, %(created_at)s)
                returning service_id)
            update services v set subscription_count = subscription_count + 1 from added where v.id = added.service_id"""
        await self._run(sql, **STORED_SUBSCRIPTION.values(subscription), plan_id=subscription.plan.id)
        self._signal_end(subscription)

    async def save(self, old: subscriptions.Subscription, new: subscriptions.Subscription, now: datetime) -> None:
        # Only a subscription that becomes live can violate the constraint.
        save = self._run if new.status.is_live and not old.status.is_live else self._write
        await save(
            """
            update subscriptions
            set plan_id = %(plan_id)s, status = %(status)s, current_period_end = %(current_period_end)s, updated_at = %(now)s
            where org_id = %(org_id)s and id = %(id)s""",
            id=old.id,
            org_id=old.org_id,
            plan_id=new.plan.id,
            status=new.status,
            current_period_end=new.current_period_end,
            now=now,
        )
        self._signal_end(new)

    async def detach_from_provider(self, org_id: UUID, subscription_id: UUID, now: datetime) -> None:
        sql = """
            update subscriptions set provider_subscription_id = null, updated_at = %(now)s
            where org_id = %(org_id)s and id = %(subscription_id)s"""
        await self._run(sql, org_id=org_id, subscription_id=subscription_id, now=now)

    async def remove(self, org_id: UUID, subscription_id: UUID) -> None:
        sql = """
            with removed as (
                delete from subscriptions where org_id = %(org_id)s and id = %(subscription_id)s returning service_id)
            update services v set subscription_count = subscription_count - 1 from removed where v.id = removed.service_id"""
        await self._run(sql, org_id=org_id, subscription_id=subscription_id)

    async def expire_of_user(self, org_id: UUID, service_id: UUID, user_id: UUID, now: datetime) -> list[subscriptions.Subscription]:
        sql = f"""
            with due as (
                select s.id from subscriptions s
                where s.org_id = %(org_id)s and s.service_id = %(service_id)s and s.user_id = %(user_id)s
                  and s.status = 'active' and {RAN_OUT}
                for no key update) {EXPIRE}"""
        return await self._all(SUBSCRIPTION.read, sql, org_id=org_id, service_id=service_id, user_id=user_id, now=now)

    async def expire(self, now: datetime, limit: int) -> list[subscriptions.Subscription]:
        # Keep the CTE: with a subquery the planner may update more rows than the limit.
        sql = f"""
            with due as (
                select s.id from subscriptions s where s.status = 'active' and {RAN_OUT}
                order by s.current_period_end limit %(limit)s for no key update skip locked) {EXPIRE}"""
        return await self._all(SUBSCRIPTION.read, sql, now=now, limit=limit)

    async def next_expiry(self) -> datetime | None:
        sql = "select min(current_period_end) from subscriptions where status = 'active' and provider_subscription_id is null"
        return await self._one(lambda row: row[0], sql)

    def _signal_end(self, subscription: subscriptions.Subscription) -> None:
        if subscription.status is plans.SubscriptionStatus.ACTIVE and subscription.provider_subscription_id is None:
            self._signals.send(Signal.SUBSCRIPTION_DUE, subscription.current_period_end)


def _page(status: plans.SubscriptionStatus | None) -> LiteralString:
    """Return the query for a page with the subscriptions that have this current status.

    Every row has the total; no row if the service is unknown.

    The service has a counter for the total over all statuses. The page is built before the join, so that only its own
    plans are looked up. The outer join returns a row if the page is empty.
    """
    # The cast to bigint prevents an overflow, because the offset can be the largest integer.
    oldest = " union all ".join([f"({part} {OLDEST_FIRST} limit %(offset)s::bigint + %(limit)s)" for part in STORED[status]])
    return f"""
    with found as ({oldest}),
    page as (select * from found s {OLDEST_FIRST} limit %(limit)s offset %(offset)s)
    select counted.total, {SUBSCRIPTION.columns}
    from (select {"v.subscription_count" if status is None else COUNTS[status]} as total {OF_SERVICE}) counted
    left join (page s join plans p on p.id = s.plan_id) on true
    {OLDEST_FIRST}"""


CANCELLATION: Final = Record(plans.Cancellation, "c")
REQUEST: Final = f"{CANCELLATION.insert('billing_cancellations', 'due_at')} on conflict do nothing"
# An API key may have reactivated the subscription. A reactivated subscription must not be canceled.
IS_ENDED_HERE: Final = """
    not exists (
        select 1 from subscriptions s
        where s.provider_subscription_id = c.provider_subscription_id and s.org_id = c.org_id and s.status in ('active', 'past_due'))"""
SET_NEXT_ATTEMPT: Final = f"""
    update billing_cancellations c set due_at = %(until)s
    from due where c.provider_subscription_id = due.provider_subscription_id
    returning {CANCELLATION.columns}"""


class Cancellations(Repository):
    """Implements `ports.storage.billing.Cancellations`."""

    async def request(self, cancellation: plans.Cancellation) -> None:
        await self._run(REQUEST, **CANCELLATION.values(cancellation), due_at=cancellation.asked_at)
        # The use case that requests a cancellation tries it at once. The reconciler wakes up after
        # that attempt.
        at = cancellation.asked_at + plans.IMMEDIATE_TIMEOUT
        await self._notify("subscriptions_in_doubt", at)
        self._signals.send(Signal.SUBSCRIPTION_IN_DOUBT, at)

    async def next_due(self) -> datetime | None:
        sql = f"select c.due_at from billing_cancellations c where {IS_ENDED_HERE} order by c.due_at limit 1"
        return await self._one(lambda row: row[0], sql)

    async def is_requested(self, org_id: UUID, id_: str) -> bool:
        sql = "select 1 from billing_cancellations where provider_subscription_id = %(id)s and org_id = %(org_id)s"
        return await self._exists(sql, org_id=org_id, id=id_)

    async def claim(self, now: datetime, until: datetime) -> plans.Cancellation | None:
        sql = f"""
            with due as (
                select c.provider_subscription_id from billing_cancellations c where c.due_at <= %(now)s and {IS_ENDED_HERE}
                order by c.due_at limit 1 for update skip locked) {SET_NEXT_ATTEMPT}"""
        return await self._one(CANCELLATION.read, sql, now=now, until=until)

    async def claim_of_service(
        self, org_id: UUID, service_id: UUID, now: datetime, until: datetime, limit: int
    ) -> list[plans.Cancellation]:
        sql = f"""
            with due as (
                select c.provider_subscription_id from billing_cancellations c
                where c.org_id = %(org_id)s and c.service_id = %(service_id)s and c.due_at <= %(now)s and {IS_ENDED_HERE}
                order by c.due_at limit %(limit)s for update skip locked) {SET_NEXT_ATTEMPT}"""
        return await self._all(CANCELLATION.read, sql, org_id=org_id, service_id=service_id, now=now, until=until, limit=limit)

    async def complete(self, cancellation: plans.Cancellation) -> bool:
        sql = "delete from billing_cancellations where provider_subscription_id = %(id)s and org_id = %(org_id)s returning 1"
        return await self._exists(sql, id=cancellation.provider_subscription_id, org_id=cancellation.org_id)
