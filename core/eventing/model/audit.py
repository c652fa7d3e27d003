"""Audit log entries: their actors, the log filters, and their JSON form."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

from core.accounts.model import accounts
from core.kernel import callers, errors, event_catalog
from core.kernel.causes import Caller
from core.kernel.values import parse_id

ObjectKey = tuple[str, str]  # an object's type and id


class TargetTypeRequired(errors.Invalid):
    """The parameter target_id requires the parameter target_type. Send both."""


class AuditEntryNotFound(errors.NotFound):
    """The audit log of this organization has no entry with this id."""


class PlatformAuditEntryNotFound(errors.NotFound):
    """The platform's log has no entry with this id. The entries of organizations are in their own audit logs."""


class SearchRefused(errors.Invalid):
    """This text cannot be searched for."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text


class SearchTooShort(SearchRefused):
    """Enter 2 or more characters of the address or name."""


class SearchTooBroad(SearchRefused):
    """More than 100 people and objects match this text. Enter more of the address or name."""


# How many entries have pages, in the platform's log, and in an organization's log with a filter that its totals cannot answer. Older
# entries are found with a filter or an export.
MAX_LISTED: Final = 10_000
EXPORT_BATCH: Final = 500  # entries that an export reads at once
MAX_MATCHES: Final = 100  # people and objects that a text may match; SearchTooBroad names the number
MIN_SEARCH: Final = 2  # characters in a text; SearchTooShort names the number
SEARCH_RANGE: Final = timedelta(days=90)  # for a search by text without `since`


@dataclass(frozen=True, slots=True)
class AuditActor:
    """The actor in an audit entry: an account, a credential, a service account, or an actor without account.

    `kind` is `user`, `service_account`, `api_key`, `scim_token`, `registration_token`, `setup_link`, `system` or `anonymous`.
    `name` is the name that a service account or a set-up link had when it acted.
    """

    id: str
    email: str
    is_platform_owner: bool = False
    kind: str = "user"
    name: str | None = None


SYSTEM: Final = AuditActor("system", "system@internal", kind="system")  # a background job or an operator's command
# A caller without a session, such as a user who accepts an invitation by its link.
ANONYMOUS: Final = AuditActor("anonymous", "anonymous@internal", kind="anonymous")
DELETED_ACCOUNT: Final = AuditActor(accounts.DELETED_ACCOUNT.id, accounts.DELETED_ACCOUNT.email)
# The actors that filters can name and that have no account, by the id that entries show.
ACTORS_WITHOUT_ACCOUNT: Final = {actor.id: actor for actor in (SYSTEM, ANONYMOUS)}


def resolve_actor(
    actor_id: UUID | None, kind: str | None, account: AuditActor | None, address: str | None, name: str | None = None
) -> AuditActor:
    """Return an entry's actor.

    `kind` is the kind of credential, or None if a person acted. `account` is the person's account, or None if it is
    gone. `address` is the IP address: every request has one, and a background job has none. `name` is a service
    account's name. A credential has no address, so its kind stands for the address, also if a newer release added the
    kind.
    """
    if kind is not None:
        return AuditActor(str(actor_id), f"{kind.replace('_', '-')}@internal", kind=kind, name=name)
    if actor_id is not None:
        return account or DELETED_ACCOUNT
    return SYSTEM if address is None else ANONYMOUS


def caller_kind(caller: Caller) -> str:
    """Return the actor kind, as in `AuditActor`, for an event that this caller causes."""
    match caller:
        case callers.Person():
            return "user"
        case callers.ServiceAccountCaller():
            return "service_account"
        case callers.ServiceKey():
            return "api_key"
        case callers.ScimClient():
            return "scim_token"
        case callers.RegistrationClient():
            return "registration_token"
        case callers.SetupLinkCaller():
            return "setup_link"
    return SYSTEM.kind if caller.address is None else ANONYMOUS.kind


def actor_of(caller: callers.OrganizationCaller) -> AuditActor:
    """Return the actor for an entry about a change by this caller."""
    if isinstance(caller, callers.Member):
        return AuditActor(str(caller.user_id), caller.email, caller.is_platform_owner)
    return AuditActor(str(caller.account_id), accounts.SERVICE_ACCOUNT_EMAIL, kind="service_account", name=caller.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """An entry in the audit log. Times are UTC."""

    id: UUID
    org_id: UUID | None  # None in the platform's log
    actor: AuditActor
    impersonator: AuditActor | None  # the person who impersonated `actor`
    action: str
    target_type: str
    target_id: str
    address: str | None
    agent: str | None
    success: bool
    details: Mapping[str, Any]
    created_at: datetime


class Period(StrEnum):
    """A time range up to now."""

    HOUR = "1h"
    DAY = "24h"
    WEEK = "7d"

    @property
    def length(self) -> timedelta:
        """How long the range is."""
        return {Period.HOUR: timedelta(hours=1), Period.DAY: timedelta(days=1), Period.WEEK: timedelta(days=7)}[self]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSearch:
    """The filter parts that depend on today's names and on the time. Every text is a part of an address or name."""

    actor: str | None = None
    target: str | None = None
    either: str | None = None  # the actor or the target
    period: Period | None = None

    @property
    def has_text(self) -> bool:
        """Whether names must be found first."""
        return any((self.actor, self.target, self.either))

    def range_start(self, filter_: "AuditFilter", now: datetime) -> datetime | None:
        """Return when the time range starts for a filter with this search."""
        starts = [filter_.since] if filter_.since is not None else []
        if self.period is not None:
            starts.append(now - self.period.length)
        elif self.has_text and filter_.since is None:
            starts.append((filter_.until or now) - SEARCH_RANGE)
        return max(starts, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """A filter for the audit log. An entry must match every field that is not None. Times are UTC."""

    actions: frozenset[str] | None = None
    target_type: str | None = None
    target_id: str | None = None
    actor_id: UUID | None = None
    actor_without_account: AuditActor | None = None  # the id in ACTORS_WITHOUT_ACCOUNT
    success: bool | None = None
    since: datetime | None = None
    until: datetime | None = None  # not included
    search: AuditSearch | None = None  # the use case replaces it by the next three and `since`
    # Types and ids of the objects that a search found
    actors: frozenset[ObjectKey] | None = None
    targets: frozenset[ObjectKey] | None = None
    involved: frozenset[ObjectKey] | None = None  # as actor or target
    # Only in the platform's log
    impersonator_id: UUID | None = None
    session_id: str | None = None  # an impersonation's session


def build_filter(
    *,
    action: str | None,
    target_type: event_catalog.Target | None,
    target_id: str | None,
    actor_id: str | None,
    success: bool | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    known_actions: Mapping[str, event_catalog.EventKind] = event_catalog.AUDIT_ACTIONS,
) -> AuditFilter | None:
    """Return the filter for these query parameters, or None if no entry can match.

    `known_actions` are the actions that the log can contain. Decision 227 defines
    the parameters.
    """
    if target_id is not None and target_type is None:
        raise TargetTypeRequired
    account_id, without_account = (None, None) if actor_id is None else (parse_id(actor_id), ACTORS_WITHOUT_ACCOUNT.get(actor_id))
    if actor_id is not None and account_id is None and without_account is None:
        return None
    by_actor_and_time = AuditFilter(actor_id=account_id, actor_without_account=without_account, success=success, since=since, until=until)
    if action is None and target_type not in (event_catalog.Target.DOMAIN, event_catalog.Target.BRANDING):
        return replace(by_actor_and_time, target_type=target_type, target_id=target_id)
    # Every action's target type is known. Without a target id, the actions alone therefore select
    # the entries.
    kinds = [kind for kind in known_actions.values() if action in (None, kind.name) and target_type in (None, *_target_types(kind))]
    if not kinds:
        return None
    return replace(
        by_actor_and_time,
        actions=frozenset(kind.name for kind in kinds),
        target_type=kinds[0].target if target_id is not None else None,
        target_id=target_id,
    )


def restrict_to_category(
    filter_: AuditFilter | None, category: str | None, known_actions: Mapping[str, event_catalog.EventKind]
) -> AuditFilter | None:
    """Return the filter for the actions in this category only, or None if no entry can match."""
    if filter_ is None or category is None:
        return filter_
    actions = frozenset(kind.name for kind in known_actions.values() if kind.category == category)
    if filter_.actions is not None:
        actions &= filter_.actions
    return replace(filter_, actions=actions) if actions else None


def to_platform_filter(filter_: AuditFilter | None, impersonator_id: str | None, session_id: str | None) -> AuditFilter | None:
    """Return the filter for the platform's log from this PLATFORM_ACTIONS filter and these parameters, or None if no entry can match."""
    impersonator = None if impersonator_id is None else parse_id(impersonator_id)
    if filter_ is None or (impersonator_id is not None and impersonator is None):
        return None
    if filter_.actions is None and filter_.target_type is not None and filter_.target_id is None:
        # The log has no index on target types alone. Actions select the same entries as the target
        # types.
        actions = frozenset(kind.name for kind in event_catalog.PLATFORM_ACTIONS.values() if kind.target == filter_.target_type)
        filter_ = replace(filter_, target_type=None, actions=actions)
    return replace(filter_, impersonator_id=impersonator, session_id=session_id)


def _target_types(kind: event_catalog.EventKind) -> tuple[event_catalog.Target, ...]:
    """Return the target types by which a filter finds entries with this kind."""
    area = kind.name.partition(".")[0]
    if kind.name == "user.invited":  # the interface documents `user`
        return (kind.target, event_catalog.Target.USER)
    return (
        (kind.target, event_catalog.Target(area))
        if area in (event_catalog.Target.DOMAIN, event_catalog.Target.BRANDING)
        else (kind.target,)
    )


def to_json(entry: AuditEntry) -> dict[str, Any]:
    """Return an entry in JSON form, with ids and times not yet converted to text."""
    impersonator = {} if entry.impersonator is None else {"impersonator": _person(entry.impersonator)}
    return {
        "id": entry.id,
        "org_id": entry.org_id,
        "actor": {
            **_person(entry.actor),
            "is_platform_owner": entry.actor.is_platform_owner,
            "kind": entry.actor.kind,
            "name": entry.actor.name,
        },
        "action": entry.action,
        "target_type": entry.target_type,
        "target_id": entry.target_id,
        "ip_address": entry.address,
        "user_agent": entry.agent,
        "success": entry.success,
        "details": {**entry.details, **impersonator},
        "created_at": entry.created_at,
    }


def _person(actor: AuditActor) -> dict[str, str]:
    return {"id": actor.id, "email": actor.email}
