"""Audit entries for people: sentences, details as table rows, and groups that belong together, such as a sign-up or a directory's push.

Entries have ids only. The names are today's names, which the caller loads for a page: an entry never contains a name
that it must forget (security L-5, Y-2).
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from core.accounts.model.devices import Location
from core.eventing.model import audit
from core.kernel import display
from core.kernel.display import to_words
from core.kernel.event_catalog import EVENT_KINDS, Target
from core.kernel.event_sentences import SENTENCES
from core.kernel.values import parse_id

# The actor kinds that are the target in no entry
SCIM_TOKEN: Final = "scim_token"  # noqa: S105
REGISTRATION_TOKEN: Final = "registration_token"  # noqa: S105
SETUP_LINK: Final = "setup_link"
NAMED_KINDS: Final = frozenset(
    {
        *(Target.USER, Target.SERVICE, Target.ORGANIZATION, Target.PLAN, Target.API_KEY, Target.API_RESOURCE),
        *(Target.SERVICE_ACCOUNT, Target.GROUP, Target.ROLE, SCIM_TOKEN, REGISTRATION_TOKEN),
    }
)
# The details with ids for objects that have names.
_IDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("user_id", "owner_id", "old_owner_id", "new_owner_id"), Target.USER),
    "service_id": Target.SERVICE,
    "plan_id": Target.PLAN,
    "org_id": Target.ORGANIZATION,
    "service_account_id": Target.SERVICE_ACCOUNT,
    "api_resource_id": Target.API_RESOURCE,
}
# The details that name the target, for objects that are gone.
_NAMES_IN_DETAILS: Final[Mapping[str, tuple[str, ...]]] = {
    Target.SERVICE: ("service_name", "service_slug"),
    Target.PLAN: ("plan_name",),
    Target.SUBSCRIPTION: ("plan_name",),
    Target.INVITATION: ("invited_email",),
    Target.API_KEY: ("name",),
    Target.API_RESOURCE: ("name",),
    Target.ROLE: ("name",),
    Target.GROUP: ("group_name",),
    Target.SERVICE_ACCOUNT: ("name",),
    Target.PERSONAL_TOKEN: ("prefix",),
    Target.ORGANIZATION: ("name", "slug"),
}
_ACTORS: Final[Mapping[str, str]] = {
    "system": display.PRODUCT,
    "anonymous": "Someone who was not signed in",
    "api_key": "An API key",
    SCIM_TOKEN: "The directory",
    REGISTRATION_TOKEN: "A client with a registration token",
    "service_account": "A service account",
    SETUP_LINK: "A set-up link",
}
_FIELD: Final = re.compile(r"\{([a-z_.]+)\}")
_TIME: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z")  # as in entries
_WORDS: Final[Mapping[str, str]] = {word.lower(): word for word in ("API", "ID", "JWKS", "SAML", "SCIM", "TLS", "URI", "URIs", "URL")}
EMPTY: Final[tuple[Any, ...]] = (None, "", [], {})
SHORT_ID: Final = 8  # characters of an id that tell two objects without a name apart
UNKNOWN_ACCOUNT: Final = "A deleted user"


@dataclass(frozen=True, slots=True)
class ObjectName:
    """An object's name today; for a user, the address. `person` is the user's own name, if the reader may see it (security R-9)."""

    text: str
    person: str | None = None


Names = Mapping[audit.ObjectKey, ObjectName]


class PartKind(StrEnum):
    """What a sentence part is. A page links actor and target to their entries."""

    TEXT = "text"
    ACTOR = "actor"
    TARGET = "target"
    VALUE = "value"


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a sentence."""

    kind: PartKind
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedEntry:
    """An audit entry with today's names, as people read it."""

    entry: audit.AuditEntry
    parts: tuple[Part, ...]  # the sentence's parts
    target: ObjectName | None  # None if the object has no name that the reader may see
    actor: ObjectName | None
    location: Location | None  # where the address is
    names: Names

    @property
    def sentence(self) -> str:
        """The sentence as plain text."""
        return "".join(part.text for part in self.parts)


@dataclass(frozen=True, slots=True)
class DetailRow:
    """A row in the details. `old` is None unless the row is a change."""

    label: str
    text: str
    old: str | None = None


def collect_objects(entries: Iterable[audit.AuditEntry]) -> dict[str, set[str]]:
    """Return the object ids for the names that these sentences and details need, by type."""
    ids: dict[str, set[str]] = {}
    for entry in entries:
        for kind, id_ in _objects(entry):
            if kind in NAMED_KINDS and parse_id(id_) is not None:
                ids.setdefault(kind, set()).add(id_)
    return ids


def describe(entry: audit.AuditEntry, names: Names, location: Location | None) -> DescribedEntry:
    """Return the entry with its sentence."""
    return DescribedEntry(
        entry=entry,
        parts=tuple(_sentence(entry, names)),
        target=_target(entry, names),
        actor=names.get((_kind_of(entry.actor), entry.actor.id)),
        location=location,
        names=names,
    )


def detail_rows(described: DescribedEntry) -> list[DetailRow]:
    """Return an entry's details as rows. Changes have the old and the new value."""
    return list(_rows(described.entry.details, described.names))


def _objects(entry: audit.AuditEntry) -> Iterator[audit.ObjectKey]:
    yield entry.target_type, entry.target_id
    yield _kind_of(entry.actor), entry.actor.id
    yield from _objects_in(entry.details)


def _objects_in(details: Mapping[str, Any]) -> Iterator[audit.ObjectKey]:
    for name, value in details.items():
        if kind := _IDS.get(name):
            values = value.values() if isinstance(value, Mapping) else [value]
            yield from ((kind, each) for each in values if isinstance(each, str))
        elif isinstance(value, Mapping):
            yield from _objects_in(value)


def _kind_of(actor: audit.AuditActor) -> str:
    return Target.USER if actor.kind == "user" else actor.kind


def _sentence(entry: audit.AuditEntry, names: Names) -> Iterator[Part]:
    """Yield the sentence's parts. A newer release can have written an action that is unknown here."""
    template = next(filter(None, (_applied(sentence, entry, names) for sentence in SENTENCES.get(entry.action, ()))), None)
    if template is None:
        kind = EVENT_KINDS.get(entry.action)
        template = "{actor}: " + (to_words(entry.action) if kind is None else kind.label)
    rest = 0
    for match in _FIELD.finditer(template):
        if match.start() > rest:
            yield Part(PartKind.TEXT, template[rest : match.start()])
        rest = match.end()
        yield _part(match[1], entry, names, is_first=match.start() == 0)
    if rest < len(template):
        yield Part(PartKind.TEXT, template[rest:])


def _applied(sentence: str | tuple[str, str], entry: audit.AuditEntry, names: Names) -> str | None:
    """Return the sentence without its condition, or None if it does not apply to this entry."""
    condition, template = (None, sentence) if isinstance(sentence, str) else sentence
    if condition == "self":
        user_id = entry.target_id if entry.target_type == Target.USER else _detail(entry.details, "user_id")
        if user_id != entry.actor.id:
            return None
    elif condition is not None and not _detail(entry.details, condition):
        return None
    fields = (match[1] for match in _FIELD.finditer(template))
    return template if all(_value(field, entry, names) for field in fields if field not in ("actor", "target")) else None


def _part(field: str, entry: audit.AuditEntry, names: Names, *, is_first: bool) -> Part:
    if field == "actor":
        return Part(PartKind.ACTOR, _impersonator(entry) + _actor_text(entry.actor, names))
    if field == "target":
        # Such a sentence has no other place for the impersonator.
        return Part(PartKind.TARGET, (_impersonator(entry) if is_first else "") + _target_text(entry, names))
    return Part(PartKind.VALUE, _value(field, entry, names))


def _impersonator(entry: audit.AuditEntry) -> str:
    """Return how the subject begins in an entry from an impersonation. At its start, the impersonator is the actor."""
    impersonator = entry.impersonator
    return "" if impersonator is None or impersonator.id == entry.actor.id else f"{impersonator.email} as "


def _actor_text(actor: audit.AuditActor, names: Names) -> str:
    if actor.kind == "user":
        return actor.email if parse_id(actor.id) is not None else UNKNOWN_ACCOUNT
    text = _ACTORS.get(actor.kind) or to_words(actor.kind)
    known = names.get((actor.kind, actor.id))
    name = known.text if known is not None else actor.name
    return text if name is None else f"{text} ({name})"


def _target(entry: audit.AuditEntry, names: Names) -> ObjectName | None:
    if known := names.get((entry.target_type, entry.target_id)):
        return known
    if entry.target_type == Target.USER and entry.target_id == entry.actor.id:
        return ObjectName(entry.actor.email)  # as the entry shows its actor
    details = (_detail(entry.details, field) for field in _NAMES_IN_DETAILS.get(entry.target_type, ()))
    return next((ObjectName(_one_line(name)) for name in details if isinstance(name, str) and name), None)


def _target_text(entry: audit.AuditEntry, names: Names) -> str:
    if name := _target(entry, names):
        return name.text
    if entry.target_type == Target.ORGANIZATION and entry.target_id == str(entry.org_id):
        return "the organization"
    return _nameless(entry.target_type, entry.target_id)


def _nameless(kind: str, id_: str) -> str:
    return f"{'a former user' if kind == Target.USER else to_words(kind).lower()} ({id_[:SHORT_ID]})"


def _detail(details: Mapping[str, Any], path: str) -> Any:
    value: Any = details
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _value(field: str, entry: audit.AuditEntry, names: Names) -> str:
    """Return a detail as text, or an empty text if it has no value."""
    value = _detail(entry.details, field)
    if isinstance(value, str) and _TIME.fullmatch(value):
        return display.format_utc(datetime.fromisoformat(value))
    return "" if value in EMPTY else _one_line(_to_text(field, value, names))


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _to_text(field: str, value: Any, names: Names) -> str:
    kind = _IDS.get(field)
    match value:
        case _ if value in EMPTY:
            return "none"
        case bool():
            return "yes" if value else "no"
        case str() if (field == "provider" or "." in field) and (Target.CONNECTION, value) in names:  # "." is in route domains
            return names[Target.CONNECTION, value].text
        case str() if kind is not None and parse_id(value) is not None:
            known = names.get((kind, value))
            return _nameless(kind, value) if known is None else known.text
        case Mapping():
            return "; ".join(f"{name}: {_to_text(name, each, names)}" for name, each in value.items())
        case list() | tuple():
            return ", ".join(_to_text(field, each, names) for each in value)
    return str(value)


def _label(field: str, names: Names) -> str:
    """Return a detail's name for people. A domain stays as it is."""
    if "." in field:
        return field
    if connection := names.get((Target.CONNECTION, field.removesuffix("_scopes"))):
        return f"Scopes at {connection.text}"
    if field.startswith("service_") and not field.startswith("service_account"):
        field = "application" + field.removeprefix("service")
    words = " ".join(_WORDS.get(word, word) for word in field.split("_"))
    return words[:1].upper() + words[1:]


def _rows(details: Mapping[str, Any], names: Names) -> Iterator[DetailRow]:
    for field, value in details.items():
        label = _label(field, names)
        if not isinstance(value, Mapping):
            yield DetailRow(label, _to_text(field, value, names))
        elif value.keys() == {"old", "new"} and not any(isinstance(each, Mapping) for each in value.values()):
            yield DetailRow(label, _to_text(field, value["new"], names), _to_text(field, value["old"], names))
        else:
            yield from _rows(value, names)


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


def _belongs_to(older: audit.AuditEntry, group: Sequence[audit.AuditEntry]) -> bool:
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
            older.actor.kind == audit.ANONYMOUS.kind
            and older.target_type == Target.USER
            and _group_target(older) == _group_target(newer)
            and pause <= PAUSE_OF_PEOPLE
        )
    if older.actor.kind not in ("user", audit.ANONYMOUS.kind) or older.impersonator is not None:
        return pause <= PAUSE_OF_PROGRAMS
    is_same = pause <= PAUSE_OF_TRANSACTION or any(
        older.action == each.action or _group_target(older) == _group_target(each) for each in group
    )
    return is_same and pause <= PAUSE_OF_PEOPLE


def _group_target(entry: audit.AuditEntry) -> tuple[str, str]:
    return entry.target_type, entry.target_id
