"""Audit entries in groups that belong together, such as a sign-up or a push by a directory."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from core.eventing.model.audit import ANONYMOUS, AuditEntry
from core.eventing.model.sentences import DescribedEntry
from core.kernel.event_catalog import Target

# The longest pause between two entries in a group.
PAUSE_OF_TRANSACTION: Final = timedelta(milliseconds=1)  # its entries have times that are microseconds apart
PAUSE_OF_PEOPLE: Final = timedelta(seconds=10)
PAUSE_OF_PROGRAMS: Final = timedelta(minutes=1)  # also in an impersonation, which has an entry per request


@dataclass(frozen=True, slots=True)
class EntryGroup:
    """Entries that belong together, newest first."""

    entries: tuple[DescribedEntry, ...]

    @property
    def first(self) -> DescribedEntry:
        """The entry that began the group."""
        return self.entries[-1]

    @property
    def newest(self) -> DescribedEntry:
        """The newest entry, which gives the group its time."""
        return self.entries[0]

    @property
    def other_actions(self) -> list[tuple[str, int]]:
        """The actions in all entries but the first, with their numbers, so that a reader misses none."""
        return Counter(described.entry.action for described in self.entries[:-1]).most_common()


def group_entries(entries: Iterable[DescribedEntry]) -> list[EntryGroup]:
    """Return a page's entries in groups. A failed entry has only its repetitions beside it, so that a reader sees it."""
    groups: list[list[DescribedEntry]] = []
    for described in entries:
        if groups and _belongs_to(described.entry, [member.entry for member in groups[-1]]):
            groups[-1].append(described)
        else:
            groups.append([described])
    return [EntryGroup(tuple(members)) for members in groups]


def _belongs_to(older: AuditEntry, group: Sequence[AuditEntry]) -> bool:
    """Return whether the next older entry belongs to the group."""
    newer = group[-1]
    if (older.success, older.address, older.impersonator) != (newer.success, newer.address, newer.impersonator):
        return False
    pause = newer.created_at - older.created_at
    if not older.success and (older.action, older.details) != (newer.action, newer.details):
        return False
    if (older.actor.kind, older.actor.id) != (newer.actor.kind, newer.actor.id):
        # A sign-up begins without an account and ends with a signed-in user.
        return (
            older.actor.kind == ANONYMOUS.kind
            and older.target_type == Target.USER
            and _target(older) == _target(newer)
            and pause <= PAUSE_OF_PEOPLE
        )
    if older.actor.kind not in ("user", ANONYMOUS.kind) or older.impersonator is not None:
        return pause <= PAUSE_OF_PROGRAMS
    is_same = pause <= PAUSE_OF_TRANSACTION or any(older.action == each.action or _target(older) == _target(each) for each in group)
    return is_same and pause <= PAUSE_OF_PEOPLE


def _target(entry: AuditEntry) -> tuple[str, str]:
    return entry.target_type, entry.target_id
