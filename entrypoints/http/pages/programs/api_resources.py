"""The pages for API resources: the list, a resource with its settings, its users, and the applications that may ask for it."""

from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from quart import Blueprint, Response

from core.applications import services
from core.applications.model.users import AssigneeNotFound
from core.kernel import values
from core.kernel.access import require_view
from core.kernel.roles import Capability
from core.programs import api_resources, credentials
from core.programs.model import api_resources as model
from core.programs.model.api_resources import ApiResource, ResourceAssignment
from core.tenancy.model import groups
from entrypoints.http import kit
from entrypoints.http.api.programs.api_resources import (
    ApiResourceAccessRequest,
    ApiResourceAccessResponse,
    ApiResourceRequest,
    ApiResourceUpdateRequest,
    to_changes,
    to_scopes,
)
from entrypoints.http.api.tenancy import assignments
from entrypoints.http.pages import console, console_forms, form_values
from entrypoints.http.pages.applications.access import POLICIES
from entrypoints.http.pages.assigned_groups import assigned_group_values
from entrypoints.http.pages.programs import credential_forms

routes = Blueprint("api_resource_pages", __name__)

LIST: Final = "/app/organizations/<org_slug>/api-resources"
ONE: Final = f"{LIST}/<resource_id>"
API: Final = "/api/organizations/<org_slug>/api-resources"
API_OF_ONE: Final = f"{API}/<resource_id>"
FIELDS: Final[console_forms.Fields] = {
    model.IdentifierInvalid: "identifier",
    model.IdentifierUrnInvalid: "identifier",
    model.IdentifierReserved: "identifier",
    model.IdentifierHostNotVerified: "identifier",
    model.IdentifierTaken: "identifier",
    model.ResourceScopesInvalid: "scopes",
    model.ResourceScopeReserved: "scopes",
    model.ImpliedScopeInvalid: "implied",
    model.ResourceTokenSecondsInvalid: "token_seconds",
    AssigneeNotFound: "email",
    groups.OrganizationGroupNotFound: "group",
    model.OwnScopeUnknown: "scopes",
    model.PublicClientHasNoScopes: "scopes",
    model.ResourceClientNotFound: "client_id",
}
LIFETIMES: Final = [("60", "1 minute"), ("300", "5 minutes"), ("900", "15 minutes"), ("1800", "30 minutes"), ("3600", "1 hour")]
SCOPE: Final = "scope:"  # the checkbox name for a scope begins with this


def _path(resource_id: UUID, below: str = "") -> str:
    return console.organization_path(f"/api-resources/{resource_id}{below}")


def resource_values(resource: ApiResource) -> dict[str, Any]:
    """Return the template values that all pages about an API resource share."""
    require_view(kit.acting_member(), Capability.RESOURCES_VIEW)
    return {"resource": resource, "path": _path(resource.id), "list_path": console.organization_path("/api-resources")}


def _to_scopes(form: console_forms.Form) -> list[dict[str, Any]]:
    """Return the scopes in a form's lines: a name, and after a space its description.

    In a second field, a name is followed by the scopes that it implies.
    """
    implications = {name: names for name, *names in (line.split() for line in form_values.to_lines(form.get("implied", "")))}
    scopes: list[dict[str, Any]] = []
    text = form.get("scopes", "")
    for line in form_values.to_lines(text):
        name, _, description = line.partition(" ")
        if not description.strip():
            raise form_values.FieldInvalid(f"Say what the scope {name} allows, after a space.", "scopes")
        scopes.append({"name": name, "description": description.strip(), "implies": implications.pop(name, [])})
    if implications:
        raise form_values.FieldInvalid(
            f"The API has no scope {next(iter(implications))}. Begin each line with one of its scopes.", "implied"
        )
    return scopes


def _lifetimes(seconds: str) -> list[tuple[str, str]]:
    """Return the options for the tokens' lifetime, also for a lifetime that the API has set."""
    if seconds in dict(LIFETIMES) or not isinstance(form_values.to_number(seconds), int):
        return LIFETIMES
    minutes, rest = divmod(int(seconds), 60)
    return [*LIFETIMES, (seconds, f"{seconds} seconds" if rest else f"{minutes} minutes")]


async def _form_values(typed: Mapping[str, Any]) -> dict[str, Any]:
    seconds = str(typed.get("token_seconds") or model.DEFAULT_TOKEN_SECONDS)
    return {
        "typed": {**typed, "token_seconds": seconds},
        "lifetimes": _lifetimes(seconds),
        "list_path": console.organization_path("/api-resources"),
        "org_id": kit.acting_member().acts_in.id,
    }


def _stored(resource: ApiResource) -> dict[str, Any]:
    lines = [f"{scope.name} {scope.description}" for scope in resource.scopes]
    implied = [" ".join((name, *names)) for name, names in resource.implications.items()]
    return {
        "name": resource.name,
        "scopes": "\n".join(lines),
        "implied": "\n".join(implied),
        "token_seconds": str(resource.token_seconds),
    }


@routes.get(LIST)
@kit.member_page(Capability.RESOURCES_VIEW)
@console.shows(f"GET {API}")
async def show_resources(org_slug: str) -> Response:
    """List an organization's API resources."""
    listed = await api_resources.list_resources(kit.ports(), kit.acting_member())
    return await console.console_page("programs/api_resources.html", resources=listed, path=console.organization_path("/api-resources"))


@console_forms.serves_form(routes, f"{LIST}/new")
@kit.member_page(Capability.RESOURCES_MANAGE, kit.GIVES)
@console_forms.accepts(f"POST {API}")
@console_forms.once(LIST, "Open API resources", "The API resource is in the list.")
@console_forms.on_refusal("programs/new_api_resource.html", _form_values, FIELDS)
async def create(org_slug: str, form: console_forms.Form) -> Response:
    """Create an API resource."""
    data = form_values.to_model(ApiResourceRequest, form, {"scopes": lambda _: _to_scopes(form), "token_seconds": form_values.to_number})
    scopes = to_scopes(data.scopes)
    resource = await api_resources.create(
        console_forms.ports_once(), kit.acting_member(), data.identifier, data.name, scopes, data.token_seconds
    )
    return console.redirect_with_notice("resource-created", _path(resource.id, "/applications"))


async def _find(resource_id: UUID) -> ApiResource:
    return await api_resources.find(kit.ports(), kit.acting_member(), resource_id)


async def _settings(typed: console_forms.Form, resource_id: UUID) -> dict[str, Any]:
    resource = await _find(resource_id)
    return {**resource_values(resource), **await _form_values({**_stored(resource), **typed})}


@console_forms.serves_form(
    routes, ONE, f"GET {API_OF_ONE}", f"PATCH {API_OF_ONE}", f"DELETE {API_OF_ONE}", opens=kit.member_page(Capability.RESOURCES_VIEW)
)
@kit.member_page(Capability.RESOURCES_MANAGE, kit.GIVES)
@console_forms.accepts(f"PATCH {API_OF_ONE}")
@console_forms.on_refusal("programs/api_resource.html", _settings, FIELDS)
async def change(org_slug: str, resource_id: UUID, form: console_forms.Form) -> Response:
    """Change an API resource."""
    data = form_values.to_model(
        ApiResourceUpdateRequest, form, {"scopes": lambda _: _to_scopes(form), "token_seconds": form_values.to_number}
    )
    await api_resources.update(kit.ports(), kit.acting_member(), resource_id, to_changes(data))
    return console.redirect_with_notice("resource-saved", _path(resource_id))


@routes.post(f"{ONE}/delete")
@kit.member_page(Capability.RESOURCES_MANAGE, kit.GIVES)
@console_forms.accepts(f"DELETE {API_OF_ONE}")
@console_forms.on_refusal("programs/api_resource.html", _settings)
async def delete(org_slug: str, resource_id: UUID, form: console_forms.Form) -> Response:
    """Delete an API resource."""
    resource = await _find(resource_id)
    console_forms.check_typed_name(form, resource.name)
    await api_resources.delete(kit.ports(), kit.acting_member(), resource.id)
    return console.redirect_with_notice("resource-deleted", console.organization_path("/api-resources"))


# The users that applications get tokens for


async def _access_values(
    typed: console_forms.Form, resource_id: UUID, query_args: assignments.AssignmentsQuery | None = None
) -> dict[str, Any]:
    resource, query = await _find(resource_id), query_args or assignments.AssignmentsQuery()
    listed: values.PageResult[ResourceAssignment] = values.PageResult([], 0)
    assigned: Sequence[groups.AssignedGroup] = []
    if console.may(Capability.END_USERS_VIEW):
        assigned = await api_resources.list_groups(kit.ports(), kit.acting_member(), resource.id)
        listed = await api_resources.list_assignments(
            kit.ports(), kit.acting_member(), resource.id, query.page_request(), search=query.search
        )
    console.show_document(ApiResourceAccessResponse(policy=resource.policy))
    return {
        **resource_values(resource),
        "typed": typed,
        **await assigned_group_values(assigned),
        "policies": POLICIES,
        "policy": resource.policy.value,
        "assignments": listed.items,
        "query": query,
        **console.neighbors(query, listed.total),
    }


@console_forms.serves_form(
    routes,
    f"{ONE}/access",
    f"GET {API_OF_ONE}/assignments",
    f"GET {API_OF_ONE}/access",
    f"PUT {API_OF_ONE}/access",
    f"POST {API_OF_ONE}/assignments",
    f"PUT {API_OF_ONE}/assignments/<user_id>",
    f"DELETE {API_OF_ONE}/assignments/<user_id>",
    f"GET {API_OF_ONE}/groups",
    f"PUT {API_OF_ONE}/groups/<group_id>",
    f"DELETE {API_OF_ONE}/groups/<group_id>",
    opens=kit.member_page(Capability.RESOURCES_VIEW),
    query=assignments.AssignmentsQuery,
)
@kit.member_page(Capability.RESOURCES_MANAGE, kit.GIVES)
@console_forms.accepts(f"PUT {API_OF_ONE}/access")
@console_forms.on_refusal("programs/api_resource_access.html", _access_values, FIELDS)
async def change_policy(org_slug: str, resource_id: UUID, form: console_forms.Form) -> Response:
    """Change the users that applications get tokens for."""
    await api_resources.save_policy(
        kit.ports(), kit.acting_member(), resource_id, form_values.to_model(ApiResourceAccessRequest, form).policy
    )
    return console.redirect_with_notice("access-saved", _path(resource_id, "/access"))


@routes.post(f"{ONE}/assignments")
@kit.member_page(Capability.RESOURCES_MANAGE, kit.GIVES)
@console_forms.accepts(f"POST {API_OF_ONE}/assignments", page=f"{ONE}/access")
@console_forms.on_refusal("programs/api_resource_access.html", _access_values, FIELDS)
async def assign(org_slug: str, resource_id: UUID, form: console_forms.Form) -> Response:
    """Assign a user to an API resource."""
    await api_resources.assign_by_email(
        kit.ports(), kit.acting_member(), resource_id, values.Email(form_values.to_model(assignments.AssignmentRequest, form).email)
    )
    return console.redirect_with_notice("user-assigned", _path(resource_id, "/access"))


@routes.post(f"{ONE}/assignments/<user_id>/remove")
@kit.member_page(Capability.RESOURCES_MANAGE, kit.GIVES)
@console_forms.accepts(f"DELETE {API_OF_ONE}/assignments/<user_id>", page=f"{ONE}/access")
async def unassign(org_slug: str, resource_id: UUID, user_id: UUID) -> Response:
    """End a user's assignment."""
    await api_resources.unassign(kit.ports(), kit.acting_member(), resource_id, user_id)
    return console.redirect_with_notice("assignment-removed", _path(resource_id, "/access"))


@routes.post(f"{ONE}/groups")
@kit.member_page(Capability.RESOURCES_MANAGE, kit.GIVES)
@console_forms.accepts(f"PUT {API_OF_ONE}/groups/<group_id>", page=f"{ONE}/access")
@console_forms.on_refusal("programs/api_resource_access.html", _access_values, FIELDS)
async def assign_group(org_slug: str, resource_id: UUID, form: console_forms.Form) -> Response:
    """Assign a group to an API resource."""
    await api_resources.assign_group(kit.ports(), kit.acting_member(), resource_id, kit.path_id(form.get("group", "")))
    return console.redirect_with_notice("group-assigned", _path(resource_id, "/access"))


@routes.post(f"{ONE}/groups/<group_id>/remove")
@kit.member_page(Capability.RESOURCES_MANAGE, kit.GIVES)
@console_forms.accepts(f"DELETE {API_OF_ONE}/groups/<group_id>", page=f"{ONE}/access")
async def unassign_group(org_slug: str, resource_id: UUID, group_id: UUID) -> Response:
    """End a group's assignment."""
    await api_resources.unassign_group(kit.ports(), kit.acting_member(), resource_id, group_id)
    return console.redirect_with_notice("group-unassigned", _path(resource_id, "/access"))


# The applications that may ask for it


async def _client_values(typed: console_forms.Form, resource_id: UUID, query_args: kit.PageQuery | None = None) -> dict[str, Any]:
    resource, query = await _find(resource_id), query_args or kit.PageQuery()
    listed = await api_resources.list_clients(kit.ports(), kit.acting_member(), resource.id, query.page_request())
    batches, _ = await services.list_services(kit.ports(), kit.acting_member(), None, None, 0)
    applications = [(str(each.service.client_id), each.service.name) async for batch in batches for each in batch]
    return {
        **resource_values(resource),
        "typed": typed,
        "clients": listed.items,
        "applications": sorted(applications, key=lambda each: each[1].lower()),
        **console.neighbors(query, listed.total),
    }


@console_forms.serves_form(
    routes,
    f"{ONE}/applications",
    f"GET {API_OF_ONE}/clients",
    f"PUT {API_OF_ONE}/clients/<client_id>",
    f"DELETE {API_OF_ONE}/clients/<client_id>",
    opens=kit.member_page(Capability.RESOURCES_VIEW),
    query=kit.PageQuery,
)
@kit.member_page(Capability.RESOURCES_MANAGE, kit.GIVES)
@console_forms.accepts(f"PUT {API_OF_ONE}/clients/<client_id>")
@console_forms.on_refusal("programs/api_resource_clients.html", _client_values, FIELDS)
async def add_client(org_slug: str, resource_id: UUID, form: console_forms.Form) -> Response:
    """Let an application ask for an API resource, with the chosen scopes for itself."""
    await api_resources.save_client(
        kit.ports(), kit.acting_member(), resource_id, kit.path_id(form.get("client_id", "")), form_values.checked(form, SCOPE)
    )
    return console.redirect_with_notice("resource-client-saved", _path(resource_id, "/applications"))


async def _one_client_values(typed: console_forms.Form, resource_id: UUID, client_id: UUID) -> dict[str, Any]:
    resource = await _find(resource_id)
    client = await api_resources.find_client(kit.ports(), kit.acting_member(), resource.id, client_id)
    return {"client": client, "chosen": form_values.checked(typed, SCOPE) if typed else client.scopes, **resource_values(resource)}


@console_forms.serves_form(routes, f"{ONE}/applications/<client_id>")
@kit.member_page(Capability.RESOURCES_MANAGE, kit.GIVES)
@console_forms.accepts(f"PUT {API_OF_ONE}/clients/<client_id>")
@console_forms.on_refusal("programs/api_resource_client.html", _one_client_values, FIELDS)
async def change_client(org_slug: str, resource_id: UUID, client_id: UUID, form: console_forms.Form) -> Response:
    """Change the scopes that an application gets for itself."""
    client = await api_resources.find_client(kit.ports(), kit.acting_member(), resource_id, client_id)
    await api_resources.save_client(kit.ports(), kit.acting_member(), resource_id, client.client_id, form_values.checked(form, SCOPE))
    return console.redirect_with_notice("resource-client-saved", _path(resource_id, "/applications"))


@routes.post(f"{ONE}/applications/<client_id>/remove")
@kit.member_page(Capability.RESOURCES_MANAGE, kit.GIVES)
@console_forms.accepts(f"DELETE {API_OF_ONE}/clients/<client_id>", page=f"{ONE}/applications")
async def remove_client(org_slug: str, resource_id: UUID, client_id: UUID) -> Response:
    """Forbid an application to ask for an API resource."""
    await api_resources.remove_client(kit.ports(), kit.acting_member(), resource_id, client_id)
    return console.redirect_with_notice("resource-client-removed", _path(resource_id, "/applications"))


async def _credential_values(resource_id: UUID) -> dict[str, Any]:
    return resource_values(await _find(resource_id))


credential_forms.declare(
    routes,
    f"{ONE}/credentials",
    f"{API_OF_ONE}/credentials",
    kit.member_page(Capability.RESOURCES_VIEW),
    kit.member_page(Capability.RESOURCES_MANAGE, kit.GIVES),
    template="programs/api_resource_credentials.html",
    values=_credential_values,
    use_cases=(credentials.list_of_resource, credentials.create_for_resource, credentials.revoke_of_resource),
)
