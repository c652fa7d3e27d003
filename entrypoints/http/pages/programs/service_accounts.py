"""The pages of service accounts: the list, one with its settings, and its credentials."""

from collections.abc import Mapping
from typing import Any, Final

from quart import Blueprint, Response

from core.kernel.api_scopes import ApiScope
from core.kernel.errors import Refusal
from core.kernel.principals import Capability, Role
from core.kernel.values import Page
from core.programs import api_resources, service_account_resources, service_accounts
from core.programs import service_accounts_rules as rules
from core.programs.api_resources_rules import OwnScopeUnknown
from core.programs.service_accounts import NewServiceAccount
from core.programs.service_accounts_rules import ListedServiceAccount, grantable_capabilities, may_manage
from core.tenancy import members
from entrypoints.http.api.programs.service_account_resources import AccountResourceRequest
from entrypoints.http.api.programs.service_accounts import ServiceAccountRequest, ServiceAccountUpdateRequest, to_changes, to_scopes
from entrypoints.http.edge.access import member_page
from entrypoints.http.edge.context import acting_member, ports
from entrypoints.http.edge.openapi import refuses
from entrypoints.http.edge.queries import MAX_LIMIT, PageQuery, path_id, validate_querystring
from entrypoints.http.pages.console import (
    ListQuery,
    accepts,
    check_typed_name,
    console_page,
    neighbors,
    organization_path,
    read_console_form,
    redirect_with_notice,
    refused_console_page,
    shows,
    to_model,
    wrong_field,
)
from entrypoints.http.pages.programs import credential_forms
from entrypoints.http.pages.programs.credential_forms import NewCredentialQuery

routes = Blueprint("service_account_pages", __name__)

LIST: Final = "/app/organizations/<org_slug>/service-accounts"
ONE: Final = f"{LIST}/<account_id>"
API: Final = "/api/organizations/<org_slug>/service-accounts"
API_OF_ONE: Final = f"{API}/<account_id>"
FIELDS: Final[Mapping[type[Refusal], str]] = {
    rules.ServiceAccountRoleUnknown: "role",
    rules.ServiceAccountAboveRole: "role",
    rules.OwnerCannotOwnServiceAccount: "owner_id",
    rules.ServiceAccountScopeUnknown: "scopes",
    rules.CapabilityNotGrantable: "granted_capabilities",
    rules.OnlyOwnersGrant: "granted_capabilities",
    rules.NoResourceScopes: "scopes",
    OwnScopeUnknown: "scopes",
}
ALL: Final = "all_scopes"  # the name of the checkbox for all scopes
SCOPE: Final = "scope:"  # the name of the checkbox of a scope begins with this
GRANT: Final = "grant:"  # and that of a capability with this
SCOPES: Final = [scope for scope in ApiScope if not scope.area.is_of_platform and not scope.startswith("account:")]


class AccountsQuery(ListQuery, PageQuery):
    """The page of the list."""


def _path(account_id: object, below: str = "") -> str:
    return organization_path(f"/service-accounts/{account_id}{below}")


def chosen(form: Mapping[str, str], prefix: str) -> list[str]:
    """Return the names of the checked boxes that begin with `prefix`, without it."""
    return [name.removeprefix(prefix) for name in form if name.startswith(prefix)]


def _parsers(form: Mapping[str, str]) -> dict[str, Any]:
    """Return the parsers for the checkboxes of a form. Only owners have those of capabilities."""
    parsers: dict[str, Any] = {"scopes": lambda _: None if ALL in form else chosen(form, SCOPE)}
    if acting_member().acts_in.role is Role.OWNER:
        parsers["granted_capabilities"] = lambda _: chosen(form, GRANT)
    return parsers


def with_present_owner(owners: list[tuple[str, str]], typed: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the options for an owner. If the present one is not among them, the first option keeps it.

    Otherwise the browser would choose the first person, and a change of the name would change the owner, too.
    """
    return owners if typed.get("owner_id") in dict(owners) else [("", "No change"), *owners]


async def _form_values(typed: Mapping[str, Any]) -> dict[str, Any]:
    caller = acting_member()
    role = caller.acts_in.role
    owners = [
        (str(member.user_id), str(member.email))
        for of_role in (Role.OWNER, Role.ADMIN)
        for member in (await members.list_page(ports(), caller, of_role, Page(1, MAX_LIMIT))).members
    ]
    return {
        "typed": typed,
        "roles": [(each.value, each.value.capitalize()) for each in (Role.MEMBER, Role.ADMIN, Role.OWNER) if may_manage(role, each)],
        "owners": with_present_owner(owners, typed),
        "scopes": SCOPES,
        "grantable": grantable_capabilities(Role.OWNER) if role is Role.OWNER else [],
        "list_path": organization_path("/service-accounts"),
    }


def stored(listed: ListedServiceAccount) -> dict[str, Any]:
    """Return the values of the form for an account as it is."""
    account = listed.account
    boxes = [f"{SCOPE}{scope}" for scope in account.scopes] if account.scopes is not None else [ALL]
    boxes += [f"{GRANT}{capability}" for capability in account.granted]
    return {"name": account.name, "role": account.role, "owner_id": str(account.owner_id), **dict.fromkeys(boxes, "yes")}


def _values(listed: ListedServiceAccount) -> dict[str, Any]:
    role = listed.account.role
    return {
        "listed": listed,
        "account": listed.account,
        "path": _path(listed.account.id),
        "list_path": organization_path("/service-accounts"),
        "can_change": role is not None and may_manage(acting_member().acts_in.role, role),
    }


async def _find(account_id: str) -> ListedServiceAccount:
    return await service_accounts.find(ports(), acting_member(), path_id(account_id))


@routes.get(LIST)
@member_page(Capability.SERVICE_ACCOUNTS_MANAGE)
@refuses(400)
@validate_querystring(AccountsQuery)
@shows(f"GET {API}")
async def show_accounts(org_slug: str, query_args: AccountsQuery) -> Response:
    """List the service accounts of an organization."""
    result = await service_accounts.list_page(ports(), acting_member(), query_args.page_request())
    values = {"accounts": result.items, "path": organization_path("/service-accounts"), **neighbors(query_args, result.total)}
    return await console_page("programs/service_accounts.html", **values)


@routes.get(f"{LIST}/new")
@member_page(Capability.SERVICE_ACCOUNTS_MANAGE)
@shows(f"POST {API}")
async def show_form(org_slug: str) -> Response:
    """Show the form that creates a service account."""
    typed = {"owner_id": str(acting_member().user_id), ALL: "yes"}
    return await console_page("programs/new_service_account.html", **await _form_values(typed))


@routes.post(f"{LIST}/new")
@member_page(Capability.SERVICE_ACCOUNTS_MANAGE, outlives=True)
@accepts(f"POST {API}")
async def create(org_slug: str) -> Response:
    """Create a service account."""
    form = await read_console_form()
    try:
        data = to_model(ServiceAccountRequest, form, _parsers(form))
        request = NewServiceAccount(
            name=data.name, role=data.role, owner_id=data.owner_id, scopes=to_scopes(data.scopes), granted=data.granted_capabilities
        )
        listed = await service_accounts.create(ports(), acting_member(), request)
    except Refusal as refusal:
        values = {"wrong": wrong_field(refusal, FIELDS), **await _form_values(form)}
        return await refused_console_page(refusal, "programs/new_service_account.html", **values)
    return redirect_with_notice("service-account-created", _path(listed.account.id, "/credentials"))


@routes.get(ONE)
@member_page(Capability.SERVICE_ACCOUNTS_MANAGE)
@shows(f"GET {API_OF_ONE}", f"PATCH {API_OF_ONE}", f"DELETE {API_OF_ONE}")
async def show_account(org_slug: str, account_id: str) -> Response:
    """Show a service account with its settings."""
    listed = await _find(account_id)
    return await console_page("programs/service_account.html", **{**await _form_values(stored(listed)), **_values(listed)})


@routes.post(ONE)
@member_page(Capability.SERVICE_ACCOUNTS_MANAGE, outlives=True)
@accepts(f"PATCH {API_OF_ONE}")
async def change(org_slug: str, account_id: str) -> Response:
    """Change a service account."""
    form = await read_console_form()
    listed = await _find(account_id)
    try:
        changes = to_changes(to_model(ServiceAccountUpdateRequest, form, _parsers(form)))
        await service_accounts.update(ports(), acting_member(), listed.account.id, changes)
    except Refusal as refusal:
        values = {"wrong": wrong_field(refusal, FIELDS), **await _form_values(form), **_values(listed)}
        return await refused_console_page(refusal, "programs/service_account.html", **values)
    return redirect_with_notice("service-account-saved", _path(listed.account.id))


@routes.post(f"{ONE}/delete")
@member_page(Capability.SERVICE_ACCOUNTS_MANAGE, outlives=True)
@accepts(f"DELETE {API_OF_ONE}")
async def delete(org_slug: str, account_id: str) -> Response:
    """Delete a service account."""
    form = await read_console_form()
    listed = await _find(account_id)
    try:
        check_typed_name(form, listed.account.name)
        await service_accounts.delete(ports(), acting_member(), listed.account.id)
    except Refusal as refusal:
        values = {"wrong": wrong_field(refusal, {}), **await _form_values(stored(listed)), **_values(listed)}
        return await refused_console_page(refusal, "programs/service_account.html", **values)
    return redirect_with_notice("service-account-deleted", organization_path("/service-accounts"))


# Credentials


@routes.get(f"{ONE}/credentials")
@member_page(Capability.SERVICE_ACCOUNTS_MANAGE)
@shows(f"GET {API_OF_ONE}/credentials", f"DELETE {API_OF_ONE}/credentials/<credential_id>")
async def show_credentials(org_slug: str, account_id: str) -> Response:
    """List the credentials of a service account."""
    listed = await _find(account_id)
    found = await service_accounts.list_credentials(ports(), acting_member(), listed.account.id)
    values = {**_values(listed), **credential_forms.listed(found)}
    return await console_page("programs/service_account_credentials.html", **values)


@routes.get(f"{ONE}/credentials/new")
@member_page(Capability.SERVICE_ACCOUNTS_MANAGE)
@refuses(400)
@validate_querystring(NewCredentialQuery)
@shows(f"POST {API_OF_ONE}/credentials")
async def show_credential_form(org_slug: str, account_id: str, query_args: NewCredentialQuery) -> Response:
    """Show the form that creates a credential of a service account."""
    values = {**_values(await _find(account_id)), **credential_forms.form_values(query_args.kind, {})}
    return await console_page("programs/new_credential.html", **values)


@routes.post(f"{ONE}/credentials/new")
@member_page(Capability.SERVICE_ACCOUNTS_MANAGE, outlives=True)
@accepts(f"POST {API_OF_ONE}/credentials", answers=credential_forms.ANSWERS)
async def create_credential(org_slug: str, account_id: str) -> Response:
    """Create a credential of a service account.

    A secret is shown only once.
    """
    form = await read_console_form()
    listed = await _find(account_id)
    try:
        request = credential_forms.read_credential(form)
        credential, secret = await service_accounts.create_credential(ports(), acting_member(), listed.account.id, request)
    except Refusal as refusal:
        values = {**_values(listed), **credential_forms.refused_values(refusal, form)}
        return await refused_console_page(refusal, "programs/new_credential.html", **values)
    return await credential_forms.created_page(credential, secret, _path(listed.account.id, "/credentials"))


@routes.post(f"{ONE}/credentials/<credential_id>/revoke")
@member_page(Capability.SERVICE_ACCOUNTS_MANAGE, outlives=True)
@accepts(f"DELETE {API_OF_ONE}/credentials/<credential_id>")
async def revoke_credential(org_slug: str, account_id: str, credential_id: str) -> Response:
    """Revoke a credential of a service account."""
    await read_console_form()
    account = path_id(account_id)
    await service_accounts.revoke_credential(ports(), acting_member(), account, path_id(credential_id))
    return redirect_with_notice("credential-revoked", _path(account, "/credentials"))


# API resources


async def _resource_values(listed: ListedServiceAccount) -> dict[str, Any]:
    granted = await service_account_resources.list_resources(ports(), acting_member(), listed.account.id)
    scopes = {resource.resource_id: resource.scopes for resource in granted}
    resources = await api_resources.list_resources(ports(), acting_member())
    return {**_values(listed), "resources": resources, "granted": scopes}


@routes.get(f"{ONE}/api-resources")
@member_page(Capability.SERVICE_ACCOUNTS_MANAGE)
@shows(f"GET {API_OF_ONE}/api-resources", f"DELETE {API_OF_ONE}/api-resources/<resource_id>")
async def show_resources(org_slug: str, account_id: str) -> Response:
    """List the API resources of the organization, with the scopes that a service account has there."""
    listed = await _find(account_id)
    return await console_page("programs/service_account_resources.html", **await _resource_values(listed))


@routes.post(f"{ONE}/api-resources/<resource_id>")
@member_page(Capability.SERVICE_ACCOUNTS_MANAGE, outlives=True)
@accepts(f"PUT {API_OF_ONE}/api-resources/<resource_id>")
async def save_resource(org_slug: str, account_id: str, resource_id: str) -> Response:
    """Give a service account the checked scopes of an API resource."""
    form = await read_console_form()
    listed, resource = await _find(account_id), path_id(resource_id)
    try:
        scopes = AccountResourceRequest(scopes=chosen(form, SCOPE)).scopes
        await service_account_resources.save(ports(), acting_member(), listed.account.id, resource, scopes)
    except Refusal as refusal:
        values = {"wrong": wrong_field(refusal, FIELDS), "wrong_resource": resource, **await _resource_values(listed)}
        return await refused_console_page(refusal, "programs/service_account_resources.html", **values)
    return redirect_with_notice("resource-scopes-saved", _path(listed.account.id, "/api-resources"))


@routes.post(f"{ONE}/api-resources/<resource_id>/remove")
@member_page(Capability.SERVICE_ACCOUNTS_MANAGE, outlives=True)
@accepts(f"DELETE {API_OF_ONE}/api-resources/<resource_id>")
async def remove_resource(org_slug: str, account_id: str, resource_id: str) -> Response:
    """Take away the scopes of an API resource."""
    await read_console_form()
    account = path_id(account_id)
    await service_account_resources.remove(ports(), acting_member(), account, path_id(resource_id))
    return redirect_with_notice("resource-scopes-removed", _path(account, "/api-resources"))
