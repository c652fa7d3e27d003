"""The pages about who may use an application: its policy, assigned users, the sign-in test, and the deletion."""

import json
from typing import Any, Final
from uuid import UUID

from quart import Blueprint, Response

from core.applications import access, services
from core.applications.model import users
from core.applications.model import users as access_model
from core.applications.model.services import Service
from core.federation import sign_in_preview
from core.kernel.roles import Capability
from core.kernel.values import Email
from core.tenancy.model import groups
from entrypoints.http import kit
from entrypoints.http.api.applications import service_access
from entrypoints.http.api.applications.sign_in_preview import SignInPreviewQuery
from entrypoints.http.api.tenancy import assignments
from entrypoints.http.pages import consequences, console, console_forms, form_values
from entrypoints.http.pages.applications.applications import APPLICATION, SERVICE, application_path, application_values
from entrypoints.http.pages.assigned_groups import assigned_group_values

routes = Blueprint("access_pages", __name__)

ACCESS: Final = f"{APPLICATION}/access"
ASSIGNMENTS: Final = f"{APPLICATION}/assignments"
POLICIES: Final = [
    (users.AccessPolicy.MEMBERS.value, "Members of the organization"),
    (users.AccessPolicy.MEMBERS_AND_ASSIGNED.value, "Members and people you add"),
    (users.AccessPolicy.ASSIGNED.value, "Only people you add"),
    (users.AccessPolicy.ANYONE.value, "Anyone who signs up"),
]
ASSIGNMENT_FIELDS: Final[console_forms.Fields] = {users.AssigneeNotFound: "email", groups.OrganizationGroupNotFound: "group"}
FIELDS: Final[console_forms.Fields] = {access_model.LaunchUrlInvalid: "launch_url", groups.SharedNameTaken: "policy"}


async def _find(service_slug: str) -> Service:
    return await services.find(kit.ports(), kit.acting_member(), service_slug)


def policy_options(audience: users.Audience) -> list[tuple[str, str, str]]:
    """Return the policies with their labels, and with the users that each policy admits today."""
    texts = dict(POLICIES) | {users.AccessPolicy.MEMBERS.value: f"Members of {audience.organization}"}
    members = "the members" if audience.members is None else consequences.count(audience.members, "member")
    added = "the users and groups that are assigned"
    if audience.assigned is not None and audience.groups is not None:
        added = f"{consequences.count(audience.assigned, 'added user')} and {consequences.count(audience.groups, 'added group')}"
    if audience.assigned == audience.groups == 0:
        added = "no added people"
    admitted = {
        users.AccessPolicy.MEMBERS.value: f"Today: {members}.",
        users.AccessPolicy.MEMBERS_AND_ASSIGNED.value: f"Today: {members} and {added}. Subscribers are admitted, too.",
        users.AccessPolicy.ASSIGNED.value: f"Today: {added}. Subscribers are admitted, too.",
        users.AccessPolicy.ANYONE.value: "Today: everyone who has an account on this site or creates one, also people you don't know.",
    }
    return [(value, texts[value], admitted[value]) for value, _ in POLICIES]


async def _values(typed: console_forms.Form, service_slug: str) -> dict[str, Any]:
    service = await _find(service_slug)
    settings = service.access
    console.show_document(service_access.ServiceAccessResponse.of(settings))
    stored = {
        "policy": settings.policy.value,
        "saml_self_enrolled": "yes" if settings.saml_self_enrolled else "",
        "launch_url": settings.launch_url or "",
    }
    return {
        **application_values(service),
        "policies": policy_options(await access.load_audience(kit.ports(), kit.acting_member(), service)),
        "typed": typed or stored,
        "policy": settings.policy.value,
    }


@console_forms.serves_form(
    routes, ACCESS, f"GET {SERVICE}/access", f"PUT {SERVICE}/access", opens=kit.member_page(Capability.SERVICES_VIEW)
)
@kit.member_page(Capability.SERVICES_MANAGE, kit.GIVES)
@console_forms.accepts(f"PUT {SERVICE}/access")
@console_forms.on_refusal("applications/access.html", _values, FIELDS)
async def change_access(org_slug: str, service_slug: str, form: console_forms.Form) -> Response:
    """Change who may use an application."""
    data = form_values.to_model(service_access.ServiceAccessRequest, form, {"saml_self_enrolled": form_values.is_checked})
    settings = users.AccessSettings(data.policy, data.saml_self_enrolled, data.launch_url)
    await access.save_settings(kit.ports(), kit.acting_member(), service_slug, settings)
    return console.redirect_with_notice("access-saved", f"{application_path(service_slug)}/access")


async def _assignment_values(
    typed: console_forms.Form, service_slug: str, query_args: assignments.AssignmentsQuery | None = None
) -> dict[str, Any]:
    service, query = await _find(service_slug), query_args or assignments.AssignmentsQuery()
    listed = await access.list_assignments(kit.ports(), kit.acting_member(), service.slug, query.page_request(), search=query.search)
    assigned = await access.list_groups(kit.ports(), kit.acting_member(), service.slug)
    return {
        **application_values(service),
        "typed": typed,
        "assignments": listed.items,
        **await assigned_group_values(assigned),
        "query": query,
        "policy": service.access.policy.value,
        "by_directory": users.EnrollmentOrigin.DIRECTORY,
        **console.neighbors(query, listed.total),
    }


@console_forms.serves_form(
    routes,
    ASSIGNMENTS,
    f"GET {SERVICE}/assignments",
    f"POST {SERVICE}/assignments",
    f"DELETE {SERVICE}/assignments/<user_id>",
    f"GET {SERVICE}/groups",
    f"PUT {SERVICE}/groups/<group_id>",
    f"DELETE {SERVICE}/groups/<group_id>",
    opens=kit.member_page(Capability.END_USERS_VIEW),
    query=assignments.AssignmentsQuery,
)
@kit.member_page(Capability.END_USERS_MANAGE, kit.GIVES)
@console_forms.accepts(f"POST {SERVICE}/assignments")
@console_forms.on_refusal("applications/assignments.html", _assignment_values, ASSIGNMENT_FIELDS, shown_to=Capability.END_USERS_VIEW)
async def assign(org_slug: str, service_slug: str, form: console_forms.Form) -> Response:
    """Assign a user to an application."""
    await access.assign_by_email(
        kit.ports(), kit.acting_member(), service_slug, Email(form_values.to_model(assignments.AssignmentRequest, form).email)
    )
    return console.redirect_with_notice("user-assigned", f"{application_path(service_slug)}/assignments")


@routes.post(f"{ASSIGNMENTS}/<user_id>/remove")
@kit.member_page(Capability.END_USERS_MANAGE, kit.GIVES)
@console_forms.accepts(f"DELETE {SERVICE}/assignments/<user_id>")
async def unassign(org_slug: str, service_slug: str, user_id: UUID) -> Response:
    """End a user's assignment."""
    await access.unassign(kit.ports(), kit.acting_member(), service_slug, user_id)
    return console.redirect_with_notice("assignment-removed", f"{application_path(service_slug)}/assignments")


@routes.post(f"{APPLICATION}/groups")
@kit.member_page(Capability.END_USERS_MANAGE, kit.GIVES)
@console_forms.accepts(f"PUT {SERVICE}/groups/<group_id>", page=f"{APPLICATION}/assignments")
@console_forms.on_refusal("applications/assignments.html", _assignment_values, ASSIGNMENT_FIELDS, shown_to=Capability.END_USERS_VIEW)
async def assign_group(org_slug: str, service_slug: str, form: console_forms.Form) -> Response:
    """Assign a group to an application."""
    await access.assign_group(kit.ports(), kit.acting_member(), service_slug, kit.path_id(form.get("group", "")))
    return console.redirect_with_notice("group-assigned", f"{application_path(service_slug)}/assignments")


@routes.post(f"{APPLICATION}/groups/<group_id>/remove")
@kit.member_page(Capability.END_USERS_MANAGE, kit.GIVES)
@console_forms.accepts(f"DELETE {SERVICE}/groups/<group_id>", page=f"{APPLICATION}/assignments")
async def unassign_group(org_slug: str, service_slug: str, group_id: UUID) -> Response:
    """End a group's assignment."""
    await access.unassign_group(kit.ports(), kit.acting_member(), service_slug, group_id)
    return console.redirect_with_notice("group-unassigned", f"{application_path(service_slug)}/assignments")


@routes.get(f"{APPLICATION}/test")
@kit.member_page(Capability.SERVICES_MANAGE)
@console.shows(f"GET {SERVICE}/sign-in-preview")
async def test_sign_in(org_slug: str, service_slug: str, query_args: SignInPreviewQuery) -> Response:
    """Show what the application would receive if you signed in to it now."""
    service = await _find(service_slug)
    result = await sign_in_preview.preview(
        kit.ports(), kit.app_context().base_url, kit.acting_member(), service_slug, query_args.scope, query_args.redirect_uri
    )
    openid = result.openid
    claims = {"ID token": openid.id_token, "Userinfo endpoint": openid.userinfo} if openid else {}
    if openid and openid.access_token:
        claims["Access token, about you"] = openid.access_token
    return await console.console_page(
        "applications/test_sign_in.html",
        openid=openid,
        saml=result.saml,
        claims={name: json.dumps(dict(each), indent=2, ensure_ascii=False) for name, each in claims.items() if each is not None},
        scope=query_args.scope,
        redirect_uris=[(uri, uri) for uri in service.redirect_uris],
        chosen=query_args.redirect_uri or "",
        **application_values(service),
    )


async def _deletion(service_slug: str) -> consequences.Question:
    service = await _find(service_slug)
    subscriptions = consequences.count(service.subscription_count, "subscription")
    return consequences.Question(
        verb="Delete",
        target=service.name,
        consequences=(
            f"Users can no longer sign in to it. Its plans, {subscriptions}, API keys and SAML configuration are deleted permanently.",
        ),
        button="Delete application",
        keep="Keep application",
        back=(service.name, application_path(service.slug)),
        typed_name=service.name,
    )


@consequences.asks(routes, f"{APPLICATION}/delete")
@kit.member_page(Capability.ORGANIZATION_OWN, kit.OWNS)
@consequences.accepts_answer(f"DELETE {SERVICE}", _deletion)
async def delete(org_slug: str, service_slug: str, form: console_forms.Form) -> Response:
    """Delete an application."""
    console_forms.check_typed_name(form, (await _find(service_slug)).name)
    await services.delete(kit.ports(), kit.acting_member(), service_slug)
    return console.redirect_with_notice("application-deleted", console.organization_path("/applications"))
