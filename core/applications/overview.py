"""An organization's overview."""

from collections import Counter

from core.accounts.model.secret_notices import NoticedSecret
from core.applications.model.analytics import MOST_COUNTED, REVIEWS, CredentialToReview, Overview, compute_days, fill_days, select_tasks
from core.kernel.access import viewed_rights
from core.kernel.callers import OrganizationCaller
from core.kernel.roles import Capability
from ports import Ports


async def load(ports: Ports, caller: OrganizationCaller) -> Overview:
    """Return the organization's figures, its sign-ins in the last days, and the pending tasks that the caller can do."""
    now = ports.clock.now()
    days = compute_days(now)
    async with ports.storage.reading() as read:
        figures = await read.overview.figures(caller.acts_in.id, now)
        logins = await read.analytics.by_day(caller.acts_in.id, None, days)
    to_review = await list_to_review(ports, caller, MOST_COUNTED)
    return Overview(
        figures.members,
        figures.services,
        figures.has_sign_ins,
        fill_days(logins, days),
        select_tasks({**figures.tasks, **Counter(credential.task for credential in to_review)}, viewed_rights(caller)),
        to_review,
    )


async def list_to_review(ports: Ports, caller: OrganizationCaller, limit: int) -> list[CredentialToReview]:
    """Return the credentials that the caller can replace because their creators have left or may no longer create them, oldest first."""
    rights = viewed_rights(caller)
    kinds = [kind for kind, task in REVIEWS.items() if task.capability in rights]
    if Capability.API_KEYS_VIEW not in rights:  # the other kinds are listed by the right to replace them
        kinds = [kind for kind in kinds if kind is not NoticedSecret.API_KEY]
    if not kinds:
        return []
    async with ports.storage.reading() as read:
        return await read.created_secrets.to_review(caller.acts_in.id, kinds, ports.clock.now(), limit)
