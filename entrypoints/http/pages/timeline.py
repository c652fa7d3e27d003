"""The timeline on a person's page: sign-ins, devices and changes, newest first."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from core.accounts.model.devices import ListedDevice
from core.authentication.model.sign_in_log import SignIn
from core.eventing.audit import Timeline
from core.eventing.model.sentences import DescribedEntry
from entrypoints.http import kit
from entrypoints.http.base.rendering.labels import failure_label

MOST: Final = 20  # entries on a page


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """A timeline entry. It has a sentence, or the described audit log entry."""

    at: datetime
    icon: str  # a Heroicons name
    sentence: str = ""
    detail: str = ""
    state: str = ""  # `bad` for a failure
    change: DescribedEntry | None = None


def list_entries(timeline: Timeline, devices: Sequence[ListedDevice] = ()) -> list[TimelineEntry]:
    """Return the newest MOST entries. Every source holds at least its newest MOST entries."""
    entries = [
        *(_sign_in(each) for each in timeline.sign_ins),
        *(TimelineEntry(each.entry.created_at, "pencil-square", change=each) for each in timeline.changes),
        *(TimelineEntry(each.device.created_at, "device-phone-mobile", f"New device: {each.device.name}") for each in devices),
    ]
    return sorted(entries, key=lambda entry: entry.at, reverse=True)[:MOST]


def _sign_in(sign_in: SignIn) -> TimelineEntry:
    to = kit.application_of(sign_in, in_sentence=True)
    if sign_in.success:
        icon, state, sentence = "arrow-right-end-on-rectangle", "", f"Signed in to {to}"
    else:
        icon, state, sentence = "x-circle", "bad", f"Could not sign in to {to}: {failure_label(sign_in)}"
    place = ", ".join(part for part in (sign_in.city, sign_in.country) if part)
    agent = kit.ports().user_agents.parse(sign_in.agent) if sign_in.agent else None
    parts = [
        kit.label(sign_in.provider, kit.sign_in_methods()) if sign_in.provider else "",
        f"{agent.browser} on {agent.os}" if agent else "",
        place,
        sign_in.address or "",
    ]
    return TimelineEntry(sign_in.created_at, icon, sentence, " · ".join(part for part in parts if part), state)
