"""The overview of an organization."""

from core.applications.model.analytics import Overview, compute_days, fill_days, select_tasks
from core.kernel.callers import OrganizationCaller
from ports import Ports


async def load(ports: Ports, caller: OrganizationCaller) -> Overview:
    """Return the figures of the organization, its sign-ins of the last days, and the pending tasks that the caller can do."""
    now = ports.clock.now()
    days = compute_days(now)
    async with ports.storage.reading() as read:
        figures = await read.overview.figures(caller.acts_in.id, now)
        logins = await read.analytics.by_day(caller.acts_in.id, None, days)
    return Overview(
        figures.members,
        figures.services,
        figures.has_sign_ins,
        fill_days(logins, days),
        select_tasks(figures.tasks, caller.acts_in.rights),
    )
