"""The pages of the platform's service accounts: the list, one with its settings, and its credentials."""

from typing import Final
from uuid import UUID

from quart import Blueprint, Response

from entrypoints.http.edge.access import OWNS, platform_page
from entrypoints.http.edge.queries import PageQuery
from entrypoints.http.pages.console import shows
from entrypoints.http.pages.console_forms import Form, accepts, once, restores
from entrypoints.http.pages.presets import PresetQuery
from entrypoints.http.pages.programs import credential_forms, service_account_views
from entrypoints.http.pages.programs.credential_forms import NewCredentialQuery
from entrypoints.http.pages.programs.service_account_views import PLATFORM_LIST as LIST

routes = Blueprint("platform_service_account_pages", __name__)

ONE: Final = f"{LIST}/<account_id>"
API: Final = "/api/platform/service-accounts"
API_OF_ONE: Final = f"{API}/<account_id>"


@routes.get(LIST)
@platform_page
@shows(f"GET {API}")
async def show_accounts(query_args: PageQuery) -> Response:
    """List the service accounts of the platform."""
    return await service_account_views.show_accounts(query_args)


@routes.get(f"{LIST}/new")
@platform_page
@shows(f"POST {API}")
async def show_form(query_args: PresetQuery) -> Response:
    """Show the form that creates a service account of the platform."""
    return await service_account_views.show_form(query_args)


@routes.post(f"{LIST}/new")
@platform_page(OWNS)
@accepts(f"POST {API}")
@once(LIST, "Open service accounts", "The service account is in the list.")
@restores
async def create(form: Form) -> Response:
    """Create a service account of the platform."""
    return await service_account_views.create(form=form)


@routes.get(ONE)
@platform_page
@shows(f"GET {API_OF_ONE}", f"PATCH {API_OF_ONE}", f"DELETE {API_OF_ONE}")
async def show_account(account_id: UUID, query_args: PresetQuery) -> Response:
    """Show a service account with its settings."""
    return await service_account_views.show_account(account_id, query_args)


@routes.post(ONE)
@platform_page(OWNS)
@accepts(f"PATCH {API_OF_ONE}")
@restores
async def change(account_id: UUID, form: Form) -> Response:
    """Change a service account of the platform."""
    return await service_account_views.change(form=form, account_id=account_id)


@routes.post(f"{ONE}/delete")
@platform_page(OWNS)
@accepts(f"DELETE {API_OF_ONE}")
@restores
async def delete(account_id: UUID, form: Form) -> Response:
    """Delete a service account of the platform."""
    return await service_account_views.delete(form=form, account_id=account_id)


# Credentials


@routes.get(f"{ONE}/credentials")
@platform_page
@shows(f"GET {API_OF_ONE}/credentials", f"DELETE {API_OF_ONE}/credentials/<credential_id>")
async def show_credentials(account_id: UUID) -> Response:
    """List the credentials of a service account of the platform."""
    return await service_account_views.show_credentials(account_id)


@routes.get(f"{ONE}/credentials/new")
@platform_page
@shows(f"POST {API_OF_ONE}/credentials")
async def show_credential_form(account_id: UUID, query_args: NewCredentialQuery) -> Response:
    """Show the form that creates a credential of a service account of the platform."""
    return await service_account_views.show_credential_form(account_id, query_args)


@routes.post(f"{ONE}/credentials/new")
@platform_page(OWNS)
@accepts(f"POST {API_OF_ONE}/credentials", answers=credential_forms.ANSWERS)
@once(f"{ONE}/credentials", "Open credentials", credential_forms.SENT)
@restores
async def create_credential(account_id: UUID, form: Form) -> Response:
    """Create a credential of a service account of the platform.

    A secret is shown only once.
    """
    return await service_account_views.create_credential(form=form, account_id=account_id)


@routes.post(f"{ONE}/credentials/<credential_id>/revoke")
@platform_page(OWNS)
@accepts(f"DELETE {API_OF_ONE}/credentials/<credential_id>")
async def revoke_credential(account_id: UUID, credential_id: UUID) -> Response:
    """Revoke a credential of a service account of the platform."""
    return await service_account_views.revoke_credential(account_id, credential_id)
