"""Figures for webhook attempts and SCIM requests: all count once, by outcome, for their organization and for the platform."""

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from adapters.postgres.engine.pool import Pool
from core.applications import figures
from core.applications.model.figures import FigureRange, TrafficFigures, TrafficKind, period_of, summarize_traffic
from core.eventing import deliveries
from core.eventing.model.webhooks import ClaimedDelivery, DeliveryOutcome, DispatchCapacity
from core.kernel.values import new_id
from core.provisioning import tokens
from core.provisioning.model.directories import ScimRequest
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.support.builders import add_organization, run_concurrently
from tests.support.webhooks import add_webhook, happen

URL = "https://hooks.example/in"


async def traffic(ports: Ports, org: UUID | None, kind: TrafficKind, range_: FigureRange = FigureRange.DAY) -> TrafficFigures:
    period = period_of(range_, ports.clock.now())
    async with ports.storage.reading() as read:
        return summarize_traffic(period, await read.figures.traffic(org, kind, period), figures.OUTCOMES[kind])


def sums(loaded: TrafficFigures) -> dict[str, int]:
    return {outcome: sum(counts) for outcome, counts in loaded.outcomes.items()}


async def record(ports: Ports, *outcomes: DeliveryOutcome[ClaimedDelivery]) -> None:
    await deliveries.record_and_claim(ports, outcomes, DispatchCapacity.remaining(1, []))


def ended(delivery: ClaimedDelivery, clock: FakeClock, milliseconds: int, **changes: Any) -> DeliveryOutcome[ClaimedDelivery]:
    return DeliveryOutcome(delivery=delivery, at=clock.now(), milliseconds=milliseconds, **{"status": 200, **changes})


async def test_each_attempt_counts_once_by_its_outcome(ports: Ports, pool: Pool, clock: FakeClock) -> None:
    org, other = await add_organization(pool, "acme"), await add_organization(pool, "other")
    for each in (org, other):
        await add_webhook(ports, each, URL)
    await happen(ports, org, 3)
    await happen(ports, other)
    claimed = list((await deliveries.record_and_claim(ports, [], DispatchCapacity.remaining(100, []))).claimed)
    while more := (await deliveries.record_and_claim(ports, [], DispatchCapacity.remaining(100, claimed))).claimed:
        claimed.extend(more)
    of_org = [each for each in claimed if each.org_id == org]
    failed = ended(of_org[0], clock, 900, status=500, error="no", next_retry_at=clock.now() + timedelta(hours=1))
    outcomes = [failed, *(ended(each, clock, 100) for each in claimed if each is not of_org[0])]
    await record(ports, *outcomes)
    await record(ports, *outcomes)  # from a process that is unsure whether they were stored
    for range_ in FigureRange:
        loaded = await traffic(ports, org, TrafficKind.WEBHOOK, range_)
        assert sums(loaded) == {"delivered": 2, "failed": 1}
        assert (loaded.average[-1], loaded.slowest[-1], loaded.average[0]) == (round((900 + 200) / 3), 900, None)
    assert sums(await traffic(ports, other, TrafficKind.WEBHOOK)) == {"delivered": 1, "failed": 0}
    await figures.count(ports, new_id())
    await figures.count(ports, new_id())
    for range_ in FigureRange:
        assert sums(await traffic(ports, None, TrafficKind.WEBHOOK, range_)) == {"delivered": 3, "failed": 1}


async def test_scim_requests_count_by_status(ports: Ports, pool: Pool, clock: FakeClock) -> None:
    org, other = await add_organization(pool, "acme"), await add_organization(pool, "other")

    def request(status: int) -> ScimRequest:
        return ScimRequest(
            at=clock.now(), token_id=uuid4(), method="GET", path="/Users", attributes=[], status=status, scim_type=None, error=None
        )

    await run_concurrently(5, lambda _: tokens.write_requests(ports, org, [request(status) for status in (200, 201, 404, 500, 200)]))
    await tokens.write_requests(ports, other, [request(200)])
    await figures.count(ports, new_id())
    for range_ in FigureRange:
        assert sums(await traffic(ports, org, TrafficKind.SCIM, range_)) == {"accepted": 15, "refused": 5, "failed": 5}
        assert sums(await traffic(ports, None, TrafficKind.SCIM, range_)) == {"accepted": 16, "refused": 5, "failed": 5}
    assert sums(await traffic(ports, org, TrafficKind.WEBHOOK)) == {"delivered": 0, "failed": 0}
