"""The pages for service accounts, for an organization and for the platform.

A caller who is a `Member` sees their organization's accounts, and a platform owner sees the platform's accounts.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import UUID

from quart import Blueprint, Response

from core.kernel import roles
from core.kernel.callers import Member
from core.kernel.values import Page
from core.programs import service_accounts
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
from entrypoints.http import kit
from entrypoints.http.api.programs.service_accounts import (
    PlatformServiceAccountRequest,
    PlatformServiceAccountUpdateRequest,
    ServiceAccountRequest,
    ServiceAccountUpdateRequest,
    to_changes,
    to_new_account,
)
from entrypoints.http.api.tenancy.roles import giveable_options, role_choices
from entrypoints.http.edge.queries import MAX_LIMIT
from entrypoints.http.pages import console, console_forms, form_values, presets
from entrypoints.http.pages.programs import credential_forms

PLATFORM_LIST: Final = "/app/platform/service-accounts"
NOTICES: Final = {
    model.TakenOverCredentials.ENDED: "service-account-secrets-ended",
    model.TakenOverCredentials.END_LATER: "service-account-secrets-end",
    model.TakenOverCredentials.KNOWN: "service-account-secrets-known",
}
FIELDS: Final[console_forms.Fields] = {
    model.ServiceAccountRoleUnknown: "role",
    model.ServiceAccountAboveRole: "role",
    model.OwnerCannotOwnServiceAccount: "owner_id",
    model.OnlyOwnersNameOthers: "owner_id",
    model.OwnerNotYourself: "owner_id",
    model.ServiceAccountScopeUnknown: "scopes",
    model.CapabilityNotGrantable: "granted_capabilities",
    model.OnlyOwnersGrant: "granted_capabilities",
}
ALL: Final = "all_scopes"  # the checkbox name for all scopes
SCOPE: Final = "scope:"  # the checkbox name for a scope begins with this
GRANT: Final = "grant:"  # the checkbox name for a capability begins with this


def path_of(account_id: object = None, below: str = "") -> str:
    """Return the path to the list, to a service account's page, or to a page below it, such as `/credentials`."""
    path = console.organization_path("/service-accounts") if isinstance(kit.signed_in(), Member) else PLATFORM_LIST
    return path if account_id is None else f"{path}/{account_id}{below}"


async def find(account_id: UUID) -> ListedServiceAccount:
    """Return the service account in the path."""
    return await service_accounts.find(kit.ports(), kit.signed_in(), account_id)


def values_of(listed: ListedServiceAccount) -> dict[str, Any]:
    """Return the values for a service account's pages."""
    account = listed.account
    return {
        "listed": listed,
        "account": account,
        "path": path_of(account.id),
        "list_path": path_of(),
        "can_change": may_manage(_own_rights(), listed.role),
    }


def _own_rights() -> roles.Rights:
    caller = kit.signed_in()
    return caller.acts_in.rights if isinstance(caller, Member) else roles.PLATFORM_RIGHTS


def _parsers(form: Mapping[str, str]) -> dict[str, Any]:
    """Return the parsers for a form's checkboxes. Only owners have the checkboxes for capabilities."""
    parsers: dict[str, Any] = {"scopes": lambda _: None if ALL in form else form_values.checked(form, SCOPE)}
    if may_grant(_own_rights()):
        parsers["granted_capabilities"] = lambda _: form_values.checked(form, GRANT)
    return parsers


async def _possible_owners() -> list[tuple[str, str]]:
    """Return the users that this caller can make a service account's owner, by id and email address."""
    caller = kit.signed_in()
    if not isinstance(caller, Member) or not may_grant(caller.acts_in.rights):
        return [(str(caller.user_id), str(caller.email))]
    return [
        (str(member.user_id), str(member.email))
        for role in await list_choices(kit.ports(), caller)
        if roles.Capability.SERVICE_ACCOUNTS_MANAGE in role.rights
        for member in (await members.list_page(kit.ports(), caller, role.name, Page(1, MAX_LIMIT))).members
    ]


async def _form_values(typed: Mapping[str, Any], listed: ListedServiceAccount | None = None) -> dict[str, Any]:
    """Return the fields' values. `listed` is the account that the form changes, or None if it creates an account."""
    caller, rights = kit.signed_in(), _own_rights()
    owners = await _possible_owners()
    if listed is not None and str(listed.account.owner_id) not in dict(owners):
        # Without this option, the browser would choose the first person, and a name change would change the owner, too.
        owners = [("", f"No change ({listed.owner_email or 'has left'})"), *owners]
    return {
        "typed": typed,
        "roles": giveable_options(await role_choices(), to_program=True) if isinstance(caller, Member) else [],
        "owners": owners,
        "scopes": {scope: scope.description for scope in possible_scopes(of_platform=not isinstance(caller, Member))},
        "presets": _presets(),
        "grantable": {
            capability: roles.GRANTABLE[capability] for capability in (grantable_capabilities(rights) if may_grant(rights) else ())
        },
        "list_path": path_of(),
    }


def _presets() -> list[presets.Preset]:
    return presets.of_scopes(possible_scopes(of_platform=not isinstance(kit.signed_in(), Member)), SCOPE)


def _boxes(query: presets.PresetQuery | None) -> dict[str, str]:
    return {} if query is None else presets.boxes_of(_presets(), query.preset)


async def _new_values(typed: console_forms.Form, query_args: presets.PresetQuery | None = None) -> dict[str, Any]:
    return await _form_values(typed or {"owner_id": str(kit.signed_in().user_id), **(_boxes(query_args) or {ALL: "yes"})})


async def _settings_values(typed: console_forms.Form, account_id: UUID, query_args: presets.PresetQuery | None = None) -> dict[str, Any]:
    """Return the values for the settings page: the typed fields, or else the account's fields.

    A preset checks its own boxes instead of the account's scopes.
    """
    listed = await find(account_id)
    account = listed.account
    boxes = list(_boxes(query_args)) or ([f"{SCOPE}{scope}" for scope in account.scopes] if account.scopes is not None else [ALL])
    boxes += [f"{GRANT}{capability}" for capability in account.granted]
    stored = {"name": account.name, "role": account.role, "owner_id": str(account.owner_id), **dict.fromkeys(boxes, "yes")}
    return {**await _form_values(typed or stored, listed), **values_of(listed)}


async def _stored_values(_: console_forms.Form, account_id: UUID) -> dict[str, Any]:
    return await _settings_values({}, account_id)


async def _credential_values(account_id: UUID) -> dict[str, Any]:
    return values_of(await find(account_id))


async def _path_after_deletion(account: ServiceAccount) -> str:
    """Return the path to the secrets that the account leaves behind, for an owner, or to the list."""
    caller = kit.signed_in()
    if (
        isinstance(caller, Member)
        and may_grant(caller.acts_in.rights)
        and await service_accounts.list_created(kit.ports(), caller, account.id)
    ):
        return path_of(account.id, "/created-secrets")
    return path_of()


def declare(
    routes: Blueprint, page: str, api: str, opens: Callable[[kit.View], kit.View], changes: Callable[[kit.View], kit.View], *also: str
) -> None:
    """Register the list, the form for a new account, an account's settings, and its credentials.

    `page` and `api` are the list's routes. `also` are further API operations on an account.
    """
    one, api_of_one = f"{page}/<account_id>", f"{api}/<account_id>"
    of_platform = page == PLATFORM_LIST

    @routes.get(page)
    @opens
    @console.shows(f"GET {api}")
    async def show_accounts(query_args: kit.PageQuery, **_: str) -> Response:
        """List the service accounts."""
        result = await service_accounts.list_page(kit.ports(), kit.signed_in(), query_args.page_request())
        values = {"accounts": result.items, "path": path_of(), **console.neighbors(query_args, result.total)}
        return await console.console_page("programs/service_accounts.html", **values)

    @console_forms.serves_form(routes, f"{page}/new", query=presets.PresetQuery)
    @changes
    @console_forms.accepts(f"POST {api}")
    @console_forms.once(page, "Open service accounts", "The service account is in the list.")
    @console_forms.on_refusal("programs/new_service_account.html", _new_values, FIELDS)
    async def create(form: console_forms.Form, **_: str) -> Response:
        """Create a service account."""
        model = PlatformServiceAccountRequest if of_platform else ServiceAccountRequest
        listed = await service_accounts.create(
            console_forms.ports_once(), kit.signed_in(), to_new_account(form_values.to_model(model, form, _parsers(form)))
        )
        return console.redirect_with_notice("service-account-created", path_of(listed.account.id, "/credentials"))

    @console_forms.serves_form(
        routes, one, f"GET {api_of_one}", f"PATCH {api_of_one}", f"DELETE {api_of_one}", *also, query=presets.PresetQuery
    )
    @changes
    @console_forms.accepts(f"PATCH {api_of_one}")
    @console_forms.on_refusal("programs/service_account.html", _settings_values, FIELDS)
    async def change(form: console_forms.Form, account_id: UUID, **_: str) -> Response:
        """Change a service account."""
        model = PlatformServiceAccountUpdateRequest if of_platform else ServiceAccountUpdateRequest
        data = form_values.to_model(model, form, {**_parsers(form), "owner_id": form_values.to_choice})
        changed = await service_accounts.update(kit.ports(), kit.signed_in(), account_id, to_changes(data))
        notice = "service-account-saved" if changed.taken_over is None else NOTICES[changed.taken_over]
        return console.redirect_with_notice(notice, path_of(account_id))

    @routes.post(f"{one}/delete")
    @changes
    @console_forms.accepts(f"DELETE {api_of_one}")
    @console_forms.on_refusal("programs/service_account.html", _stored_values)
    async def delete(form: console_forms.Form, account_id: UUID, **_: str) -> Response:
        """Delete a service account."""
        account = (await find(account_id)).account
        console_forms.check_typed_name(form, account.name)
        await service_accounts.delete(kit.ports(), kit.signed_in(), account.id)
        return console.redirect_with_notice("service-account-deleted", await _path_after_deletion(account))

    credential_forms.declare(
        routes,
        f"{one}/credentials",
        f"{api_of_one}/credentials",
        opens,
        changes,
        template="programs/service_account_credentials.html",
        values=_credential_values,
        use_cases=(service_accounts.list_credentials, service_accounts.create_credential, service_accounts.revoke_credential),
    )
