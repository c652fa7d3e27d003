"""The pages for an organization's directory: SCIM tokens, the last requests, and the users that it blocks."""

from typing import Any, Final
from uuid import UUID

from quart import Blueprint, Response

from core.kernel import roles
from core.kernel.display import format_utc
from core.programs.model.organization_tokens import TokenExpiryPast
from core.provisioning import blocks
from core.provisioning import tokens as scim_tokens
from entrypoints.http import kit
from entrypoints.http.api.provisioning import tokens
from entrypoints.http.base.context import app_context
from entrypoints.http.pages import consequences, console, console_forms, form_values
from entrypoints.http.pages.organization_tokens import token_values

routes = Blueprint("directory_pages", __name__)

PAGE: Final = "/app/organizations/<org_slug>/directory"
TOKENS: Final = "/api/organizations/<org_slug>/scim-tokens"
REQUESTS: Final = "GET /api/organizations/<org_slug>/scim-requests"
BLOCKS: Final = "/api/organizations/<org_slug>/directory-blocks"
FIELDS: Final[console_forms.Fields] = {TokenExpiryPast: "expires_at"}


def _path() -> str:
    return console.organization_path("/directory")


async def _values(typed: console_forms.Form) -> dict[str, Any]:
    requests = await scim_tokens.list_last_requests(kit.ports(), kit.acting_member())
    return {
        "path": _path(),
        "base_url": f"{app_context().base_url}/scim/v2",
        "may_create": roles.has_rights_of_admin(kit.acting_member().acts_in.rights),
        "last": requests[0] if requests else None,
        **await token_values(await scim_tokens.list_tokens(kit.ports(), kit.acting_member()), typed),
    }


@console_forms.serves_form(routes, PAGE, f"GET {TOKENS}", f"POST {TOKENS}", f"PATCH {TOKENS}/<token_id>", f"DELETE {TOKENS}/<token_id>")
@kit.member_page(roles.Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@console_forms.accepts(f"POST {TOKENS}", answers=console_forms.answers_with("The token."))
@console_forms.once(
    PAGE, "Open the directory", "The token was shown once. If you didn't copy it, revoke it in the list and create another one."
)
@console_forms.on_refusal("provisioning/directory.html", _values, FIELDS)
async def create_token(org_slug: str, form: console_forms.Form) -> Response:
    """Create a SCIM token."""
    data = form_values.to_model(
        tokens.ScimTokenRequest, form, {"expires_at": form_values.to_start_of_day, "directory_groups": form_values.is_checked}
    )
    token, secret = await scim_tokens.create(
        console_forms.ports_once(), kit.acting_member(), data.name, data.expires_at, directory_groups=data.directory_groups
    )
    return await console.secret_page(
        "SCIM token created",
        {"Base URL": f"{app_context().base_url}/scim/v2", token.name: secret},
        advice="Paste both into your directory.",
        done=("I've copied the token", _path()),
    )


async def _revocation(token_id: UUID) -> consequences.Question:
    end = await scim_tokens.describe_end(kit.ports(), kit.acting_member(), token_id)
    users = consequences.count(end.users, "user")
    return consequences.Question(
        verb="Revoke",
        target=end.token.name,
        consequences=(
            consequences.sentence(
                "{} stops provisioning: its requests are refused at once. The directory sees " + users + " here. They stay, "
                "and users who leave are no longer blocked.",
                end.token.name,
            ),
            "No request with this token is in the log."
            if end.last_used_at is None
            else f"Its last request was on {format_utc(end.last_used_at)}.",
        ),
        button="Revoke token",
        keep="Keep token",
        back=("Directory", _path()),
    )


@consequences.asks(routes, f"{PAGE}/tokens/<token_id>/revoke")
@kit.member_page(roles.Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@consequences.accepts_answer(f"DELETE {TOKENS}/<token_id>", _revocation)
async def revoke_token(org_slug: str, token_id: UUID, form: console_forms.Form) -> Response:
    """Revoke a SCIM token."""
    await scim_tokens.revoke(kit.ports(), kit.acting_member(), token_id)
    return console.redirect_with_notice("token-revoked", _path())


async def _switch(token_id: UUID) -> consequences.Question:
    token = (await scim_tokens.describe_end(kit.ports(), kit.acting_member(), token_id)).token
    on = not token.directory_groups
    return consequences.Question(
        verb="Switch on directory groups for" if on else "Switch off directory groups for",
        target=token.name,
        consequences=(
            "The directory may create groups here, and change and delete groups of directories. They open only the applications that "
            "you assign them to."
            if on
            else "Requests about groups of directories are refused at once. The groups and their users stay. You can change them "
            "yourself, unless another token has directory groups.",
        ),
        button="Switch on" if on else "Switch off",
        back=("Directory", _path()),
        dangerous=not on,
        answered={"directory_groups": "yes" if on else ""},
    )


@consequences.asks(routes, f"{PAGE}/tokens/<token_id>/groups")
@kit.member_page(roles.Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@consequences.accepts_answer(f"PATCH {TOKENS}/<token_id>", _switch)
async def switch_groups(org_slug: str, token_id: UUID, form: console_forms.Form) -> Response:
    """Switch directory groups on or off."""
    data = form_values.to_model(tokens.ScimTokenUpdateRequest, form, {"directory_groups": form_values.is_checked})
    await scim_tokens.set_directory_groups(kit.ports(), kit.acting_member(), token_id, directory_groups=data.directory_groups)
    return console.redirect_with_notice(f"directory-groups-{'on' if data.directory_groups else 'off'}", _path())


@routes.get(f"{PAGE}/requests")
@kit.member_page(roles.Capability.INTEGRATIONS_MANAGE)
@console.shows(REQUESTS)
async def show_requests(org_slug: str, query_args: tokens.ScimRequestsQuery) -> Response:
    """List the directory's last requests, without values."""
    requests = await scim_tokens.list_last_requests(kit.ports(), kit.acting_member(), failed=query_args.failed)
    failed = "" if query_args.failed is None else str(query_args.failed).lower()
    return await console.console_page("provisioning/requests.html", requests=requests, path=_path(), failed=failed)


@routes.get(f"{PAGE}/blocks")
@kit.member_page(roles.Capability.MEMBERS_MANAGE)
@console.shows(f"GET {BLOCKS}", f"DELETE {BLOCKS}/<user_id>")
async def show_blocks(org_slug: str, query_args: kit.PageQuery) -> Response:
    """List the users that the directory blocks."""
    result = await blocks.list_page(kit.ports(), kit.acting_member(), query_args.page_request())
    return await console.console_page(
        "provisioning/blocks.html", blocks=result.items, path=_path(), **console.neighbors(query_args, result.total)
    )


@routes.post(f"{PAGE}/blocks/<user_id>/remove")
@kit.member_page(roles.Capability.MEMBERS_MANAGE, kit.GIVES)
@console_forms.accepts(f"DELETE {BLOCKS}/<user_id>")
async def remove_block(org_slug: str, user_id: UUID) -> Response:
    """Remove the block on a user."""
    await blocks.remove(kit.ports(), kit.acting_member(), user_id)
    return console.redirect_with_notice("user-unblocked", f"{_path()}/blocks")
