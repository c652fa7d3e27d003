"""Reading the sign-in logs of organizations and of the platform (decision 220)."""

from collections.abc import Sequence
from uuid import UUID

from core.authentication.model.sign_in_log import EXPORT_BATCH, ServiceActivity, SignIn, SignInFilter
from core.kernel.callers import OrganizationCaller, organization_of
from core.kernel.values import Batches, Page, PageResult
from ports import Ports


async def list_sign_ins(ports: Ports, caller: OrganizationCaller | None, filter_: SignInFilter, page: Page) -> PageResult[SignIn]:
    """Return a page of the newest MAX_LISTED matching attempts that the caller's organization may see, newest first.

    Without a caller, return those of the platform.
    """
    async with ports.storage.reading() as read:
        return await read.sign_in_log.page(organization_of(caller), filter_, page)


async def latest_failure(ports: Ports, caller: OrganizationCaller | None, user_id: UUID) -> SignIn | None:
    """Return the newest failure of the user that the caller's organization may see, or the platform without a caller, if any."""
    failures = SignInFilter(user_id=user_id, success=False)
    async with ports.storage.reading() as read:
        newest = await read.sign_in_log.batch(organization_of(caller), failures, None, 1)
    return newest[0] if newest else None


async def load_activity(ports: Ports, caller: OrganizationCaller, service_id: UUID) -> ServiceActivity:
    """Return the last sign-in to an application of the caller's organization, and the last failed attempt."""
    async with ports.storage.reading() as read:
        return await read.sign_in_log.last_of_service(caller.acts_in.id, service_id)


def export(ports: Ports, caller: OrganizationCaller | None, filter_: SignInFilter) -> Batches[SignIn]:
    """Return all matching attempts, newest first, without those that are recorded after the first batch was read."""

    async def load_next(last: SignIn | None, count: int) -> Sequence[SignIn]:
        async with ports.storage.reading() as read:
            return await read.sign_in_log.batch(organization_of(caller), filter_, last, count)

    return Batches(load_next, size=EXPORT_BATCH)
