"""Figures for charts, and the job that counts them (decision 450).

An organization has the attempts that its sign-in log may show. An organization's successful sign-ins are the same as in
`core.applications.analytics`, so charts and analytics agree.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

from core.applications.model import figures
from core.kernel import callers
from core.kernel.access import may_view
from core.kernel.roles import Capability
from core.maintenance.housekeeping import process_in_batches
from core.maintenance.model import housekeeping
from ports import Ports
from ports.storage import Transaction

OUTCOMES = {figures.TrafficKind.WEBHOOK: ("delivered", "failed"), figures.TrafficKind.SCIM: ("accepted", "refused", "failed")}


async def load_sign_ins(ports: Ports, caller: callers.OrganizationCaller | None, range_: figures.FigureRange) -> figures.SignInFigures:
    """Return the sign-ins in the caller's organization. Without a caller, return the platform's sign-ins, which have no applications.

    An organization's results are only for callers that may read its sign-in log.
    """
    period = figures.period_of(range_, ports.clock.now())
    org_id = callers.organization_of(caller)
    async with ports.storage.reading() as read:
        sees_results = caller is None or may_view(caller, Capability.SIGN_INS_VIEW)
        return figures.SignInFigures(
            period,
            await read.figures.by_result(org_id, period) if sees_results else None,
            await read.figures.by_method(org_id, period),
            [] if org_id is None else await read.figures.by_application(org_id, period, figures.MOST_APPLICATIONS),
        )


async def load_results(ports: Ports, range_: figures.FigureRange) -> tuple[figures.FigurePeriod, Mapping[str, Sequence[int]]]:
    """Return the platform's sign-ins by SUCCESS and failure reasons, with their hours or days."""
    period = figures.period_of(range_, ports.clock.now())
    async with ports.storage.reading() as read:
        return period, await read.figures.by_result(None, period)


async def load_users(
    ports: Ports, caller: callers.OrganizationCaller | None, range_: figures.FigureRange, *, with_populations: bool = True
) -> figures.UserFigures:
    """Return the users in the caller's organization who signed in, or all users. Second factors need `members.manage`."""
    now = ports.clock.now()
    period = figures.period_of(range_, now)
    org_id = callers.organization_of(caller)
    async with ports.storage.reading() as read:
        sees_factors = with_populations and (caller is None or may_view(caller, Capability.MEMBERS_MANAGE))
        active, new = await read.figures.users(org_id, period)
        return figures.UserFigures(
            period,
            active,
            new,
            await read.figures.weekly_users(org_id, figures.weeks_of(period, now)),
            await read.figures.populations(org_id, period.first.date()) if sees_factors else None,
        )


async def load_traffic(
    ports: Ports, caller: callers.OrganizationCaller | None, kind: figures.TrafficKind, range_: figures.FigureRange
) -> figures.TrafficFigures:
    """Return the webhook attempts or SCIM requests in the caller's organization, or in all organizations."""
    period = figures.period_of(range_, ports.clock.now())
    async with ports.storage.reading() as read:
        counts = await read.figures.traffic(callers.organization_of(caller), kind, period)
    return figures.summarize_traffic(period, counts, OUTCOMES[kind])


async def count(ports: Ports, holder: UUID) -> dict[str, int] | None:
    """Delete old figures, and count the sign-ins and attempts since the last run. Return None if another process holds the lease.

    The deletion is first, so that it does not depend on the counts. After an outage, the missed hours are counted one
    after the other, in a transaction per hour.
    """

    async def remove(tx: Transaction, now: datetime) -> int:
        return await tx.figure_counting.remove(now - figures.HOURS_KEPT, now - figures.DAYS_KEPT, housekeeping.BATCH)

    removed = await process_in_batches(ports, holder, "figures", housekeeping.LEASE, housekeeping.BATCH, {"removed": remove})
    if removed is None:
        return None
    kinds = {"traffic": _sum_traffic, "hours": _count_hour, "populations": _count_populations}
    counts = await process_in_batches(ports, holder, "figures", housekeeping.LEASE, 1, kinds)
    return removed | (counts or {})


async def _sum_traffic(tx: Transaction, now: datetime) -> int:
    # An hour earlier, because an attempt is recorded after its time.
    await tx.figure_counting.sum_traffic(await tx.figure_counting.next_hour(now - figures.DAYS_KEPT, now) - figures.HOUR)
    return 0


async def _count_hour(tx: Transaction, now: datetime) -> int:
    """Count the first hour that is not final. Return 1 if a later hour can be next, and 0 when the present hour is counted."""
    hour = await tx.figure_counting.next_hour(now - figures.DAYS_KEPT, now)
    await tx.figure_counting.count_hour(hour)
    if hour + figures.HOUR + figures.SETTLED_AFTER <= now:
        await tx.figure_counting.mark_final(hour + figures.HOUR)
        return 1
    await tx.figure_counting.mark_final(hour)
    if hour + figures.HOUR <= now:
        await tx.figure_counting.count_hour(hour + figures.HOUR)
    return 0


async def _count_populations(tx: Transaction, now: datetime) -> int:
    await tx.figure_counting.count_populations(now)
    return 0
