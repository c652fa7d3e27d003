"""The pages for people that a connection knows, and for the groups that it gives."""

from typing import Any, Final
from uuid import UUID

from quart import Blueprint, Response

from core.federation.connections import connections, links, mapped_groups
from core.kernel.page_paths import IDENTITIES_PATH
from core.kernel.roles import Capability
from core.tenancy import groups
from entrypoints.http import kit
from entrypoints.http.api.federation.connections import people
from entrypoints.http.api.federation.connections.connections import CONNECTION as API
from entrypoints.http.pages import console, console_forms, form_values
from entrypoints.http.pages.federation.connections.values import ONE, path_of

routes = Blueprint("connection_people_pages", __name__)

PEOPLE: Final = f"{ONE}/people"


async def _people_values(connection_slug: str, query: people.ConnectionPeopleQuery) -> dict[str, Any]:
    details = await connections.find(kit.ports(), kit.acting_member(), connection_slug)
    found = await links.list_page(kit.ports(), kit.acting_member(), connection_slug, query.page_request(), search=query.search)
    return {
        "connection": details.connection,
        "path": path_of(connection_slug),
        "list_path": path_of(),
        "people": found.items,
        "query": query,
        **console.neighbors(query, found.total),
    }


async def _first_page_values(_: console_forms.Form, connection_slug: str, user_id: UUID) -> dict[str, Any]:
    return await _people_values(connection_slug, people.ConnectionPeopleQuery())


@routes.get(PEOPLE)
@kit.member_page(Capability.INTEGRATIONS_MANAGE)
@console.shows(f"GET {API}/people", f"DELETE {API}/people/<user_id>")
async def show_people(org_slug: str, connection_slug: str, query_args: people.ConnectionPeopleQuery) -> Response:
    """List the users that a connection knows."""
    return await console.console_page("federation/connection_people.html", **await _people_values(connection_slug, query_args))


@routes.post(f"{PEOPLE}/<user_id>/unlink")
@kit.member_page(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@console_forms.accepts(f"DELETE {API}/people/<user_id>")
@console_forms.on_refusal("federation/connection_people.html", _first_page_values)
async def unlink(org_slug: str, connection_slug: str, user_id: UUID, form: console_forms.Form) -> Response:
    """Unlink a user from a connection."""
    await links.remove(kit.ports(), kit.acting_member(), connection_slug, user_id)
    return console.redirect_with_notice("connection-person-unlinked", path_of(f"{connection_slug}/people"))


# The groups


async def _group_values(form: console_forms.Form, connection_slug: str, **_: object) -> dict[str, Any]:
    details = await connections.find(kit.ports(), kit.acting_member(), connection_slug)
    may_add = console.may(Capability.GROUPS_MANAGE) and console.may(Capability.MEMBERS_VIEW)
    shown = await groups.list_all(kit.ports(), kit.acting_member()) if may_add else []
    return {
        "connection": details.connection,
        "path": path_of(connection_slug),
        "list_path": path_of(),
        "mapped": await mapped_groups.list_all(kit.ports(), kit.acting_member(), connection_slug),
        "groups": [(str(each.id), each.name) for each in shown if each.directory is None],
        "may_add": may_add,
        "may_remove": console.may(Capability.GROUPS_MANAGE),
        "typed": form,
    }


@console_forms.serves_form(routes, f"{ONE}/groups", f"GET {API}/groups", f"POST {API}/groups", f"DELETE {API}/groups/<mapping_id>")
@kit.member_page(Capability.INTEGRATIONS_MANAGE, kit.BY_PEOPLE)
@console_forms.accepts(f"POST {API}/groups")
@kit.refuses(404, 409)
@console_forms.on_refusal("federation/connection_groups.html", _group_values)
async def add_group(org_slug: str, connection_slug: str, form: console_forms.Form) -> Response:
    """Let a connection give a group."""
    data = form_values.to_model(people.ConnectionGroupRequest, form, {"value": form_values.to_optional})
    await mapped_groups.add(kit.ports(), kit.acting_member(), connection_slug, data.value, data.group_id)
    return console.redirect_with_notice("connection-group-added", path_of(f"{connection_slug}/groups"))


@routes.post(f"{ONE}/groups/<mapping_id>/remove")
@kit.member_page(Capability.INTEGRATIONS_MANAGE, kit.BY_PEOPLE)
@console_forms.accepts(f"DELETE {API}/groups/<mapping_id>")
@kit.refuses(409)
async def remove_group(org_slug: str, connection_slug: str, mapping_id: UUID) -> Response:
    """Let a connection give a group no longer."""
    await mapped_groups.remove(kit.ports(), kit.acting_member(), connection_slug, mapping_id)
    return console.redirect_with_notice("connection-group-removed", path_of(f"{connection_slug}/groups"))


# The user's own account


@routes.post("/app/account/identities/connections/<connection_id>/unlink")
@kit.page_session(kit.ACTS_ON_ME)
@console_forms.accepts("DELETE /api/user/connections/<connection_id>")
async def unlink_connection(connection_id: UUID) -> Response:
    """Unlink your account from an organization's connection."""
    await links.remove_own(kit.ports(), kit.signed_in(), connection_id)
    return console.redirect_with_notice("connection-unlinked", IDENTITIES_PATH)
