"""The views of the pages of service accounts, which the routes of organizations and of the platform share.

A caller who is a `Member` sees the accounts of their organization, and a platform owner those of the platform.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID

from quart import Response

from core.kernel.callers import Member
from core.kernel.roles import GRANTABLE, PLATFORM_RIGHTS, Capability, Rights
from core.kernel.values import Page
from core.programs import created_secrets, service_accounts
from core.programs.model import service_accounts as model
from core.programs.model.service_accounts import (
    ListedServiceAccount,
    ServiceAccount,
    grantable_capabilities,
    may_grant,
    may_manage,
    possible_scopes,
)
from core.tenancy import members
from core.tenancy.roles import list_choices
from entrypoints.http.api.programs.service_account_models import (
    PlatformServiceAccountRequest,
    PlatformServiceAccountUpdateRequest,
    ServiceAccountRequest,
    ServiceAccountUpdateRequest,
    to_changes,
    to_new_account,
)
from entrypoints.http.api.tenancy.role_choices import giveable_options, role_choices
from entrypoints.http.base.context import ports, signed_in
from entrypoints.http.edge.queries import MAX_LIMIT, PageQuery
from entrypoints.http.pages.console import console_page, neighbors, organization_path, redirect_with_notice
from entrypoints.http.pages.console_forms import Fields, Form, check_typed_name, on_refusal, ports_once
from entrypoints.http.pages.form_values import checked, to_choice, to_model
from entrypoints.http.pages.presets import Preset, PresetQuery, boxes_of, of_scopes
from entrypoints.http.pages.programs import credential_forms
from entrypoints.http.pages.programs.credential_forms import NewCredentialQuery

PLATFORM_LIST: Final = "/app/platform/service-accounts"
FIELDS: Final[Fields] = {
    model.ServiceAccountRoleUnknown: "role",
    model.ServiceAccountAboveRole: "role",
    model.OwnerCannotOwnServiceAccount: "owner_id",
    model.OnlyOwnersNameOthers: "owner_id",
    model.OwnerNotYourself: "owner_id",
    model.ServiceAccountScopeUnknown: "scopes",
    model.CapabilityNotGrantable: "granted_capabilities",
    model.OnlyOwnersGrant: "granted_capabilities",
}
NO_BOXES: Final[Mapping[str, str]] = MappingProxyType({})
ALL: Final = "all_scopes"  # the name of the checkbox for all scopes
SCOPE: Final = "scope:"  # the name of the checkbox of a scope begins with this
GRANT: Final = "grant:"  # and that of a capability with this


def path_of(account_id: object = None, below: str = "") -> str:
    """Return the path of the list, or of the page of a service account, or of a page below it, such as `/credentials`."""
    path = organization_path("/service-accounts") if isinstance(signed_in(), Member) else PLATFORM_LIST
    return path if account_id is None else f"{path}/{account_id}{below}"


async def find(account_id: UUID) -> ListedServiceAccount:
    """Return the service account of the path. Raises: ServiceAccountNotFound."""
    return await service_accounts.find(ports(), signed_in(), account_id)


def values_of(listed: ListedServiceAccount) -> dict[str, Any]:
    """Return the values of the pages of a service account."""
    account = listed.account
    return {
        "listed": listed,
        "account": account,
        "path": path_of(account.id),
        "list_path": path_of(),
        "can_change": may_manage(_own_rights(), listed.role),
    }


def _own_rights() -> Rights:
    caller = signed_in()
    return caller.acts_in.rights if isinstance(caller, Member) else PLATFORM_RIGHTS


def _parsers(form: Mapping[str, str]) -> dict[str, Any]:
    """Return the parsers for the checkboxes of a form. Only owners have those of capabilities."""
    parsers: dict[str, Any] = {"scopes": lambda _: None if ALL in form else checked(form, SCOPE)}
    if may_grant(_own_rights()):
        parsers["granted_capabilities"] = lambda _: checked(form, GRANT)
    return parsers


async def _possible_owners() -> list[tuple[str, str]]:
    """Return the ids and email addresses of the users who can become the owner of a service account by this caller."""
    caller = signed_in()
    if not isinstance(caller, Member) or not may_grant(caller.acts_in.rights):
        return [(str(caller.user_id), str(caller.email))]
    return [
        (str(member.user_id), str(member.email))
        for role in await list_choices(ports(), caller)
        if Capability.SERVICE_ACCOUNTS_MANAGE in role.rights
        for member in (await members.list_page(ports(), caller, role.name, Page(1, MAX_LIMIT))).members
    ]


async def _form_values(typed: Mapping[str, Any], listed: ListedServiceAccount | None = None) -> dict[str, Any]:
    """Return the values of the fields. `listed` is the account that the form changes, or None if it creates one."""
    caller, rights = signed_in(), _own_rights()
    owners = await _possible_owners()
    if listed is not None and str(listed.account.owner_id) not in dict(owners):
        # Without this option, the browser would choose the first person, and a change of the name would change the owner, too.
        owners = [("", f"No change ({listed.owner_email or 'has left'})"), *owners]
    return {
        "typed": typed,
        "roles": giveable_options(await role_choices(), to_program=True) if isinstance(caller, Member) else [],
        "owners": owners,
        "scopes": {scope: scope.description for scope in possible_scopes(of_platform=not isinstance(caller, Member))},
        "presets": _presets(),
        "grantable": {capability: GRANTABLE[capability] for capability in (grantable_capabilities(rights) if may_grant(rights) else ())},
        "list_path": path_of(),
    }


def _presets() -> list[Preset]:
    return of_scopes(possible_scopes(of_platform=not isinstance(signed_in(), Member)), SCOPE)


def _preset_boxes(query: PresetQuery) -> dict[str, str]:
    return boxes_of(_presets(), query.preset)


async def _settings_values(
    listed: ListedServiceAccount, form: Mapping[str, str] | None = None, preset: Mapping[str, str] = NO_BOXES
) -> dict[str, Any]:
    """Return the values of the page with the settings, with the fields of `form`, or else of the account as it is.

    `preset` has the boxes of scopes that are checked instead of those of the account.
    """
    account = listed.account
    boxes = list(preset) or ([f"{SCOPE}{scope}" for scope in account.scopes] if account.scopes is not None else [ALL])
    boxes += [f"{GRANT}{capability}" for capability in account.granted]
    stored = {"name": account.name, "role": account.role, "owner_id": str(account.owner_id), **dict.fromkeys(boxes, "yes")}
    return {**await _form_values(stored if form is None else form, listed), **values_of(listed)}


async def show_accounts(query: PageQuery) -> Response:
    """Show a page of the list."""
    result = await service_accounts.list_page(ports(), signed_in(), query.page_request())
    return await console_page("programs/service_accounts.html", accounts=result.items, path=path_of(), **neighbors(query, result.total))


async def show_form(query: PresetQuery) -> Response:
    """Show the form that creates a service account."""
    typed = {"owner_id": str(signed_in().user_id), **(_preset_boxes(query) or {ALL: "yes"})}
    return await console_page("programs/new_service_account.html", **await _form_values(typed))


@on_refusal("programs/new_service_account.html", _form_values, FIELDS)
async def create(form: Form) -> Response:
    """Create a service account."""
    caller = signed_in()
    model = ServiceAccountRequest if isinstance(caller, Member) else PlatformServiceAccountRequest
    listed = await service_accounts.create(ports_once(), caller, to_new_account(to_model(model, form, _parsers(form))))
    return redirect_with_notice("service-account-created", path_of(listed.account.id, "/credentials"))


async def show_account(account_id: UUID, query: PresetQuery) -> Response:
    """Show a service account with its settings."""
    values = await _settings_values(await find(account_id), preset=_preset_boxes(query))
    return await console_page("programs/service_account.html", **values)


async def _typed_values(form: Form, account_id: UUID) -> dict[str, Any]:
    return await _settings_values(await find(account_id), form)


@on_refusal("programs/service_account.html", _typed_values, FIELDS)
async def change(form: Form, account_id: UUID) -> Response:
    """Change a service account."""
    listed, caller = await find(account_id), signed_in()
    model = ServiceAccountUpdateRequest if isinstance(caller, Member) else PlatformServiceAccountUpdateRequest
    changes = to_changes(to_model(model, form, {**_parsers(form), "owner_id": to_choice}))
    await service_accounts.update(ports(), caller, listed.account.id, changes)
    return redirect_with_notice("service-account-saved", path_of(listed.account.id))


async def _stored_values(_: Form, account_id: UUID) -> dict[str, Any]:
    return await _settings_values(await find(account_id))


@on_refusal("programs/service_account.html", _stored_values)
async def delete(form: Form, account_id: UUID) -> Response:
    """Delete a service account."""
    listed = await find(account_id)
    check_typed_name(form, listed.account.name)
    await service_accounts.delete(ports(), signed_in(), listed.account.id)
    return redirect_with_notice("service-account-deleted", await _path_after_deletion(listed.account))


async def _path_after_deletion(account: ServiceAccount) -> str:
    """Return the path of the secrets that the account leaves behind, for an owner, or of the list."""
    caller = signed_in()
    if isinstance(caller, Member) and may_grant(caller.acts_in.rights) and await created_secrets.list_created(ports(), caller, account.id):
        return path_of(account.id, "/created-secrets")
    return path_of()


async def show_credentials(account_id: UUID) -> Response:
    """Show the credentials of a service account."""
    listed = await find(account_id)
    credentials = await service_accounts.list_credentials(ports(), signed_in(), listed.account.id)
    values = {**values_of(listed), **credential_forms.list_values(credentials)}
    return await console_page("programs/service_account_credentials.html", **values)


async def show_credential_form(account_id: UUID, query: NewCredentialQuery) -> Response:
    """Show the form that creates a credential."""
    values = {**values_of(await find(account_id)), **credential_forms.form_values(query.kind, {})}
    return await console_page("programs/new_credential.html", **values)


async def _credential_values(form: Form, account_id: UUID) -> dict[str, Any]:
    return {**values_of(await find(account_id)), **credential_forms.typed_values(form)}


@on_refusal("programs/new_credential.html", _credential_values, credential_forms.FIELDS)
async def create_credential(form: Form, account_id: UUID) -> Response:
    """Create a credential."""
    listed = await find(account_id)
    request = credential_forms.read_credential(form)
    credential, secret = await service_accounts.create_credential(ports_once(), signed_in(), listed.account.id, request)
    return await credential_forms.created_page(credential, secret, path_of(listed.account.id, "/credentials"))


async def revoke_credential(account_id: UUID, credential_id: UUID) -> Response:
    """Revoke a credential."""
    await service_accounts.revoke_credential(ports(), signed_in(), account_id, credential_id)
    return redirect_with_notice("credential-revoked", path_of(account_id, "/credentials"))
