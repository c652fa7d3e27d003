"""The pages of the platform's service accounts: the list, one with its settings, and its credentials."""

from collections.abc import Mapping
from typing import Any, Final

from quart import Blueprint, Response

from core.accounts import platform_users
from core.kernel.api_scopes import ApiScope
from core.kernel.errors import Refusal
from core.programs import platform_service_accounts as service_accounts
from core.programs import service_accounts_rules as rules
from core.programs.platform_service_accounts import NewPlatformServiceAccount
from core.programs.service_accounts_rules import ListedServiceAccount, grantable_capabilities
from entrypoints.http.api.programs.platform_service_accounts import (
    PlatformServiceAccountRequest,
    PlatformServiceAccountUpdateRequest,
    to_changes,
)
from entrypoints.http.api.programs.service_accounts import to_scopes
from entrypoints.http.edge.access import platform_page
from entrypoints.http.edge.context import ports, signed_in
from entrypoints.http.edge.openapi import refuses
from entrypoints.http.edge.queries import path_id, validate_querystring
from entrypoints.http.pages.console import (
    accepts,
    check_typed_name,
    console_page,
    neighbors,
    read_console_form,
    redirect_with_notice,
    refused_console_page,
    shows,
    to_model,
    wrong_field,
)
from entrypoints.http.pages.programs import credential_forms
from entrypoints.http.pages.programs.credential_forms import NewCredentialQuery
from entrypoints.http.pages.programs.service_accounts import ALL, GRANT, SCOPE, AccountsQuery, chosen, stored, with_present_owner

routes = Blueprint("platform_service_account_pages", __name__)

LIST: Final = "/app/platform/service-accounts"
ONE: Final = f"{LIST}/<account_id>"
API: Final = "/api/platform/service-accounts"
API_OF_ONE: Final = f"{API}/<account_id>"
FIELDS: Final[Mapping[type[Refusal], str]] = {
    rules.OwnerNotPlatformOwner: "owner_id",
    rules.ServiceAccountScopeUnknown: "scopes",
    rules.CapabilityNotGrantable: "granted_capabilities",
}
SCOPES: Final = [scope for scope in ApiScope if scope.area.is_of_platform]


def _path(account_id: object, below: str = "") -> str:
    return f"{LIST}/{account_id}{below}"


def _parsers(form: Mapping[str, str]) -> dict[str, Any]:
    """Return the parsers for the checkboxes of a form."""
    return {
        "scopes": lambda _: None if ALL in form else chosen(form, SCOPE),
        "granted_capabilities": lambda _: chosen(form, GRANT),
    }


async def _form_values(typed: Mapping[str, Any]) -> dict[str, Any]:
    owners = await platform_users.list_owners(ports())
    return {
        "typed": typed,
        "roles": [],
        "owners": with_present_owner([(str(owner.id), str(owner.email)) for owner in owners], typed),
        "scopes": SCOPES,
        "grantable": grantable_capabilities(None),
        "list_path": LIST,
    }


def _values(listed: ListedServiceAccount) -> dict[str, Any]:
    return {"listed": listed, "account": listed.account, "path": _path(listed.account.id), "list_path": LIST, "can_change": True}


async def _find(account_id: str) -> ListedServiceAccount:
    return await service_accounts.find(ports(), path_id(account_id))


@routes.get(LIST)
@platform_page
@refuses(400)
@validate_querystring(AccountsQuery)
@shows(f"GET {API}")
async def show_accounts(query_args: AccountsQuery) -> Response:
    """List the service accounts of the platform."""
    result = await service_accounts.list_page(ports(), query_args.page_request())
    values = {"accounts": result.items, "path": LIST, **neighbors(query_args, result.total)}
    return await console_page("programs/service_accounts.html", **values)


@routes.get(f"{LIST}/new")
@platform_page
@shows(f"POST {API}")
async def show_form() -> Response:
    """Show the form that creates a service account of the platform."""
    typed = {"owner_id": str(signed_in().user_id), ALL: "yes"}
    return await console_page("programs/new_service_account.html", **await _form_values(typed))


@routes.post(f"{LIST}/new")
@platform_page
@accepts(f"POST {API}")
async def create() -> Response:
    """Create a service account of the platform."""
    form = await read_console_form()
    try:
        data = to_model(PlatformServiceAccountRequest, form, _parsers(form))
        request = NewPlatformServiceAccount(
            name=data.name, owner_id=data.owner_id, scopes=to_scopes(data.scopes), granted=data.granted_capabilities
        )
        listed = await service_accounts.create(ports(), signed_in(), request)
    except Refusal as refusal:
        values = {"wrong": wrong_field(refusal, FIELDS), **await _form_values(form)}
        return await refused_console_page(refusal, "programs/new_service_account.html", **values)
    return redirect_with_notice("service-account-created", _path(listed.account.id, "/credentials"))


@routes.get(ONE)
@platform_page
@shows(f"GET {API_OF_ONE}", f"PATCH {API_OF_ONE}", f"DELETE {API_OF_ONE}")
async def show_account(account_id: str) -> Response:
    """Show a service account with its settings."""
    listed = await _find(account_id)
    return await console_page("programs/service_account.html", **{**await _form_values(stored(listed)), **_values(listed)})


@routes.post(ONE)
@platform_page
@accepts(f"PATCH {API_OF_ONE}")
async def change(account_id: str) -> Response:
    """Change a service account of the platform."""
    form = await read_console_form()
    listed = await _find(account_id)
    try:
        changes = to_changes(to_model(PlatformServiceAccountUpdateRequest, form, _parsers(form)))
        await service_accounts.update(ports(), signed_in(), listed.account.id, changes)
    except Refusal as refusal:
        values = {"wrong": wrong_field(refusal, FIELDS), **await _form_values(form), **_values(listed)}
        return await refused_console_page(refusal, "programs/service_account.html", **values)
    return redirect_with_notice("service-account-saved", _path(listed.account.id))


@routes.post(f"{ONE}/delete")
@platform_page
@accepts(f"DELETE {API_OF_ONE}")
async def delete(account_id: str) -> Response:
    """Delete a service account of the platform."""
    form = await read_console_form()
    listed = await _find(account_id)
    try:
        check_typed_name(form, listed.account.name)
        await service_accounts.delete(ports(), signed_in(), listed.account.id)
    except Refusal as refusal:
        values = {"wrong": wrong_field(refusal, {}), **await _form_values(stored(listed)), **_values(listed)}
        return await refused_console_page(refusal, "programs/service_account.html", **values)
    return redirect_with_notice("service-account-deleted", LIST)


# Credentials


@routes.get(f"{ONE}/credentials")
@platform_page
@shows(f"GET {API_OF_ONE}/credentials", f"DELETE {API_OF_ONE}/credentials/<credential_id>")
async def show_credentials(account_id: str) -> Response:
    """List the credentials of a service account of the platform."""
    listed = await _find(account_id)
    found = await service_accounts.list_credentials(ports(), listed.account.id)
    values = {**_values(listed), **credential_forms.listed(found)}
    return await console_page("programs/service_account_credentials.html", **values)


@routes.get(f"{ONE}/credentials/new")
@platform_page
@refuses(400)
@validate_querystring(NewCredentialQuery)
@shows(f"POST {API_OF_ONE}/credentials")
async def show_credential_form(account_id: str, query_args: NewCredentialQuery) -> Response:
    """Show the form that creates a credential of a service account of the platform."""
    values = {**_values(await _find(account_id)), **credential_forms.form_values(query_args.kind, {})}
    return await console_page("programs/new_credential.html", **values)


@routes.post(f"{ONE}/credentials/new")
@platform_page
@accepts(f"POST {API_OF_ONE}/credentials", answers=credential_forms.ANSWERS)
async def create_credential(account_id: str) -> Response:
    """Create a credential of a service account of the platform.

    A secret is shown only once.
    """
    form = await read_console_form()
    listed = await _find(account_id)
    try:
        request = credential_forms.read_credential(form)
        credential, secret = await service_accounts.create_credential(ports(), signed_in(), listed.account.id, request)
    except Refusal as refusal:
        values = {**_values(listed), **credential_forms.refused_values(refusal, form)}
        return await refused_console_page(refusal, "programs/new_credential.html", **values)
    return await credential_forms.created_page(credential, secret, _path(listed.account.id, "/credentials"))


@routes.post(f"{ONE}/credentials/<credential_id>/revoke")
@platform_page
@accepts(f"DELETE {API_OF_ONE}/credentials/<credential_id>")
async def revoke_credential(account_id: str, credential_id: str) -> Response:
    """Revoke a credential of a service account of the platform."""
    await read_console_form()
    account = path_id(account_id)
    await service_accounts.revoke_credential(ports(), signed_in(), account, path_id(credential_id))
    return redirect_with_notice("credential-revoked", _path(account, "/credentials"))
