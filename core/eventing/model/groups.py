"""Groups of audit entries that belong together, such as those of a sign-up or of a push by a directory."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from core.eventing.model.audit import AuditEntry
from core.eventing.model.sentences import DescribedEntry
from core.kernel.event_catalog import Target

# The longest pause between two entries of a group.
PAUSE_OF_PEOPLE: Final = timedelta(seconds=10)
PAUSE_OF_PROGRAMS: Final = timedelta(minutes=1)  # also of an impersonation, which has an entry for each request
MAX_SENTENCES: Final = 3  # entries of a group that its first sentence stands for
MAX_ACTIONS: Final = 3  # that the summary of a group names


@dataclass(frozen=True, slots=True)
class EntryGroup:
    """Entries that belong together, newest first."""

    entries: tuple[DescribedEntry, ...]

    @property
    def first(self) -> DescribedEntry:
        """The entry that began the group."""
        return self.entries[-1]

    @property
    def has_other_actions(self) -> bool:
        """Whether the group has entries with other actions than `counts`."""
        return sum(number for _, number in self.counts) < len(self.entries)

    @property
    def newest(self) -> DescribedEntry:
        """The entry with the time of the group."""
        return self.entries[0]

    @property
    def counts(self) -> list[tuple[str, int]]:
        """The most frequent actions of a large group with their numbers. Empty for a small group."""
        if len(self.entries) <= MAX_SENTENCES:
            return []
        return Counter(described.entry.action for described in self.entries).most_common(MAX_ACTIONS)


def group_entries(entries: Iterable[DescribedEntry]) -> list[EntryGroup]:
    """Return the entries of a page in groups. A failed entry stands alone, so that a reader sees it."""
    groups: list[list[DescribedEntry]] = []
    for described in entries:
        if groups and _belong_together(described.entry, groups[-1][-1].entry):
            groups[-1].append(described)
        else:
            groups.append([described])
    return [EntryGroup(tuple(members)) for members in groups]


def _belong_together(older: AuditEntry, newer: AuditEntry) -> bool:
    if not (older.success and newer.success) or (older.address, older.impersonator) != (newer.address, newer.impersonator):
        return False
    is_same_actor = (older.actor.kind, older.actor.id) == (newer.actor.kind, newer.actor.id)
    # A sign-up begins without an account and ends with a signed-in user.
    is_same_user = older.target_type == newer.target_type == Target.USER and older.target_id == newer.target_id
    is_of_program = is_same_actor and (older.actor.kind not in ("user", "anonymous") or older.impersonator is not None)
    pause = PAUSE_OF_PROGRAMS if is_of_program else PAUSE_OF_PEOPLE
    return (is_same_actor or is_same_user) and newer.created_at - older.created_at <= pause
