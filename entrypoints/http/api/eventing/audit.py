"""The audit log of an organization (organizations.md section 4.9; decisions, points 226 to 232)."""

from typing import Any
from uuid import UUID

from quart import Blueprint
from quart_schema import validate_querystring, validate_response

from core.eventing import audit, audit_rules
from core.kernel.event_catalog import AUDIT_ACTIONS, Target
from core.kernel.principals import Capability
from entrypoints.http.edge.access import member
from entrypoints.http.edge.bodies import Shown, Text, Timestamp
from entrypoints.http.edge.context import acting_member, ports
from entrypoints.http.edge.openapi import refuses
from entrypoints.http.edge.queries import PageQuery, Pagination, pagination

routes = Blueprint("audit", __name__)


class Actor(Shown):
    """Who did it. Not an account: `system`, a background job; `anonymous`, somebody not signed in; `unknown`, whose account is gone."""

    id: str
    email: str
    is_platform_owner: bool


class AuditEntry(Shown):
    """What happened (organizations.md section 2.8). `details` depend on the action; those of what was done by somebody who was
    impersonating the actor name that person as `impersonator`."""

    id: UUID
    org_id: UUID
    actor: Actor
    action: str
    target_type: str
    target_id: str
    ip_address: str | None
    user_agent: str | None
    success: bool
    details: dict[str, Any]
    created_at: Timestamp


class AuditLog(Shown):
    """A page of the log, the newest entry first."""

    logs: list[AuditEntry]
    pagination: Pagination


class AuditQuery(PageQuery):
    """Which entries; `target_id` goes with `target_type` only."""

    action: Text | None = None
    target_type: Target | None = None
    target_id: Text | None = None
    actor_id: Text | None = None


@routes.get("/api/organizations/<org_slug>/audit-log")
@member(Capability.AUDIT_VIEW)
@refuses(400)
@validate_querystring(AuditQuery)
@validate_response(AuditLog)
async def entries(org_slug: str, query_args: AuditQuery) -> AuditLog:
    """What happened in the organization."""
    wanted = audit_rules.wanted(
        action=query_args.action, target_type=query_args.target_type, target_id=query_args.target_id, actor_id=query_args.actor_id
    )
    page = query_args.wanted()
    found = await audit.listed(ports(), acting_member(), wanted, page)
    return AuditLog(logs=[AuditEntry(**audit_rules.shown(entry)) for entry in found.items], pagination=pagination(page, found.total))


class EventType(Shown):
    """Something that can happen: its name, its name for people, and what it belongs to."""

    value: str
    label: str
    category: str


@routes.get("/api/organizations/<org_slug>/audit-log/event-types")
@member(Capability.AUDIT_VIEW)
@validate_response(list[EventType])
async def event_types(org_slug: str) -> list[EventType]:
    """What the log can hold."""
    return [EventType(value=kind.name, label=kind.label, category=kind.category) for kind in AUDIT_ACTIONS.values()]
