"""An API resource's page about external clients: the policy that admits them, and the users who connected a client."""

from typing import Any, Final
from uuid import UUID

from quart import Blueprint, Response

from core.applications.model.client_settings import client_host
from core.applications.model.users import AccessPolicy
from core.federation.oauth import consents
from core.federation.oauth.model.consents import ExternalGrant
from core.kernel.roles import Capability
from core.kernel.values import PageResult
from core.programs import api_resources
from core.programs.model import client_policy
from core.programs.model import client_policy as model
from core.programs.model.api_resources import ApiResource
from entrypoints.http import kit
from entrypoints.http.api.programs import client_policies
from entrypoints.http.api.tenancy.assignments import AssignmentsQuery
from entrypoints.http.pages import console, console_forms, form_values
from entrypoints.http.pages.applications.access import POLICIES
from entrypoints.http.pages.programs.api_resources import API_OF_ONE, ONE, SCOPE, resource_values

routes = Blueprint("external_client_pages", __name__)

PAGE: Final = f"{ONE}/external-clients"
API: Final = f"{API_OF_ONE}/external-clients"
GRANT: Final = f"{API}/grants/<user_id>/<client_id>"
PRESET: Final = "preset:"  # the checkbox name for a preset begins with this
ADMISSIONS: Final = [
    (client_policy.ClientAdmission.NONE.value, "Off"),
    (client_policy.ClientAdmission.LISTED.value, "On for the clients below"),
    (client_policy.ClientAdmission.ANY.value, "On for every client"),
]
USER_SCOPES: Final = dict(zip(model.USER_SCOPES, ("Read the user's profile", "Read the user's email address"), strict=True))
FIELDS: Final[console_forms.Fields] = {
    model.ClientHostInvalid: "hosts",
    model.TooManyClientHosts: "hosts",
    model.ClientHostsMissing: "hosts",
    model.ClientScopeUnknown: "scopes",
    model.ExternalClientsOfAnyone: "access",
}


def _stored(resource: ApiResource) -> dict[str, str]:
    """Return the policy as form fields."""
    policy = resource.external_clients
    presets = [preset for preset in client_policy.PRESETS if set(preset.hosts) <= set(policy.hosts)]
    of_presets = {host for preset in presets for host in preset.hosts}
    boxes = [f"{PRESET}{preset.name}" for preset in presets] + [f"{SCOPE}{name}" for name in policy.known_scopes(_scopes(resource))]
    # Such a preset's box stands for the proofs, too, so that they end with it.
    if policy.accepts_token_endpoint_audience and not any(preset.accepts_token_endpoint_audience for preset in presets):
        boxes.append("accepts_token_endpoint_audience")
    boxes += ["registration"] if policy.registration else []
    access = AccessPolicy.MEMBERS if resource.policy is AccessPolicy.ANYONE and not policy.is_on else resource.policy
    hosts = "\n".join(host for host in policy.hosts if host not in of_presets)
    return {"admit": policy.admit.value, "hosts": hosts, "access": access.value, **dict.fromkeys(boxes, "yes")}


def _scopes(resource: ApiResource) -> dict[str, str]:
    """Return the descriptions for the scopes that a policy can list, by name."""
    return {scope.name: scope.description for scope in resource.scopes} | USER_SCOPES


def _to_request(form: console_forms.Form, resource: ApiResource) -> client_policies.ExternalClientsRequest:
    """Return the API request that the form stands for.

    All scopes checked means later scopes too.

    A pasted client address counts as its host.
    """
    chosen = [preset for preset in client_policy.PRESETS if f"{PRESET}{preset.name}" in form]
    scopes = [name for name in form_values.checked(form, SCOPE) if name in _scopes(resource)]
    return form_values.to_model(
        client_policies.ExternalClientsRequest,
        form,
        {
            "hosts": lambda text: [
                *(host for preset in chosen for host in preset.hosts),
                *(client_host(line) or line for line in form_values.to_lines(text)),
            ],
            "scopes": lambda _: None if len(scopes) == len(_scopes(resource)) else scopes,
            "accepts_token_endpoint_audience": lambda text: (
                form_values.is_checked(text) or any(preset.accepts_token_endpoint_audience for preset in chosen)
            ),
            "registration": form_values.is_checked,
            "access": lambda text: text or None if form.get("admit") != client_policy.ClientAdmission.NONE else None,
        },
    )


async def _values(typed: console_forms.Form, resource_id: UUID, query_args: AssignmentsQuery | None = None) -> dict[str, Any]:
    resource, query = await api_resources.find(kit.ports(), kit.acting_member(), resource_id), query_args or AssignmentsQuery()
    grants: PageResult[ExternalGrant] = PageResult([], 0)
    if console.may(Capability.END_USERS_VIEW):
        grants = await consents.list_grants(kit.ports(), kit.acting_member(), resource.id, query.page_request(), search=query.search)
    console.show_document(client_policies.ExternalClientsResponse.of(resource.external_clients))
    return {
        **resource_values(resource),
        "typed": typed or _stored(resource),
        "policy": resource.external_clients,
        "admissions": ADMISSIONS,
        "is_of_anyone": resource.policy is AccessPolicy.ANYONE,
        "policies": POLICIES,
        "presets": client_policy.PRESETS,
        "scopes": _scopes(resource),
        "grants": [(grant, client_host(grant.client_uri)) for grant in grants.items],
        "query": query,
        **console.neighbors(query, grants.total),
    }


@console_forms.serves_form(
    routes,
    PAGE,
    f"GET {API}/grants",
    f"GET {API}",
    f"PUT {API}",
    f"DELETE {GRANT}",
    opens=kit.member_page(Capability.RESOURCES_VIEW),
    query=AssignmentsQuery,
)
@kit.member_page(Capability.RESOURCES_MANAGE, kit.GIVES)
@console_forms.accepts(f"PUT {API}")
@console_forms.on_refusal("programs/external_clients.html", _values, FIELDS)
async def change_policy(org_slug: str, resource_id: UUID, form: console_forms.Form) -> Response:
    """Change the external clients that may ask for an API resource."""
    resource = await api_resources.find(kit.ports(), kit.acting_member(), resource_id)
    request = _to_request(form, resource)
    new = await api_resources.save_external_clients(
        kit.ports(), kit.acting_member(), resource.id, client_policies.to_policy(request), request.access
    )
    notice = "external-clients-saved" if new.external_clients.is_on else "external-clients-off"
    return console.redirect_with_notice(notice, console.organization_path(f"/api-resources/{resource.id}/external-clients"))


@routes.post(f"{PAGE}/grants/<user_id>/<client_id>/end")
@kit.member_page(Capability.END_USERS_MANAGE, kit.GIVES)
@console_forms.accepts(f"DELETE {GRANT}")
async def end_grant(org_slug: str, resource_id: UUID, user_id: UUID, client_id: UUID) -> Response:
    """End an external client's access for a user."""
    await consents.end_grant(kit.ports(), kit.acting_member(), resource_id, user_id, client_id)
    return console.redirect_with_notice("external-grant-ended", console.organization_path(f"/api-resources/{resource_id}/external-clients"))
