"""The pages for API resources' credentials."""

from typing import Any
from uuid import UUID

from quart import Blueprint

from core.kernel.roles import Capability
from core.programs import api_resources, credentials
from entrypoints.http import kit
from entrypoints.http.pages.programs import credential_forms
from entrypoints.http.pages.programs.api_resources import API_OF_ONE, ONE, resource_values

routes = Blueprint("resource_credential_pages", __name__)


async def _values(resource_id: UUID) -> dict[str, Any]:
    return resource_values(await api_resources.find(kit.ports(), kit.acting_member(), resource_id))


credential_forms.declare(
    routes,
    f"{ONE}/credentials",
    f"{API_OF_ONE}/credentials",
    kit.member_page(Capability.RESOURCES_VIEW),
    kit.member_page(Capability.RESOURCES_MANAGE, kit.GIVES),
    template="programs/api_resource_credentials.html",
    values=_values,
    use_cases=(credentials.list_of_resource, credentials.create_for_resource, credentials.revoke_of_resource),
)
