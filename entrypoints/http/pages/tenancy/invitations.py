"""The pages for invitations: the list, and the form that invites many addresses at once."""

import re
from collections.abc import Collection
from typing import Any, Final
from uuid import UUID

from quart import Blueprint, Response

from core.kernel.roles import OWNER, Capability
from core.kernel.values import Email, EmailInvalid
from core.tenancy import invitations, inviting, roles
from core.tenancy.model.invitations import MAX_BULK_INVITATIONS, InvitationStatus, OwnerNotInvitable
from core.tenancy.model.members import RoleUnknown
from entrypoints.http.api.tenancy.invitations import InvitationsQuery
from entrypoints.http.api.tenancy.roles import giveable_options, role_choices, role_filter
from entrypoints.http.base.context import acting_member, ports
from entrypoints.http.edge.access import GIVES, member_page
from entrypoints.http.pages.console import console_page, neighbors, organization_path, redirect_with_notice, shows
from entrypoints.http.pages.console_forms import Fields, Form, accepts, answers_with, on_refusal, once, ports_once, serves_form
from entrypoints.http.pages.form_values import FieldInvalid

routes = Blueprint("invitation_list_pages", __name__)

FIELDS: Final[Fields] = {RoleUnknown: "role", OwnerNotInvitable: "role"}
LIST: Final = "/app/organizations/<org_slug>/invitations"
API: Final = "/api/organizations/<org_slug>/invitations"
BULK: Final = f"POST {API}/bulk"
STATUSES: Final = [("", "All states"), *((status.value, status.value.capitalize()) for status in InvitationStatus)]
MAX_LINES_SHOWN: Final = 5  # lines in an error
MAX_LENGTH_SHOWN: Final = 60  # characters from a line in an error
SEPARATORS: Final = re.compile(r'[,;\s"<>]+')
CELLS: Final = re.compile(r"[,;\t]+")
HEADS: Final = frozenset({"email", "e-mail", "mail", "address", "email address"})  # names for a column with addresses


@routes.get(LIST)
@member_page(Capability.MEMBERS_MANAGE)
@shows(f"GET {API}", f"POST {API}/<invitation_id>", f"POST {API}/<invitation_id>/resend")
async def show_invitations(org_slug: str, query_args: InvitationsQuery) -> Response:
    """List an organization's invitations."""
    return await console_page("tenancy/invitations.html", **await _list_values(query_args))


async def _all(_: Form, invitation_id: UUID) -> dict[str, Any]:
    return await _list_values(InvitationsQuery())


async def _list_values(query: InvitationsQuery) -> dict[str, Any]:
    result = await invitations.list_page(ports(), acting_member(), query.status, query.page_request(), search=query.search, role=query.role)
    return {
        "invitations": result.items,
        "query": query,
        "statuses": STATUSES,
        "roles": role_filter(await role_choices()),
        **neighbors(query, result.total),
    }


@routes.post(f"{LIST}/<invitation_id>/cancel")
@member_page(Capability.MEMBERS_MANAGE, GIVES)
@accepts(f"POST {API}/<invitation_id>")
async def cancel(org_slug: str, invitation_id: UUID) -> Response:
    """Cancel a pending invitation."""
    await invitations.cancel(ports(), acting_member(), invitation_id)
    return redirect_with_notice("invitation-canceled", organization_path("/invitations"))


@routes.post(f"{LIST}/<invitation_id>/resend")
@member_page(Capability.MEMBERS_MANAGE, GIVES)
@accepts(f"POST {API}/<invitation_id>/resend")
@on_refusal("tenancy/invitations.html", _all)
async def resend(org_slug: str, invitation_id: UUID, form: Form) -> Response:
    """Send a pending or expired invitation again."""
    await inviting.resend(ports(), acting_member(), invitation_id)
    return redirect_with_notice("invitation-resent", organization_path("/invitations"))


async def _form_values(typed: Form) -> dict[str, Any]:
    return {"typed": typed, "most": MAX_BULK_INVITATIONS, "roles": giveable_options(await role_choices())}


@serves_form(routes, f"{LIST}/new")
@member_page(Capability.MEMBERS_MANAGE, GIVES)
@accepts(BULK, answers=answers_with("The result for each address."))
@once(LIST, "Open invitations", "The invitations are in the list. To send one again, use its button there.")
@on_refusal("tenancy/new_invitations.html", _form_values, FIELDS)
async def invite(org_slug: str, form: Form) -> Response:
    """Invite addresses to the organization.

    The page shows the result for every address.
    """
    names = [role.name for role in await roles.list_choices(ports(), acting_member()) if role.name != OWNER]
    invitees = parse_addresses(form.get("addresses", ""), form.get("role", ""), names)
    results = await inviting.invite_many(ports_once(), acting_member(), invitees)
    return await console_page(
        "tenancy/invitation_results.html",
        results=results,
        has_mail_server=ports().installation.has_mail_server,
        invited=sum(result.invitation is not None for result in results),
    )


def parse_addresses(text: str, role: str, names: Collection[str]) -> list[tuple[Email, str]]:
    """Return the addresses in a pasted text or CSV, with their roles.

    A cell beside the address that names a role is its role.

    Raises: FieldInvalid if there is no address, too many, an address that is not valid, or a line without an address, except a CSV's head.
    """
    found: dict[Email, str] = {}
    wrong = []
    for line in text.splitlines():
        parts = [part for part in SEPARATORS.split(line) if part]
        cells = {cell.strip(" \"'").lower() for cell in CELLS.split(line)}
        addresses = [part.strip("'") for part in parts if "@" in part]
        own_role = next((each for each in names if len(addresses) == 1 and each in cells), role)
        if parts and not addresses and not cells & HEADS:
            wrong.append(line.strip())
        for address in addresses:
            try:
                found[Email(Email.parse(address))] = own_role
            except EmailInvalid:
                wrong.append(address)
    if wrong:
        shown = ", ".join(each[:MAX_LENGTH_SHOWN] for each in wrong[:MAX_LINES_SHOWN])
        more = f" and {len(wrong) - MAX_LINES_SHOWN} more" if len(wrong) > MAX_LINES_SHOWN else ""
        raise FieldInvalid(f"These are no email addresses: {shown}{more}. Correct or remove them.", "addresses")
    if not found:
        raise FieldInvalid("Enter at least one email address.", "addresses")
    if len(found) > MAX_BULK_INVITATIONS:
        raise FieldInvalid(f"Invite at most {MAX_BULK_INVITATIONS} addresses at once. These are {len(found)}.", "addresses")
    return list(found.items())
