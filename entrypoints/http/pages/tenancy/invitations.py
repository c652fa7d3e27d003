"""The pages for invitations: the list, and the form that invites many addresses at once."""

import re
from collections.abc import Collection
from typing import Any, Final
from uuid import UUID

from quart import Blueprint, Response

from core.kernel import values
from core.kernel.roles import OWNER, Capability
from core.tenancy import invitations, inviting, roles
from core.tenancy.model.invitations import MAX_BULK_INVITATIONS, InvitationStatus, OwnerNotInvitable
from core.tenancy.model.members import RoleUnknown
from entrypoints.http import kit
from entrypoints.http.api.tenancy.invitations import InvitationsQuery
from entrypoints.http.api.tenancy.roles import giveable_options, role_choices, role_filter
from entrypoints.http.pages import console, console_forms
from entrypoints.http.pages.form_values import FieldInvalid

routes = Blueprint("invitation_list_pages", __name__)

FIELDS: Final[console_forms.Fields] = {RoleUnknown: "role", OwnerNotInvitable: "role"}
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
@kit.member_page(Capability.MEMBERS_MANAGE)
@console.shows(f"GET {API}", f"POST {API}/<invitation_id>", f"POST {API}/<invitation_id>/resend")
async def show_invitations(org_slug: str, query_args: InvitationsQuery) -> Response:
    """List an organization's invitations."""
    return await console.console_page("tenancy/invitations.html", **await _list_values(query_args))


async def _all(_: console_forms.Form, invitation_id: UUID) -> dict[str, Any]:
    return await _list_values(InvitationsQuery())


async def _list_values(query: InvitationsQuery) -> dict[str, Any]:
    result = await invitations.list_page(
        kit.ports(), kit.acting_member(), query.status, query.page_request(), search=query.search, role=query.role
    )
    return {
        "invitations": result.items,
        "query": query,
        "statuses": STATUSES,
        "roles": role_filter(await role_choices()),
        **console.neighbors(query, result.total),
    }


@routes.post(f"{LIST}/<invitation_id>/cancel")
@kit.member_page(Capability.MEMBERS_MANAGE, kit.GIVES)
@console_forms.accepts(f"POST {API}/<invitation_id>")
async def cancel(org_slug: str, invitation_id: UUID) -> Response:
    """Cancel a pending invitation."""
    await invitations.cancel(kit.ports(), kit.acting_member(), invitation_id)
    return console.redirect_with_notice("invitation-canceled", console.organization_path("/invitations"))


@routes.post(f"{LIST}/<invitation_id>/resend")
@kit.member_page(Capability.MEMBERS_MANAGE, kit.GIVES)
@console_forms.accepts(f"POST {API}/<invitation_id>/resend")
@console_forms.on_refusal("tenancy/invitations.html", _all)
async def resend(org_slug: str, invitation_id: UUID, form: console_forms.Form) -> Response:
    """Send a pending or expired invitation again."""
    await inviting.resend(kit.ports(), kit.acting_member(), invitation_id)
    return console.redirect_with_notice("invitation-resent", console.organization_path("/invitations"))


async def _form_values(typed: console_forms.Form) -> dict[str, Any]:
    return {"typed": typed, "most": MAX_BULK_INVITATIONS, "roles": giveable_options(await role_choices())}


@console_forms.serves_form(routes, f"{LIST}/new")
@kit.member_page(Capability.MEMBERS_MANAGE, kit.GIVES)
@console_forms.accepts(BULK, answers=console_forms.answers_with("The result for each address."))
@console_forms.once(LIST, "Open invitations", "The invitations are in the list. To send one again, use its button there.")
@console_forms.on_refusal("tenancy/new_invitations.html", _form_values, FIELDS)
async def invite(org_slug: str, form: console_forms.Form) -> Response:
    """Invite addresses to the organization."""
    names = [role.name for role in await roles.list_choices(kit.ports(), kit.acting_member()) if role.name != OWNER]
    invitees = parse_addresses(form.get("addresses", ""), form.get("role", ""), names)
    results = await inviting.invite_many(console_forms.ports_once(), kit.acting_member(), invitees)
    return await console.console_page(
        "tenancy/invitation_results.html",
        results=results,
        has_mail_server=kit.ports().installation.has_mail_server,
        invited=sum(result.invitation is not None for result in results),
    )


def parse_addresses(text: str, role: str, names: Collection[str]) -> list[tuple[values.Email, str]]:
    """Return the addresses in a pasted text or CSV, with their roles.

    A cell beside the address that names a role is its role.

    Raises: FieldInvalid if there is no address, too many, an address that is not valid, or a line without an address, except a CSV's head.
    """
    found: dict[values.Email, str] = {}
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
                found[values.Email(values.Email.parse(address))] = own_role
            except values.EmailInvalid:
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
