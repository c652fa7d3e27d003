"""The pages for an application's permissions and roles: lists, forms, and the document with its dry run."""

import json
from contextlib import suppress
from typing import Any, Final

from quart import Blueprint, Response

from core.applications import authorization, services
from core.applications.model import authorization as model
from core.applications.model.authorization import AuthorizationDocument, AuthorizationResult, DeclaredPermission
from core.applications.model.services import Service
from core.kernel.access import require_view
from core.kernel.errors import Refusal
from core.kernel.roles import Capability
from entrypoints.http import kit
from entrypoints.http.api.applications.authorization import (
    AuthorizationRequest,
    DeclaredPermissionRequest,
    DeclaredPermissionUpdateRequest,
    RoleDefinitionRequest,
    RoleDefinitionUpdateRequest,
    to_authorization_response,
)
from entrypoints.http.edge import validation
from entrypoints.http.pages import consequences, console, console_forms, form_values
from entrypoints.http.pages.applications.applications import APPLICATION, SERVICE, application_path, application_values

routes = Blueprint("authorization_pages", __name__)

PAGE: Final = f"{APPLICATION}/authorization"
ROLE: Final = f"{PAGE}/roles/<role_slug>"
PERMISSIONS: Final = f"{PAGE}/permissions"
PERMISSION: Final = f"{PERMISSIONS}/<permission_name>"
DOCUMENT: Final = f"{PAGE}/document"
API: Final = f"{SERVICE}/authorization"
ROLE_API: Final = f"{SERVICE}/roles/<role_slug>"
PERMISSION_API: Final = f"{SERVICE}/permissions/<permission_name>"
BOX: Final = "permission:"  # begins the checkbox name for a permission
MOST_BOXES: Final = 80  # with more permissions, a role has a text area
ROLE_FIELDS: Final[console_forms.Fields] = {
    **dict.fromkeys((model.ServiceRoleSlugInvalid, model.ServiceRoleExists, model.SlugOfOrganizationRole), "slug"),
    **dict.fromkeys((model.PermissionNotDeclared, model.ListedTwice), "permissions"),
}
PERMISSION_FIELDS: Final[console_forms.Fields] = dict.fromkeys((model.PermissionNameInvalid, model.PermissionExists), "name")
DOCUMENT_FIELDS: Final[console_forms.Fields] = dict.fromkeys(
    (
        *(model.PermissionNameInvalid, model.ServiceRoleSlugInvalid, model.ListedTwice, model.PermissionNotDeclared),
        *(model.TooManyDeclaredPermissions, model.TooManyServiceRoles, model.SlugOfOrganizationRole),
    ),
    "document",
)


def authorization_path(service_slug: str, below: str = "") -> str:
    """Return the path to an application's roles, or to a page below."""
    return f"{application_path(service_slug)}/authorization{below}"


@routes.get(PAGE)
@kit.member_page(Capability.SERVICES_VIEW)
@console.shows(f"GET {SERVICE}/roles")
async def show_roles(org_slug: str, service_slug: str) -> Response:
    """List an application's roles, with how many users have them."""
    service = await _find_service(service_slug)
    found, counts = await authorization.get_with_counts(kit.ports(), kit.acting_member(), service_slug)
    return await console.console_page(
        "applications/authorization.html",
        roles=found.document.roles,
        counts=counts,
        no_holders=model.NO_HOLDERS,
        permission_count=len(found.document.permissions),
        **application_values(service),
    )


# Roles


async def _find_service(service_slug: str) -> Service:
    """Return the application with the permissions and roles for these pages."""
    require_view(kit.acting_member(), Capability.SERVICES_VIEW)
    return await services.find(kit.ports(), kit.acting_member(), service_slug)


async def _role_values(typed: console_forms.Form, service_slug: str, role_slug: str | None = None) -> dict[str, Any]:
    service = await _find_service(service_slug)
    declared = (await authorization.get(kit.ports(), kit.acting_member(), service_slug)).document.permissions
    role, number = None, model.NO_HOLDERS
    if role_slug is not None:
        stored, number = await authorization.find_role_with_count(kit.ports(), kit.acting_member(), service_slug, role_slug)
        role = stored.definition
    chosen = _chosen(typed) if typed else role.permissions if role else ()
    stored_fields = {"name": role.name, "description": role.description or ""} if role else {}
    return {
        "role": role,
        "holders": number,
        "permissions": declared,
        "has_boxes": len(declared) <= MOST_BOXES,
        "chosen": chosen,
        "typed": {"permissions": "\n".join(chosen), **stored_fields, **typed},
        **application_values(service),
    }


def _chosen(form: console_forms.Form) -> list[str]:
    """Return the permissions in a form: the lines in its text area, or the checked boxes."""
    return form_values.to_lines(form["permissions"]) if "permissions" in form else form_values.checked(form, BOX)


@console_forms.serves_form(routes, f"{PAGE}/new-role")
@kit.member_page(Capability.SERVICES_MANAGE, kit.GIVES)
@console_forms.accepts(f"POST {SERVICE}/roles")
@kit.refuses(409)
@console_forms.once(PAGE, "Open roles", "The role is in the list.")
@console_forms.on_refusal("applications/role.html", _role_values, ROLE_FIELDS, shown_to=Capability.SERVICES_VIEW)
async def create_role(org_slug: str, service_slug: str, form: console_forms.Form) -> Response:
    """Create a role."""
    data = form_values.to_model(RoleDefinitionRequest, form, {"permissions": lambda _: _chosen(form)})
    await authorization.create_role(console_forms.ports_once(), kit.acting_member(), service_slug, data.build())
    return console.redirect_with_notice("role-created", authorization_path(service_slug, f"/roles/{data.slug}/users"))


@console_forms.serves_form(routes, ROLE, f"GET {ROLE_API}", f"PATCH {ROLE_API}", opens=kit.member_page(Capability.SERVICES_VIEW))
@kit.member_page(Capability.SERVICES_MANAGE, kit.GIVES)
@console_forms.accepts(f"PATCH {ROLE_API}")
@console_forms.on_refusal("applications/role.html", _role_values, ROLE_FIELDS, shown_to=Capability.SERVICES_VIEW)
async def change_role(org_slug: str, service_slug: str, role_slug: str, form: console_forms.Form) -> Response:
    """Change a role. Its users get and lose the permissions at once."""
    data = form_values.to_model(
        RoleDefinitionUpdateRequest, form, {"permissions": lambda _: _chosen(form), "description": form_values.to_optional}
    )
    await authorization.update_role(
        kit.ports(),
        kit.acting_member(),
        service_slug,
        role_slug,
        name=data.name,
        description=data.description,
        permissions=tuple(data.permissions),
    )
    return console.redirect_with_notice("role-saved", authorization_path(service_slug))


async def _role_deletion(service_slug: str, role_slug: str) -> consequences.Question:
    service = await _find_service(service_slug)
    stored, number = await authorization.find_role_with_count(kit.ports(), kit.acting_member(), service_slug, role_slug)
    first = await authorization.first_holders(kit.ports(), kit.acting_member(), service_slug, [role_slug])
    effect = f"The role of {{}} is taken from {number}." if number else "No user and no group of {} has the role."
    names = [] if first is None else [*first.groups, *first.emails]
    further = number.users + number.groups - len(names)
    return consequences.Question(
        verb="Delete the role",
        target=stored.definition.name,
        consequences=(consequences.sentence(effect, service.name),),
        people=(*names, *([f"and {further:,} more"] if names and further > 0 else [])),
        button="Delete role",
        keep="Keep role",
        back=(stored.definition.name, authorization_path(service_slug, f"/roles/{role_slug}")),
    )


@consequences.asks(routes, f"{ROLE}/delete")
@kit.member_page(Capability.SERVICES_MANAGE, kit.GIVES)
@consequences.accepts_answer(f"DELETE {ROLE_API}", _role_deletion, shown_to=Capability.SERVICES_VIEW)
async def delete_role(org_slug: str, service_slug: str, role_slug: str, form: console_forms.Form) -> Response:
    """Delete a role."""
    await authorization.delete_role(kit.ports(), kit.acting_member(), service_slug, role_slug, confirmed=True)
    return console.redirect_with_notice("role-deleted", authorization_path(service_slug))


# Permissions


async def _permission_values(typed: console_forms.Form, service_slug: str) -> dict[str, Any]:
    service = await _find_service(service_slug)
    document = (await authorization.get(kit.ports(), kit.acting_member(), service_slug)).document
    return {"typed": typed, "permissions": document.permissions, **application_values(service)}


@console_forms.serves_form(
    routes, PERMISSIONS, f"GET {API}", f"POST {SERVICE}/permissions", opens=kit.member_page(Capability.SERVICES_VIEW)
)
@kit.member_page(Capability.SERVICES_MANAGE, kit.GIVES)
@console_forms.accepts(f"POST {SERVICE}/permissions")
@kit.refuses(409)
@console_forms.on_refusal("applications/permissions.html", _permission_values, PERMISSION_FIELDS, shown_to=Capability.SERVICES_VIEW)
async def declare_permission(org_slug: str, service_slug: str, form: console_forms.Form) -> Response:
    """Declare a permission."""
    data = form_values.to_model(DeclaredPermissionRequest, form)
    await authorization.declare_permission(kit.ports(), kit.acting_member(), service_slug, DeclaredPermission(data.name, data.description))
    return console.redirect_with_notice("permission-declared", authorization_path(service_slug, "/permissions"))


async def _one_permission_values(typed: console_forms.Form, service_slug: str, permission_name: str) -> dict[str, Any]:
    service = await _find_service(service_slug)
    permission = await authorization.find_permission(kit.ports(), kit.acting_member(), service_slug, permission_name)
    return {"permission": permission, "typed": typed or {"description": permission.description}, **application_values(service)}


@console_forms.serves_form(routes, PERMISSION)
@kit.member_page(Capability.SERVICES_MANAGE, kit.CHANGES)
@console_forms.accepts(f"PATCH {PERMISSION_API}")
@console_forms.on_refusal("applications/permission.html", _one_permission_values, shown_to=Capability.SERVICES_VIEW)
async def change_permission(org_slug: str, service_slug: str, permission_name: str, form: console_forms.Form) -> Response:
    """Change a permission's description."""
    data = form_values.to_model(DeclaredPermissionUpdateRequest, form, {"description": form_values.to_optional})
    await authorization.describe_permission(kit.ports(), kit.acting_member(), service_slug, permission_name, data.description)
    return console.redirect_with_notice("permission-saved", authorization_path(service_slug, "/permissions"))


async def _permission_deletion(service_slug: str, permission_name: str) -> consequences.Question:
    await _find_service(service_slug)
    await authorization.find_permission(kit.ports(), kit.acting_member(), service_slug, permission_name)
    roles = (await authorization.get(kit.ports(), kit.acting_member(), service_slug)).document.roles
    having = [role.name for role in roles if permission_name in role.permissions]
    return consequences.Question(
        verb="Remove the permission",
        target=permission_name,
        consequences=(
            *(consequences.sentence("The role {} loses it.", name) for name in having),
            *([] if having else ["No role has it."]),
        ),
        button="Remove permission",
        keep="Keep permission",
        back=("Permissions", authorization_path(service_slug, "/permissions")),
    )


@consequences.asks(routes, f"{PERMISSION}/delete")
@kit.member_page(Capability.SERVICES_MANAGE, kit.GIVES)
@consequences.accepts_answer(f"DELETE {PERMISSION_API}", _permission_deletion, shown_to=Capability.SERVICES_VIEW)
async def remove_permission(org_slug: str, service_slug: str, permission_name: str, form: console_forms.Form) -> Response:
    """Remove a permission from an application and from its roles."""
    await authorization.remove_permission(kit.ports(), kit.acting_member(), service_slug, permission_name)
    return console.redirect_with_notice("permission-removed", authorization_path(service_slug, "/permissions"))


# The document


async def _document_values(typed: console_forms.Form, service_slug: str, result: AuthorizationResult | None = None) -> dict[str, Any]:
    service = await _find_service(service_slug)
    found = await authorization.get(kit.ports(), kit.acting_member(), service_slug)
    if typed and result is None:
        with suppress(Refusal):  # so that a refused change's page has the preview and the box that confirms it
            result = await authorization.preview(
                kit.ports(), kit.acting_member(), service_slug, _to_document(typed), versions=_to_versions(typed)
            )
    document = to_authorization_response(found)
    console.show_document(document)
    text = json.dumps(document.model_dump(exclude={"version"}), indent=2, ensure_ascii=False)
    stored = {"document": text, "version": str(found.version)}
    return {"typed": {**stored, **typed}, "result": result, **application_values(service)}


def _to_document(form: console_forms.Form) -> AuthorizationDocument:
    """Return the document in a form. Raises: FieldInvalid; the errors of `AuthorizationDocument.parse`."""
    try:
        return validation.validate(AuthorizationRequest, kit.decode(form.get("document", "").encode())).build()
    except (kit.BodyInvalid, validation.FieldsInvalid) as error:
        raise form_values.FieldInvalid(str(error), "document") from None


def _to_versions(form: console_forms.Form) -> list[int]:
    version = form_values.to_version(form)
    return [] if version is None else [version]


@routes.post(f"{DOCUMENT}/preview")
@kit.member_page(Capability.SERVICES_MANAGE, kit.GIVES)
@console_forms.accepts(f"PUT {API}", answers=console_forms.answers_with("The document and its changes."))
@kit.refuses(409, 412)
@console_forms.on_refusal("applications/authorization_document.html", _document_values, DOCUMENT_FIELDS, shown_to=Capability.SERVICES_VIEW)
async def preview_document(org_slug: str, service_slug: str, form: console_forms.Form) -> Response:
    """Preview the changes that a document makes. Nothing is saved."""
    result = await authorization.preview(kit.ports(), kit.acting_member(), service_slug, _to_document(form), versions=_to_versions(form))
    return await console.console_page("applications/authorization_document.html", **await _document_values(form, service_slug, result))


@console_forms.serves_form(routes, DOCUMENT, f"PUT {API}", f"GET {API}")
@kit.member_page(Capability.SERVICES_MANAGE, kit.GIVES)
@console_forms.accepts(f"PUT {API}")
@kit.refuses(409, 412)
@console_forms.on_refusal(
    "applications/authorization_document.html",
    _document_values,
    {**DOCUMENT_FIELDS, model.ServiceRoleInUse: "confirm"},
    shown_to=Capability.SERVICES_VIEW,
)
async def replace_document(org_slug: str, service_slug: str, form: console_forms.Form) -> Response:
    """Replace all permissions and roles that an application has."""
    await authorization.replace_document(
        kit.ports(),
        kit.acting_member(),
        service_slug,
        _to_document(form),
        versions=_to_versions(form),
        confirmed=form_values.is_checked(form.get("confirm", "")),
    )
    return console.redirect_with_notice("authorization-saved", authorization_path(service_slug))
