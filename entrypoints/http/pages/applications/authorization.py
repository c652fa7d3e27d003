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
from entrypoints.http.api.applications.authorization import (
    AuthorizationRequest,
    DeclaredPermissionRequest,
    DeclaredPermissionUpdateRequest,
    RoleDefinitionRequest,
    RoleDefinitionUpdateRequest,
    to_authorization_response,
)
from entrypoints.http.base.context import acting_member, ports
from entrypoints.http.edge.access import CHANGES, GIVES, member_page
from entrypoints.http.edge.bodies import BodyInvalid, decode
from entrypoints.http.edge.openapi import refuses
from entrypoints.http.edge.validation import FieldsInvalid, validate
from entrypoints.http.pages.applications.applications import APPLICATION, SERVICE, application_path, application_values
from entrypoints.http.pages.consequences import Question, accepts_answer, asks, sentence
from entrypoints.http.pages.console import console_page, redirect_with_notice, show_document, shows
from entrypoints.http.pages.console_forms import Fields, Form, accepts, answers_with, on_refusal, once, ports_once, serves_form
from entrypoints.http.pages.form_values import FieldInvalid, checked, is_checked, to_lines, to_model, to_optional, to_version

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
ROLE_FIELDS: Final[Fields] = {
    **dict.fromkeys((model.ServiceRoleSlugInvalid, model.ServiceRoleExists, model.SlugOfOrganizationRole), "slug"),
    **dict.fromkeys((model.PermissionNotDeclared, model.ListedTwice), "permissions"),
}
PERMISSION_FIELDS: Final[Fields] = dict.fromkeys((model.PermissionNameInvalid, model.PermissionExists), "name")
DOCUMENT_FIELDS: Final[Fields] = dict.fromkeys(
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
@member_page(Capability.SERVICES_VIEW)
@shows(f"GET {SERVICE}/roles")
async def show_roles(org_slug: str, service_slug: str) -> Response:
    """List an application's roles, with how many users have them."""
    service = await _find_service(service_slug)
    found, counts = await authorization.get_with_counts(ports(), acting_member(), service_slug)
    return await console_page(
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
    require_view(acting_member(), Capability.SERVICES_VIEW)
    return await services.find(ports(), acting_member(), service_slug)


async def _role_values(typed: Form, service_slug: str, role_slug: str | None = None) -> dict[str, Any]:
    service = await _find_service(service_slug)
    declared = (await authorization.get(ports(), acting_member(), service_slug)).document.permissions
    role, number = None, model.NO_HOLDERS
    if role_slug is not None:
        stored, number = await authorization.find_role_with_count(ports(), acting_member(), service_slug, role_slug)
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


def _chosen(form: Form) -> list[str]:
    """Return the permissions in a form: the lines in its text area, or the checked boxes."""
    return to_lines(form["permissions"]) if "permissions" in form else checked(form, BOX)


@serves_form(routes, f"{PAGE}/new-role")
@member_page(Capability.SERVICES_MANAGE, GIVES)
@accepts(f"POST {SERVICE}/roles")
@refuses(409)
@once(PAGE, "Open roles", "The role is in the list.")
@on_refusal("applications/role.html", _role_values, ROLE_FIELDS, shown_to=Capability.SERVICES_VIEW)
async def create_role(org_slug: str, service_slug: str, form: Form) -> Response:
    """Create a role."""
    data = to_model(RoleDefinitionRequest, form, {"permissions": lambda _: _chosen(form)})
    await authorization.create_role(ports_once(), acting_member(), service_slug, data.build())
    return redirect_with_notice("role-created", authorization_path(service_slug, f"/roles/{data.slug}/users"))


@serves_form(routes, ROLE, f"GET {ROLE_API}", f"PATCH {ROLE_API}", opens=member_page(Capability.SERVICES_VIEW))
@member_page(Capability.SERVICES_MANAGE, GIVES)
@accepts(f"PATCH {ROLE_API}")
@on_refusal("applications/role.html", _role_values, ROLE_FIELDS, shown_to=Capability.SERVICES_VIEW)
async def change_role(org_slug: str, service_slug: str, role_slug: str, form: Form) -> Response:
    """Change a role. Its users get and lose the permissions at once."""
    data = to_model(RoleDefinitionUpdateRequest, form, {"permissions": lambda _: _chosen(form), "description": to_optional})
    await authorization.update_role(
        ports(),
        acting_member(),
        service_slug,
        role_slug,
        name=data.name,
        description=data.description,
        permissions=tuple(data.permissions),
    )
    return redirect_with_notice("role-saved", authorization_path(service_slug))


async def _role_deletion(service_slug: str, role_slug: str) -> Question:
    service = await _find_service(service_slug)
    stored, number = await authorization.find_role_with_count(ports(), acting_member(), service_slug, role_slug)
    first = await authorization.first_holders(ports(), acting_member(), service_slug, [role_slug])
    effect = f"The role of {{}} is taken from {number}." if number else "No user and no group of {} has the role."
    names = [] if first is None else [*first.groups, *first.emails]
    further = number.users + number.groups - len(names)
    return Question(
        verb="Delete the role",
        target=stored.definition.name,
        consequences=(sentence(effect, service.name),),
        people=(*names, *([f"and {further:,} more"] if names and further > 0 else [])),
        button="Delete role",
        keep="Keep role",
        back=(stored.definition.name, authorization_path(service_slug, f"/roles/{role_slug}")),
    )


@asks(routes, f"{ROLE}/delete")
@member_page(Capability.SERVICES_MANAGE, GIVES)
@accepts_answer(f"DELETE {ROLE_API}", _role_deletion, shown_to=Capability.SERVICES_VIEW)
async def delete_role(org_slug: str, service_slug: str, role_slug: str, form: Form) -> Response:
    """Delete a role."""
    await authorization.delete_role(ports(), acting_member(), service_slug, role_slug, confirmed=True)
    return redirect_with_notice("role-deleted", authorization_path(service_slug))


# Permissions


async def _permission_values(typed: Form, service_slug: str) -> dict[str, Any]:
    service = await _find_service(service_slug)
    document = (await authorization.get(ports(), acting_member(), service_slug)).document
    return {"typed": typed, "permissions": document.permissions, **application_values(service)}


@serves_form(routes, PERMISSIONS, f"GET {API}", f"POST {SERVICE}/permissions", opens=member_page(Capability.SERVICES_VIEW))
@member_page(Capability.SERVICES_MANAGE, GIVES)
@accepts(f"POST {SERVICE}/permissions")
@refuses(409)
@on_refusal("applications/permissions.html", _permission_values, PERMISSION_FIELDS, shown_to=Capability.SERVICES_VIEW)
async def declare_permission(org_slug: str, service_slug: str, form: Form) -> Response:
    """Declare a permission."""
    data = to_model(DeclaredPermissionRequest, form)
    await authorization.declare_permission(ports(), acting_member(), service_slug, DeclaredPermission(data.name, data.description))
    return redirect_with_notice("permission-declared", authorization_path(service_slug, "/permissions"))


async def _one_permission_values(typed: Form, service_slug: str, permission_name: str) -> dict[str, Any]:
    service = await _find_service(service_slug)
    permission = await authorization.find_permission(ports(), acting_member(), service_slug, permission_name)
    return {"permission": permission, "typed": typed or {"description": permission.description}, **application_values(service)}


@serves_form(routes, PERMISSION)
@member_page(Capability.SERVICES_MANAGE, CHANGES)
@accepts(f"PATCH {PERMISSION_API}")
@on_refusal("applications/permission.html", _one_permission_values, shown_to=Capability.SERVICES_VIEW)
async def change_permission(org_slug: str, service_slug: str, permission_name: str, form: Form) -> Response:
    """Change a permission's description."""
    data = to_model(DeclaredPermissionUpdateRequest, form, {"description": to_optional})
    await authorization.describe_permission(ports(), acting_member(), service_slug, permission_name, data.description)
    return redirect_with_notice("permission-saved", authorization_path(service_slug, "/permissions"))


async def _permission_deletion(service_slug: str, permission_name: str) -> Question:
    await _find_service(service_slug)
    await authorization.find_permission(ports(), acting_member(), service_slug, permission_name)
    roles = (await authorization.get(ports(), acting_member(), service_slug)).document.roles
    having = [role.name for role in roles if permission_name in role.permissions]
    return Question(
        verb="Remove the permission",
        target=permission_name,
        consequences=(
            *(sentence("The role {} loses it.", name) for name in having),
            *([] if having else ["No role has it."]),
        ),
        button="Remove permission",
        keep="Keep permission",
        back=("Permissions", authorization_path(service_slug, "/permissions")),
    )


@asks(routes, f"{PERMISSION}/delete")
@member_page(Capability.SERVICES_MANAGE, GIVES)
@accepts_answer(f"DELETE {PERMISSION_API}", _permission_deletion, shown_to=Capability.SERVICES_VIEW)
async def remove_permission(org_slug: str, service_slug: str, permission_name: str, form: Form) -> Response:
    """Remove a permission from an application and from its roles."""
    await authorization.remove_permission(ports(), acting_member(), service_slug, permission_name)
    return redirect_with_notice("permission-removed", authorization_path(service_slug, "/permissions"))


# The document


async def _document_values(typed: Form, service_slug: str, result: AuthorizationResult | None = None) -> dict[str, Any]:
    service = await _find_service(service_slug)
    found = await authorization.get(ports(), acting_member(), service_slug)
    if typed and result is None:
        with suppress(Refusal):  # so that a refused change's page has the preview and the box that confirms it
            result = await authorization.preview(ports(), acting_member(), service_slug, _to_document(typed), versions=_to_versions(typed))
    document = to_authorization_response(found)
    show_document(document)
    text = json.dumps(document.model_dump(exclude={"version"}), indent=2, ensure_ascii=False)
    stored = {"document": text, "version": str(found.version)}
    return {"typed": {**stored, **typed}, "result": result, **application_values(service)}


def _to_document(form: Form) -> AuthorizationDocument:
    """Return the document in a form. Raises: FieldInvalid; the errors of `AuthorizationDocument.parse`."""
    try:
        return validate(AuthorizationRequest, decode(form.get("document", "").encode())).build()
    except (BodyInvalid, FieldsInvalid) as error:
        raise FieldInvalid(str(error), "document") from None


def _to_versions(form: Form) -> list[int]:
    version = to_version(form)
    return [] if version is None else [version]


@routes.post(f"{DOCUMENT}/preview")
@member_page(Capability.SERVICES_MANAGE, GIVES)
@accepts(f"PUT {API}", answers=answers_with("The document and its changes."))
@refuses(409, 412)
@on_refusal("applications/authorization_document.html", _document_values, DOCUMENT_FIELDS, shown_to=Capability.SERVICES_VIEW)
async def preview_document(org_slug: str, service_slug: str, form: Form) -> Response:
    """Preview the changes that a document makes. Nothing is saved."""
    result = await authorization.preview(ports(), acting_member(), service_slug, _to_document(form), versions=_to_versions(form))
    return await console_page("applications/authorization_document.html", **await _document_values(form, service_slug, result))


@serves_form(routes, DOCUMENT, f"PUT {API}", f"GET {API}")
@member_page(Capability.SERVICES_MANAGE, GIVES)
@accepts(f"PUT {API}")
@refuses(409, 412)
@on_refusal(
    "applications/authorization_document.html",
    _document_values,
    {**DOCUMENT_FIELDS, model.ServiceRoleInUse: "confirm"},
    shown_to=Capability.SERVICES_VIEW,
)
async def replace_document(org_slug: str, service_slug: str, form: Form) -> Response:
    """Replace all permissions and roles that an application has."""
    await authorization.replace_document(
        ports(),
        acting_member(),
        service_slug,
        _to_document(form),
        versions=_to_versions(form),
        confirmed=is_checked(form.get("confirm", "")),
    )
    return redirect_with_notice("authorization-saved", authorization_path(service_slug))
