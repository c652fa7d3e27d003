"""The pages for an organization's directory: SCIM tokens, the last requests, and the users that it blocks."""

from typing import Any, Final
from uuid import UUID

from quart import Blueprint, Response

from core.kernel.display import format_utc
from core.kernel.roles import Capability, has_rights_of_admin
from core.programs.model.organization_tokens import TokenExpiryPast
from core.provisioning import blocks
from core.provisioning import tokens as scim_tokens
from entrypoints.http.api.provisioning.tokens import ScimRequestsQuery, ScimTokenRequest, ScimTokenUpdateRequest
from entrypoints.http.base.context import acting_member, app_context, ports
from entrypoints.http.edge.access import GIVES, member_page
from entrypoints.http.edge.queries import PageQuery
from entrypoints.http.pages.consequences import Question, accepts_answer, asks, count, sentence
from entrypoints.http.pages.console import console_page, neighbors, organization_path, redirect_with_notice, secret_page, shows
from entrypoints.http.pages.console_forms import Fields, Form, accepts, answers_with, on_refusal, once, ports_once, serves_form
from entrypoints.http.pages.form_values import is_checked, to_model, to_start_of_day
from entrypoints.http.pages.organization_tokens import token_values

routes = Blueprint("directory_pages", __name__)

PAGE: Final = "/app/organizations/<org_slug>/directory"
TOKENS: Final = "/api/organizations/<org_slug>/scim-tokens"
REQUESTS: Final = "GET /api/organizations/<org_slug>/scim-requests"
BLOCKS: Final = "/api/organizations/<org_slug>/directory-blocks"
FIELDS: Final[Fields] = {TokenExpiryPast: "expires_at"}


def _path() -> str:
    return organization_path("/directory")


async def _values(typed: Form) -> dict[str, Any]:
    requests = await scim_tokens.list_last_requests(ports(), acting_member())
    return {
        "path": _path(),
        "base_url": f"{app_context().base_url}/scim/v2",
        "may_create": has_rights_of_admin(acting_member().acts_in.rights),
        "last": requests[0] if requests else None,
        **await token_values(await scim_tokens.list_tokens(ports(), acting_member()), typed),
    }


@serves_form(routes, PAGE, f"GET {TOKENS}", f"POST {TOKENS}", f"PATCH {TOKENS}/<token_id>", f"DELETE {TOKENS}/<token_id>")
@member_page(Capability.INTEGRATIONS_MANAGE, GIVES)
@accepts(f"POST {TOKENS}", answers=answers_with("The token."))
@once(PAGE, "Open the directory", "The token was shown once. If you didn't copy it, revoke it in the list and create another one.")
@on_refusal("provisioning/directory.html", _values, FIELDS)
async def create_token(org_slug: str, form: Form) -> Response:
    """Create a SCIM token.

    It is shown only once.
    """
    data = to_model(ScimTokenRequest, form, {"expires_at": to_start_of_day, "directory_groups": is_checked})
    token, secret = await scim_tokens.create(
        ports_once(), acting_member(), data.name, data.expires_at, directory_groups=data.directory_groups
    )
    return await secret_page(
        "SCIM token created",
        {"Base URL": f"{app_context().base_url}/scim/v2", token.name: secret},
        advice="Paste both into your directory.",
        done=("I've copied the token", _path()),
    )


async def _revocation(token_id: UUID) -> Question:
    end = await scim_tokens.describe_end(ports(), acting_member(), token_id)
    users = count(end.users, "user")
    return Question(
        verb="Revoke",
        target=end.token.name,
        consequences=(
            sentence(
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


@asks(routes, f"{PAGE}/tokens/<token_id>/revoke")
@member_page(Capability.INTEGRATIONS_MANAGE, GIVES)
@accepts_answer(f"DELETE {TOKENS}/<token_id>", _revocation)
async def revoke_token(org_slug: str, token_id: UUID, form: Form) -> Response:
    """Revoke a SCIM token."""
    await scim_tokens.revoke(ports(), acting_member(), token_id)
    return redirect_with_notice("token-revoked", _path())


async def _switch(token_id: UUID) -> Question:
    token = (await scim_tokens.describe_end(ports(), acting_member(), token_id)).token
    on = not token.directory_groups
    return Question(
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


@asks(routes, f"{PAGE}/tokens/<token_id>/groups")
@member_page(Capability.INTEGRATIONS_MANAGE, GIVES)
@accepts_answer(f"PATCH {TOKENS}/<token_id>", _switch)
async def switch_groups(org_slug: str, token_id: UUID, form: Form) -> Response:
    """Switch directory groups on or off."""
    data = to_model(ScimTokenUpdateRequest, form, {"directory_groups": is_checked})
    await scim_tokens.set_directory_groups(ports(), acting_member(), token_id, directory_groups=data.directory_groups)
    return redirect_with_notice(f"directory-groups-{'on' if data.directory_groups else 'off'}", _path())


@routes.get(f"{PAGE}/requests")
@member_page(Capability.INTEGRATIONS_MANAGE)
@shows(REQUESTS)
async def show_requests(org_slug: str, query_args: ScimRequestsQuery) -> Response:
    """List the directory's last requests, without values."""
    requests = await scim_tokens.list_last_requests(ports(), acting_member(), failed=query_args.failed)
    failed = "" if query_args.failed is None else str(query_args.failed).lower()
    return await console_page("provisioning/requests.html", requests=requests, path=_path(), failed=failed)


@routes.get(f"{PAGE}/blocks")
@member_page(Capability.MEMBERS_MANAGE)
@shows(f"GET {BLOCKS}", f"DELETE {BLOCKS}/<user_id>")
async def show_blocks(org_slug: str, query_args: PageQuery) -> Response:
    """List the users that the directory blocks."""
    result = await blocks.list_page(ports(), acting_member(), query_args.page_request())
    return await console_page("provisioning/blocks.html", blocks=result.items, path=_path(), **neighbors(query_args, result.total))


@routes.post(f"{PAGE}/blocks/<user_id>/remove")
@member_page(Capability.MEMBERS_MANAGE, GIVES)
@accepts(f"DELETE {BLOCKS}/<user_id>")
async def remove_block(org_slug: str, user_id: UUID) -> Response:
    """Remove the block on a user."""
    await blocks.remove(ports(), acting_member(), user_id)
    return redirect_with_notice("user-unblocked", f"{_path()}/blocks")
