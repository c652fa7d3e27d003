"""The page of an API resource about external clients: the policy that admits them."""

from typing import Any, Final
from uuid import UUID

from quart import Blueprint, Response

from core.kernel.roles import Capability
from core.programs import api_resources, external_clients
from core.programs.model import external_clients as model
from core.programs.model.api_resources import ApiResource
from core.programs.model.client_presets import PRESETS
from core.programs.model.external_clients import ClientAdmission, client_host
from entrypoints.http.api.programs.external_clients import ExternalClientsRequest, to_policy
from entrypoints.http.base.context import acting_member, ports
from entrypoints.http.edge.access import member_page
from entrypoints.http.pages.console import console_page, organization_path, redirect_with_notice, shows
from entrypoints.http.pages.console_forms import Fields, Form, accepts, on_refusal
from entrypoints.http.pages.form_values import checked, is_checked, to_lines, to_model
from entrypoints.http.pages.programs.api_resources import API_OF_ONE, ONE, SCOPE, resource_values

routes = Blueprint("external_client_pages", __name__)

PAGE: Final = f"{ONE}/external-clients"
API: Final = f"{API_OF_ONE}/external-clients"
PRESET: Final = "preset:"  # the name of the checkbox of a preset begins with this
ADMISSIONS: Final = [
    (ClientAdmission.NONE.value, "Off"),
    (ClientAdmission.LISTED.value, "On for the clients below"),
    (ClientAdmission.ANY.value, "On for every client"),
]
FIELDS: Final[Fields] = {
    model.ClientHostInvalid: "hosts",
    model.TooManyClientHosts: "hosts",
    model.ClientHostsMissing: "hosts",
    model.ClientScopeUnknown: "scopes",
}


def _stored(resource: ApiResource) -> dict[str, str]:
    """Return the policy as fields of the form."""
    policy = resource.external_clients
    presets = [preset for preset in PRESETS if set(preset.hosts) <= set(policy.hosts)]
    of_presets = {host for preset in presets for host in preset.hosts}
    boxes = [f"{PRESET}{preset.name}" for preset in presets] + [f"{SCOPE}{name}" for name in policy.known_scopes(resource.scope_names)]
    boxes += [name for name in ("accepts_token_endpoint_audience", "registration") if getattr(policy, name)]
    hosts = "\n".join(host for host in policy.hosts if host not in of_presets)
    return {"admit": policy.admit.value, "hosts": hosts, **dict.fromkeys(boxes, "yes")}


def _to_request(form: Form, resource: ApiResource) -> ExternalClientsRequest:
    """Return the request of the API that the form stands for. All scopes checked means later ones too.

    A pasted address of a client counts as its host.
    """
    chosen = [preset for preset in PRESETS if f"{PRESET}{preset.name}" in form]
    scopes = [name for name in checked(form, SCOPE) if name in resource.scope_names]
    return to_model(
        ExternalClientsRequest,
        form,
        {
            "hosts": lambda text: [
                *(host for preset in chosen for host in preset.hosts),
                *(client_host(line) or line for line in to_lines(text)),
            ],
            "scopes": lambda _: None if len(scopes) == len(resource.scopes) else scopes,
            "accepts_token_endpoint_audience": lambda text: (
                is_checked(text) or any(preset.accepts_token_endpoint_audience for preset in chosen)
            ),
            "registration": is_checked,
        },
    )


async def _values(typed: Form | None, resource_id: UUID) -> dict[str, Any]:
    resource = await api_resources.find(ports(), acting_member(), resource_id)
    return {
        **resource_values(resource),
        "typed": _stored(resource) if typed is None else typed,
        "policy": resource.external_clients,
        "admissions": ADMISSIONS,
        "presets": PRESETS,
    }


@routes.get(PAGE)
@member_page(Capability.RESOURCES_VIEW)
@shows(f"GET {API}", f"PUT {API}")
async def show_external_clients(org_slug: str, resource_id: UUID) -> Response:
    """Show the external clients that may ask for an API resource."""
    return await console_page("programs/external_clients.html", **await _values(None, resource_id))


@routes.post(PAGE)
@member_page(Capability.RESOURCES_MANAGE, outlives=True)
@accepts(f"PUT {API}")
@on_refusal("programs/external_clients.html", _values, FIELDS)
async def change_policy(org_slug: str, resource_id: UUID, form: Form) -> Response:
    """Change the external clients that may ask for an API resource."""
    resource = await api_resources.find(ports(), acting_member(), resource_id)
    await external_clients.save_policy(ports(), acting_member(), resource.id, to_policy(_to_request(form, resource)))
    return redirect_with_notice("external-clients-saved", organization_path(f"/api-resources/{resource.id}/external-clients"))
