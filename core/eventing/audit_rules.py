"""Entities, refusals and pure rules of `core.eventing.audit`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from core.accounts import accounts_rules
from core.kernel.errors import Invalid
from core.kernel.event_catalog import AUDIT_ACTIONS, Target
from core.kernel.values import parse_id

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from uuid import UUID

    from core.kernel.event_catalog import EventKind


class TargetTypeRequired(Invalid):
    """The parameter target_id needs target_type beside it, which says what it is the id of."""


@dataclass(frozen=True, slots=True)
class AuditActor:
    """Who did it, as the log shows it."""

    id: str
    email: str
    is_platform_owner: bool = False


SYSTEM: Final = AuditActor("system", "system@internal")  # a job of the service, or a command of the operator
ANONYMOUS: Final = AuditActor("anonymous", "anonymous@internal")  # whoever was not signed in, as is who accepts an invitation by its link
GONE: Final = AuditActor(accounts_rules.GONE.id, accounts_rules.GONE.email)
NOBODY: Final = {nobody.id: nobody for nobody in (SYSTEM, ANONYMOUS)}  # there is an id in the log, and no account


# How a credential is shown that did it by itself, beside its id.
CREDENTIALS: Final = {"api_key": "api-key@internal", "scim_token": "scim-token@internal"}


def actor(actor_id: UUID | None, kind: str | None, account: AuditActor | None, address: str | None) -> AuditActor:
    """Who did it. `kind` says which kind of credential it was, if it was no person; `account` is what there is of a person today.

    Every request has an address, and nothing else does.
    """
    if kind is not None:
        return AuditActor(str(actor_id), CREDENTIALS[kind])
    if actor_id is not None:
        return account or GONE
    return SYSTEM if address is None else ANONYMOUS


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One entry. Times are UTC."""

    id: UUID
    org_id: UUID
    actor: AuditActor
    impersonator: AuditActor | None  # who really did it, as `actor`
    action: str
    target_type: str
    target_id: str
    address: str | None
    agent: str | None
    success: bool
    details: Mapping[str, Any]
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """Which entries: all that match everything that is not None."""

    actions: frozenset[str] | None = None
    target_type: str | None = None
    target_id: str | None = None
    actor_id: UUID | None = None
    nobody: AuditActor | None = None  # one of NOBODY


def wanted(*, action: str | None, target_type: Target | None, target_id: str | None, actor_id: str | None) -> AuditFilter | None:
    """The entries that these parameters ask for, or None if there cannot be any (decisions, points 13, 227, 230 and 231).

    Raises TargetTypeRequired.
    """
    if target_id is not None and target_type is None:
        raise TargetTypeRequired
    by, nobody = (parse_id(actor_id), NOBODY.get(actor_id)) if actor_id is not None else (None, None)
    if actor_id is not None and by is None and nobody is None:
        return None
    if action is None and target_type not in (Target.DOMAIN, Target.BRANDING):
        return AuditFilter(target_type=target_type, target_id=target_id, actor_id=by, nobody=nobody)
    # What an action is about is known, so the actions alone say which entries, as long as no id has to be looked for.
    kinds = [kind for kind in AUDIT_ACTIONS.values() if action in (None, kind.name) and target_type in (None, *_found_as(kind))]
    if not kinds:
        return None
    written = kinds[0].target if target_id is not None else None
    actions = frozenset(kind.name for kind in kinds)
    return AuditFilter(actions=actions, target_type=written, target_id=target_id, actor_id=by, nobody=nobody)


def _found_as(kind: EventKind) -> tuple[Target, ...]:
    area = kind.name.partition(".")[0]
    return (kind.target, Target(area)) if area in (Target.DOMAIN, Target.BRANDING) else (kind.target,)


def shown(entry: AuditEntry) -> dict[str, Any]:
    """An entry as it is shown (organizations.md section 2.8), with ids and times as they are."""
    impersonator = {} if entry.impersonator is None else {"impersonator": _person(entry.impersonator)}
    return {
        "id": entry.id,
        "org_id": entry.org_id,
        "actor": {**_person(entry.actor), "is_platform_owner": entry.actor.is_platform_owner},
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
