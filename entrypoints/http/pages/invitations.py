"""Pages of invitations, behind the link in an invitation email. They need no session."""

from typing import Final
from urllib.parse import urlencode

from quart import Blueprint, Response, request

from core.kernel.display import ROLES, format_utc
from core.kernel.errors import Invalid
from core.kernel.values import parse_id
from core.tenancy import branding, invitations
from entrypoints.http.edge.access import anyone
from entrypoints.http.edge.context import app_context, caller, page_response, ports
from entrypoints.http.edge.forms import read_form
from entrypoints.http.edge.openapi import describes_page
from entrypoints.http.pages import render

routes = Blueprint("invitation_pages", __name__)


class LinkIncomplete(Invalid):
    """This link is incomplete. Copy the whole link from the invitation email, or ask for a new invitation."""


@routes.get("/invitations/accept")
@anyone
@describes_page(
    {301: "Redirect to the page that shows the invitation.", 400: "The token is not a UUID."},
    query={"token": "The token from the email."},
)
async def follow_link() -> Response:
    """Follow the link in an invitation email.

    Redirects to the page of the frontend, if the operator has configured one, or else to our own
    page.
    """
    token = request.args.get("token", "")
    if parse_id(token) is None:
        raise LinkIncomplete
    location = f"{app_context().acceptance_page}?{urlencode({'token': token})}"
    # The middleware sets these headers, too. They are repeated here, because without them browsers
    # keep the redirect with the token in their cache forever (security R-7).
    headers = {"Location": location, "Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}
    return Response(b"", 301, headers)


@routes.get("/app/invitations/accept")
@anyone
@describes_page(
    {200: "The invitation, with buttons to accept and decline it.", 400: "The invitation is not pending, or has expired."},
    query={"token": "The token from the email."},
)
async def invitation_page() -> Response:
    """Show an invitation.

    The page has buttons to accept and to decline. Opening it changes nothing.
    """
    token = request.args.get("token", "")
    received = await invitations.get_by_token(ports(), token)
    invitation = received.invitation
    page = render(
        "invitation.html",
        form_action="'self'",
        design=await branding.get_design(ports(), invitation.org_id),
        token=token,
        organization=received.organization_name,
        inviter=received.inviter_email,
        email=invitation.email,
        role=ROLES[invitation.role],
        until=format_utc(invitation.expires_at),
    )
    return page_response(page)


ANSWERED: Final = {
    200: "The invitation is answered.",
    400: "The invitation is not pending, has expired, or cannot be accepted now.",
    403: "The form was sent from another site, or the organization is not active.",
}


@routes.post("/app/invitations/accept")
@anyone
@describes_page(ANSWERED, form=["token"])
async def accept_by_form() -> Response:
    """Accept an invitation with the form of its page.

    The response page shows how to sign in. If there was no account with the invited address, one is
    created without a password.
    """
    token = await _form_token()
    design = await invitations.get_design(ports(), token)
    organization = await invitations.accept(ports(), caller(), token)
    return page_response(render("invitation_accepted.html", design=design, organization=organization.name))


@routes.post("/app/invitations/decline")
@anyone
@describes_page(ANSWERED, form=["token"])
async def decline_by_form() -> Response:
    """Decline an invitation with the form of its page.

    The invitation cannot be accepted afterwards.
    """
    token = await _form_token()
    design = await invitations.get_design(ports(), token)
    organization = await invitations.decline(ports(), caller(), token)
    return page_response(render("invitation_declined.html", design=design, organization=organization.name))


async def _form_token() -> str:
    """Return the invitation token of the form.

    It also protects against CSRF, because other sites do not know it (security G-2).
    """
    return (await read_form()).get("token", "")
