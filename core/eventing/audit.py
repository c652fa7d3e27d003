"""Reading an organization's audit log, and the platform's log, whose entries belong to no organization (docs/adr/0001).

Without a caller, the functions read the platform's log. A timeline has a user's latest sign-ins and entries.

The entry about a refused change (security L-5) is written in its own transaction, because the change's transaction is rolled back.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Final
from uuid import UUID

from core.authentication.model import sign_in_log
from core.eventing import events
from core.eventing.model import audit, sentences
from core.eventing.model.sentences import DescribedEntry
from core.kernel import access, callers, event_catalog, values
from core.kernel.access import may_view
from core.kernel.callers import OrganizationCaller, organization_of
from core.kernel.causes import Caller
from core.kernel.errors import Refusal, refuse
from core.kernel.event_catalog import Target
from core.kernel.rate_limits import Bucket
from core.kernel.roles import Capability
from core.tenancy import organizations
from core.tenancy.model.organizations import Organization
from ports import Ports, storage


async def lock_organization_to_forward(tx: storage.Transaction, caller: OrganizationCaller, capability: Capability) -> Organization:
    """Lock the organization for a caller who has this right, and lets a receiver get what the audit log shows.

    So the caller may read the log, and their token has the scope.
    """
    organization, rights = await organizations.lock_organization_for(tx, caller, capability)
    access.require_right(rights, Capability.AUDIT_VIEW, organization.status)
    access.require_scopes_for(caller, frozenset({Capability.AUDIT_VIEW}))
    return organization


async def list_entries(
    ports: Ports, caller: OrganizationCaller | None, filter_: audit.AuditFilter | None, page: values.Page
) -> values.PageResult[DescribedEntry]:
    """Return a page with the matching entries, newest first. If the filter is None, no entry matches.

    In the platform's log, and with a filter by success, time or text, only the newest MAX_LISTED matching entries have pages.
    """
    org_id = organization_of(caller)
    async with ports.storage.reading() as read:
        resolved = await _resolve(ports, read, org_id, filter_)
        if resolved is None:
            return values.PageResult([], 0)
        result = await read.audit.page(org_id, resolved, page)
        return values.PageResult(await describe_entries(ports, partial(read.audit.names, org_id), result.items), result.total)


async def get_entry(ports: Ports, caller: OrganizationCaller | None, entry_id: UUID) -> DescribedEntry:
    """Return an entry."""
    org_id = organization_of(caller)
    not_found = audit.PlatformAuditEntryNotFound if org_id is None else audit.AuditEntryNotFound
    async with ports.storage.reading() as read:
        entry = await read.audit.by_id(org_id, entry_id) or refuse(not_found)
        return (await describe_entries(ports, partial(read.audit.names, org_id), [entry]))[0]


async def export(ports: Ports, caller: OrganizationCaller | None, filter_: audit.AuditFilter | None) -> values.Batches[DescribedEntry]:
    """Return all matching entries, newest first, without entries that are written after the first batch was read.

    If the filter is None, no entry matches.
    """
    org_id = organization_of(caller)
    async with ports.storage.reading() as read:
        resolved = await _resolve(ports, read, org_id, filter_)

    async def load_next(last: DescribedEntry | None, count: int) -> Sequence[DescribedEntry]:
        if resolved is None:
            return ()
        async with ports.storage.reading() as read:
            entries = await read.audit.batch(org_id, resolved, None if last is None else last.entry, count)
            return await describe_entries(ports, partial(read.audit.names, org_id), entries)

    return values.Batches(load_next, size=audit.EXPORT_BATCH)


async def _resolve(ports: Ports, read: storage.Reading, org_id: UUID | None, filter_: audit.AuditFilter | None) -> audit.AuditFilter | None:
    return None if filter_ is None else await resolve_search(ports, partial(read.audit.find_objects, org_id), filter_)


# Without a limit, a search for a person's few changes would read all entries about many sign-ins.
REACH: Final = timedelta(days=90)
# The timeline takes these actions from the sign-in log.
SIGN_IN_ACTIONS: Final = frozenset({"user.login.success"})


@dataclass(frozen=True, slots=True)
class Timeline:
    """A person's latest sign-ins and changes, newest first. Changes are from the last 90 days."""

    sign_ins: Sequence[sign_in_log.SignIn]
    changes: Sequence[DescribedEntry]


async def load_timeline(ports: Ports, caller: OrganizationCaller, user_id: UUID, most: int) -> Timeline:
    """Return a person's latest `most` sign-ins and changes that the caller's organization may see.

    If the caller may not read a log, its part is empty.
    """
    org_id = caller.acts_in.id
    changes = _changes(user_id, frozenset(event_catalog.AUDIT_ACTIONS), ports)
    async with ports.storage.reading() as read:
        sees_sign_ins, sees_changes = may_view(caller, Capability.SIGN_INS_VIEW), may_view(caller, Capability.AUDIT_VIEW)
        sign_ins = await read.sign_in_log.batch(org_id, sign_in_log.SignInFilter(user_id=user_id), None, most) if sees_sign_ins else []
        entries = await read.audit.batch(org_id, changes, None, most) if sees_changes else []
        return Timeline(sign_ins, await describe_entries(ports, partial(read.audit.names, org_id), entries))


async def load_platform_timeline(ports: Ports, user_id: UUID, most: int) -> Timeline:
    """Return a person's latest `most` sign-ins, and the changes in the platform's log."""
    changes = _changes(user_id, frozenset(event_catalog.PLATFORM_ACTIONS), ports)
    async with ports.storage.reading() as read:
        sign_ins = await read.sign_in_log.batch(None, sign_in_log.SignInFilter(user_id=user_id), None, most)
        entries = await read.audit.batch(None, changes, None, most)
        return Timeline(sign_ins, await describe_entries(ports, partial(read.audit.names, None), entries))


def _changes(user_id: UUID, actions: frozenset[str], ports: Ports) -> audit.AuditFilter:
    person = frozenset({(str(event_catalog.Target.USER), str(user_id))})
    return audit.AuditFilter(involved=person, actions=actions - SIGN_IN_ACTIONS, since=ports.clock.now() - REACH)


LoadNames = Callable[[Mapping[str, Collection[str]]], Awaitable[sentences.Names]]
FindObjects = Callable[[str, int], Awaitable[Sequence[audit.ObjectKey]]]


async def describe_entries(ports: Ports, load_names: LoadNames, entries: Sequence[audit.AuditEntry]) -> list[sentences.DescribedEntry]:
    """Return the entries with their sentences. A single statement loads all their names."""
    objects = sentences.collect_objects(entries)
    names = {**connection_names(ports), **(await load_names(objects) if objects else {})}
    locations = {entry.address: ports.geoip.locate(entry.address) for entry in entries}
    return [sentences.describe(entry, names, locations[entry.address]) for entry in entries]


def connection_names(ports: Ports) -> sentences.Names:
    """Return the operator's names for the platform's identity providers."""
    return {(Target.CONNECTION, slug): sentences.ObjectName(name) for slug, name in ports.policy.provider_names.items()}


async def resolve_search(ports: Ports, find_objects: FindObjects, filter_: audit.AuditFilter) -> audit.AuditFilter | None:
    """Return the filter without its search, or None if no entry can match.

    Every text costs a statement.
    """
    search = filter_.search
    if search is None:
        return filter_
    texts = [text for text in (search.either, search.actor, search.target) if text is not None]
    for text in texts:
        if len(text) < audit.MIN_SEARCH:
            raise audit.SearchTooShort(text)
    objects = {text: await _find(find_objects, text) for text in texts}
    if not all(objects.values()):
        return None
    return replace(
        filter_,
        search=None,
        since=search.range_start(filter_, ports.clock.now()),
        actors=None if search.actor is None else objects[search.actor],
        targets=None if search.target is None else objects[search.target],
        involved=None if search.either is None else objects[search.either],
    )


async def _find(find_objects: FindObjects, text: str) -> frozenset[audit.ObjectKey]:
    objects = await find_objects(text, audit.MAX_MATCHES + 1)
    if len(objects) > audit.MAX_MATCHES:
        raise audit.SearchTooBroad(text)
    return frozenset(objects)


FORMER: Final = "a former user"


async def load_authors(ports: Ports, caller: OrganizationCaller, ids: Collection[UUID]) -> Mapping[UUID, str]:
    """Return today's addresses of these users, and the names of these service accounts.

    FORMER stands for users and service accounts that the organization does not know. Without the right to read the
    audit log, which has these names, too, the result is empty.
    """
    if not ids or not may_view(caller, Capability.AUDIT_VIEW):
        return {}
    texts = {str(each) for each in ids}
    async with ports.storage.reading() as read:
        names = await read.audit.names(caller.acts_in.id, {Target.USER: texts, Target.SERVICE_ACCOUNT: texts})
    return dict.fromkeys(ids, FORMER) | {UUID(id_): name.text for (_, id_), name in names.items()}


# Entries per organization and caller: ten at once, and at most twenty in any hour.
ENTRIES = Bucket("refused", 360.0, 10)
ARGUMENT_LENGTH = 200  # characters; no existing object has a longer name


@dataclass(frozen=True, slots=True)
class RefusedChange:
    """A change that was refused. `route` is the path template, and `arguments` are its path parameters without the organization."""

    method: str
    route: str
    arguments: Mapping[str, str]


async def record_refusal(ports: Ports, caller: Caller | None, change: RefusedChange, refusal: Refusal) -> None:
    """Record that an organization's member or credential was refused, if this refusal is audited.

    Other callers write to no organization's log. A caller who is refused again and again writes at
    most twenty entries an hour, so that they cannot fill the log.

    Raises: SessionEnded if the member's session has ended.
    """
    caller = refusal.caller or caller
    actor = None if caller is None or not refusal.audited else _actor(caller)
    if caller is None or actor is None:
        return
    org_id, actor_id = actor
    async with ports.storage.autocommit() as statements:
        if await statements.rates.take(f"refused {org_id} {actor_id}", (ENTRIES,), ports.clock.now()) > 0:
            return
    arguments = {name: value[:ARGUMENT_LENGTH] for name, value in change.arguments.items()}
    async with ports.storage.transaction(by=caller) as tx:
        tx.record(events.access_refused(org_id, change.method, change.route, arguments, refusal))


def _actor(caller: Caller) -> tuple[UUID, UUID] | None:
    """Return the organization that a caller acts in, and the id of member or credential."""
    match caller:
        case callers.Member():
            return caller.acts_in.id, caller.user_id
        case callers.ServiceAccountCaller():
            return None if caller.org_id is None else (caller.org_id, caller.account_id)
        case callers.ServiceKey():
            return caller.service.org_id, caller.key_id
        case callers.ScimClient() | callers.RegistrationClient():
            return caller.org_id, caller.token_id
        case callers.SetupLinkCaller():
            return caller.org_id, caller.link_id
    return None
