"""The pages for people that a connection knows, and for the groups that it gives."""

from typing import Any, Final
from uuid import UUID

from quart import Blueprint, Response

from core.federation.connections import connections, links, mapped_groups
from core.kernel.page_paths import IDENTITIES_PATH
from core.kernel.roles import Capability
from core.tenancy import groups
from entrypoints.http.api.federation.connections.connections import CONNECTION as API
from entrypoints.http.api.federation.connections.people import ConnectionGroupRequest, ConnectionPeopleQuery
from entrypoints.http.base.context import acting_member, ports, signed_in
from entrypoints.http.edge.access import ACTS_ON_ME, BY_PEOPLE, GIVES, member_page, page_session
from entrypoints.http.edge.openapi import refuses
from entrypoints.http.pages.console import console_page, may, neighbors, redirect_with_notice, shows
from entrypoints.http.pages.console_forms import Form, accepts, on_refusal, serves_form
from entrypoints.http.pages.federation.connections.values import ONE, path_of
from entrypoints.http.pages.form_values import to_model, to_optional

routes = Blueprint("connection_people_pages", __name__)

PEOPLE: Final = f"{ONE}/people"


async def _people_values(connection_slug: str, query: ConnectionPeopleQuery) -> dict[str, Any]:
    details = await connections.find(ports(), acting_member(), connection_slug)
    found = await links.list_page(ports(), acting_member(), connection_slug, query.page_request(), search=query.search)
    return {
        "connection": details.connection,
        "path": path_of(connection_slug),
        "list_path": path_of(),
        "people": found.items,
        "query": query,
        **neighbors(query, found.total),
    }


async def _first_page_values(_: Form, connection_slug: str, user_id: UUID) -> dict[str, Any]:
    return await _people_values(connection_slug, ConnectionPeopleQuery())


@routes.get(PEOPLE)
@member_page(Capability.INTEGRATIONS_MANAGE)
@shows(f"GET {API}/people", f"DELETE {API}/people/<user_id>")
async def show_people(org_slug: str, connection_slug: str, query_args: ConnectionPeopleQuery) -> Response:
    """List the users that a connection knows."""
    return await console_page("federation/connection_people.html", **await _people_values(connection_slug, query_args))


@routes.post(f"{PEOPLE}/<user_id>/unlink")
@member_page(Capability.INTEGRATIONS_MANAGE, GIVES)
@accepts(f"DELETE {API}/people/<user_id>")
@on_refusal("federation/connection_people.html", _first_page_values)
async def unlink(org_slug: str, connection_slug: str, user_id: UUID, form: Form) -> Response:
    """Unlink a user from a connection."""
    await links.remove(ports(), acting_member(), connection_slug, user_id)
    return redirect_with_notice("connection-person-unlinked", path_of(f"{connection_slug}/people"))


# The groups


async def _group_values(form: Form, connection_slug: str, **_: object) -> dict[str, Any]:
    details = await connections.find(ports(), acting_member(), connection_slug)
    may_add = may(Capability.GROUPS_MANAGE) and may(Capability.MEMBERS_VIEW)
    shown = await groups.list_all(ports(), acting_member()) if may_add else []
    return {
        "connection": details.connection,
        "path": path_of(connection_slug),
        "list_path": path_of(),
        "mapped": await mapped_groups.list_all(ports(), acting_member(), connection_slug),
        "groups": [(str(each.id), each.name) for each in shown if each.directory is None],
        "may_add": may_add,
        "may_remove": may(Capability.GROUPS_MANAGE),
        "typed": form,
    }


@serves_form(routes, f"{ONE}/groups", f"GET {API}/groups", f"POST {API}/groups", f"DELETE {API}/groups/<mapping_id>")
@member_page(Capability.INTEGRATIONS_MANAGE, BY_PEOPLE)
@accepts(f"POST {API}/groups")
@refuses(404, 409)
@on_refusal("federation/connection_groups.html", _group_values)
async def add_group(org_slug: str, connection_slug: str, form: Form) -> Response:
    """Let a connection give a group."""
    data = to_model(ConnectionGroupRequest, form, {"value": to_optional})
    await mapped_groups.add(ports(), acting_member(), connection_slug, data.value, data.group_id)
    return redirect_with_notice("connection-group-added", path_of(f"{connection_slug}/groups"))


@routes.post(f"{ONE}/groups/<mapping_id>/remove")
@member_page(Capability.INTEGRATIONS_MANAGE, BY_PEOPLE)
@accepts(f"DELETE {API}/groups/<mapping_id>")
@refuses(409)
async def remove_group(org_slug: str, connection_slug: str, mapping_id: UUID) -> Response:
    """Let a connection give a group no longer."""
    await mapped_groups.remove(ports(), acting_member(), connection_slug, mapping_id)
    return redirect_with_notice("connection-group-removed", path_of(f"{connection_slug}/groups"))


# The user's own account


@routes.post("/app/account/identities/connections/<connection_id>/unlink")
@page_session(ACTS_ON_ME)
@accepts("DELETE /api/user/connections/<connection_id>")
async def unlink_connection(connection_id: UUID) -> Response:
    """Unlink your account from an organization's connection.

    You stay a member of the organization.
    """
    await links.remove_own(ports(), signed_in(), connection_id)
    return redirect_with_notice("connection-unlinked", IDENTITIES_PATH)
