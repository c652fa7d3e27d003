"""Names for entries in logs and for the creators of credentials, and objects for a text that is searched."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final
from uuid import UUID

from core.eventing.model import audit, sentences
from core.kernel.access import may_view
from core.kernel.callers import OrganizationCaller
from core.kernel.event_catalog import Target
from core.kernel.roles import Capability
from ports import Ports

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
