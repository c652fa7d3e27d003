"""Reading the sign-in logs for organizations and the platform (decision 220)."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from core.authentication.model import sign_in_log
from core.kernel import callers, values
from ports import Ports
from ports.storage import Reading


async def list_sign_ins(
    ports: Ports, caller: callers.OrganizationCaller | None, filter_: sign_in_log.SignInFilter, page: values.Page
) -> values.PageResult[sign_in_log.SignIn]:
    """Return a page of the newest MAX_LISTED matching attempts that the caller's organization may see, newest first.

    Without a caller, return the platform's attempts.
    """
    async with ports.storage.reading() as read:
        resolved = await _resolve(read, caller, filter_)
        return (
            values.PageResult([], 0) if resolved is None else await read.sign_in_log.page(callers.organization_of(caller), resolved, page)
        )


async def list_own(ports: Ports, caller: callers.Person, page: values.Page) -> values.PageResult[sign_in_log.SignIn]:
    """Return a page of the newest MAX_LISTED attempts at the caller's own account within OWN_PERIOD, newest first.

    These are all attempts, also attempts that no organization sees.
    """
    own = sign_in_log.SignInFilter(user_id=caller.user_id, since=ports.clock.now() - sign_in_log.OWN_PERIOD)
    async with ports.storage.reading() as read:
        return await read.sign_in_log.page(None, own, page)


async def latest_failure(ports: Ports, caller: callers.OrganizationCaller | None, user_id: UUID) -> sign_in_log.SignIn | None:
    """Return the newest failure of the user that the caller's organization may see, or the platform without a caller, if any."""
    failures = sign_in_log.SignInFilter(user_id=user_id, success=False)
    async with ports.storage.reading() as read:
        newest = await read.sign_in_log.batch(callers.organization_of(caller), failures, None, 1)
    return newest[0] if newest else None


async def load_activity(ports: Ports, caller: callers.OrganizationCaller, service_id: UUID) -> sign_in_log.ServiceActivity:
    """Return the last sign-in to an application of the caller's organization, and the last failed attempt."""
    async with ports.storage.reading() as read:
        return await read.sign_in_log.last_of_service(caller.acts_in.id, service_id)


async def load_last_sign_ins(ports: Ports, caller: callers.OrganizationCaller, service_ids: Collection[UUID]) -> Mapping[UUID, datetime]:
    """Return when users last signed in, for the given applications in the caller's organization that had a sign-in."""
    async with ports.storage.reading() as read:
        return await read.sign_in_log.last_successes(caller.acts_in.id, service_ids)


async def export(
    ports: Ports, caller: callers.OrganizationCaller | None, filter_: sign_in_log.SignInFilter
) -> values.Batches[sign_in_log.SignIn]:
    """Return all matching attempts, newest first, without attempts that are recorded after the first batch was read."""
    async with ports.storage.reading() as read:
        resolved = await _resolve(read, caller, filter_)

    async def load_next(last: sign_in_log.SignIn | None, count: int) -> Sequence[sign_in_log.SignIn]:
        if resolved is None:
            return ()
        async with ports.storage.reading() as read:
            return await read.sign_in_log.batch(callers.organization_of(caller), resolved, last, count)

    return values.Batches(load_next, size=sign_in_log.EXPORT_BATCH)


async def _resolve(
    read: Reading, caller: callers.OrganizationCaller | None, filter_: sign_in_log.SignInFilter
) -> sign_in_log.SignInFilter | None:
    """Return the filter with the ids for its connection, and for the user who has its address. None if no attempt can match."""
    if filter_.connection is not None:
        connection_id = await _find_connection(read, caller, filter_.connection)
        if connection_id is None:
            return None
        filter_ = replace(filter_, connection=None, connection_id=connection_id)
    if filter_.email is None:
        return filter_
    try:
        user_id = await read.sign_in_log.find_user(callers.organization_of(caller), values.Email.parse(filter_.email))
    except values.EmailInvalid:
        return None
    return replace(filter_, email=None, user_id=user_id) if user_id is not None and filter_.user_id in (None, user_id) else None


async def _find_connection(read: Reading, caller: callers.OrganizationCaller | None, name: str) -> UUID | None:
    if caller is None:
        return values.parse_id(name)
    connection = await read.connections.by_slug(caller.acts_in.id, name)
    return None if connection is None else connection.id
