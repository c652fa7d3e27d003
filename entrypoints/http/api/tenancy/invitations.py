"""Invitations, for those who invite and for those who are invited (organizations.md section 4.7), and the pages that the link of an
invitation's mail leads to."""

from typing import Annotated, Final
from urllib.parse import urlencode
from uuid import UUID

from pydantic import WithJsonSchema
from quart import Blueprint, Response, request
from quart_schema import validate_querystring, validate_request, validate_response

from core.kernel.display import ROLES, format_utc
from core.kernel.errors import Invalid
from core.kernel.principals import Capability, Role
from core.kernel.values import Email, parse_id
from core.tenancy import branding, invitations
from core.tenancy.invitations_rules import Invitation, InvitationStatus, ListedInvitation, ReceivedInvitation
from entrypoints.http.edge.access import anyone, member, person_anywhere, person_if_present
from entrypoints.http.edge.bodies import EmailAddress, Empty, RequestModel, ResponseModel, Text, Timestamp
from entrypoints.http.edge.context import acting_member, app_context, caller, page_response, ports, signed_in
from entrypoints.http.edge.forms import read_form
from entrypoints.http.edge.openapi import describes_page, refuses
from entrypoints.http.edge.queries import PageQuery, path_id
from entrypoints.http.pages import render

routes = Blueprint("invitations", __name__)


# For those who invite


class InvitationShown(ResponseModel):
    """An invitation (organizations.md section 2.5); `token` is the SHA-256 of the secret in the mail."""

    id: UUID
    org_id: UUID
    email: str
    role: Role
    invited_by: UUID
    status: InvitationStatus
    token: str
    expires_at: Timestamp
    created_at: Timestamp


class InviterShown(ResponseModel):
    """Who invited; `id` is `unknown` where the account does not exist any more (organizations.md section 2.3)."""

    id: str
    email: str
    created_at: Timestamp


class InvitationListed(ResponseModel):
    """An invitation and who made it."""

    invitation: InvitationShown
    inviter: InviterShown


class InvitationMade(InvitationListed):
    """An invitation and who made it; `token` is the secret itself, which is told only here and in the mail."""

    token: str


class NewInvitation(RequestModel):
    """Whom to invite, and what they shall be in the organization."""

    email: EmailAddress
    # A string, because the names of roles are not ours alone for ever; which there are is the use case's to know.
    role: Annotated[Text, WithJsonSchema({"type": "string", "enum": [Role.ADMIN.value, Role.MEMBER.value]})]


@routes.post("/api/organizations/<org_slug>/invitations")
@member(Capability.MEMBERS_MANAGE)
@refuses(429)
@validate_request(NewInvitation)
@validate_response(InvitationMade)
async def invite(org_slug: str, data: NewInvitation) -> InvitationMade:
    """Invite somebody by email. Whoever may not manage roles invites members only."""
    made, token = await invitations.invite(ports(), acting_member(), Email(data.email), data.role)
    return InvitationMade(**dict(_listed(made)), token=token)


class InvitationsQuery(PageQuery):
    """Which page of the invitations, and of which status; all of them unless it is given."""

    status: InvitationStatus | None = None


@routes.get("/api/organizations/<org_slug>/invitations")
@member(Capability.MEMBERS_MANAGE)
@refuses(400)
@validate_querystring(InvitationsQuery)
@validate_response(list[InvitationListed])
async def invitations_page(org_slug: str, query_args: InvitationsQuery) -> tuple[list[InvitationListed], int, dict[str, str]]:
    """List the organization's invitations, the newest first; the header X-Total-Count has how many there are."""
    found = await invitations.list_page(ports(), acting_member(), query_args.status, query_args.wanted())
    # With the status: quart-schema forgets the headers of a pair.
    return [_listed(one) for one in found.items], 200, {"X-Total-Count": str(found.total)}


@routes.post("/api/organizations/<org_slug>/invitations/<invitation_id>")
@member(Capability.MEMBERS_MANAGE)
@validate_response(Empty)
async def cancel(org_slug: str, invitation_id: str) -> Empty:
    """Cancel a pending invitation."""
    await invitations.cancel(ports(), acting_member(), path_id(invitation_id))
    return Empty()


@routes.post("/api/organizations/<org_slug>/invitations/<invitation_id>/accept")
@member(Capability.MEMBERS_MANAGE, impersonated=False)
@refuses(400)
@validate_response(Empty)
async def accept_for(org_slug: str, invitation_id: str) -> Empty:
    """Accept a pending invitation for somebody who has an account."""
    await invitations.accept_on_behalf(ports(), acting_member(), path_id(invitation_id))
    return Empty()


def _listed(listed: ListedInvitation) -> InvitationListed:
    inviter = listed.inviter
    return InvitationListed(
        invitation=_show(listed.invitation), inviter=InviterShown(id=inviter.id, email=inviter.email, created_at=inviter.created_at)
    )


def _show(invitation: Invitation) -> InvitationShown:
    return InvitationShown(
        id=invitation.id,
        org_id=invitation.org_id,
        email=invitation.email,
        role=invitation.role,
        invited_by=invitation.invited_by,
        status=invitation.status,
        token=invitation.token_hash.hex(),
        expires_at=invitation.expires_at,
        created_at=invitation.created_at,
    )


# For those who are invited


class InvitedTo(ResponseModel):
    """The organization that somebody is invited to."""

    slug: str
    name: str


class InvitationOffered(ResponseModel):
    """An invitation that you can accept or decline; `token` stands for the secret in the mail as long as it is you who sends it."""

    id: UUID
    email: str
    role: Role
    token: str
    expires_at: Timestamp
    created_at: Timestamp
    organization: InvitedTo


@routes.get("/api/invitations")
@person_anywhere
@refuses(404)
@validate_response(list[InvitationOffered])
async def offers() -> list[InvitationOffered]:
    """List what you are invited to. The list is empty until your email address is verified."""
    return [_offered(offer) for offer in await invitations.list_received(ports(), signed_in())]


def _offered(offer: ReceivedInvitation) -> InvitationOffered:
    invitation = offer.invitation
    return InvitationOffered(
        id=invitation.id,
        email=invitation.email,
        role=invitation.role,
        token=invitation.token_hash.hex(),
        expires_at=invitation.expires_at,
        created_at=invitation.created_at,
        organization=InvitedTo(slug=offer.organization_slug, name=offer.organization_name),
    )


class InvitationToken(RequestModel):
    """The token of the mail; or, from the invited person, signed in, the one of the own list."""

    token: Text


@routes.post("/api/invitations/accept")
@person_if_present(impersonated=False)
@validate_request(InvitationToken)
@validate_response(Empty)
async def accept(data: InvitationToken) -> Empty:
    """Accept an invitation. Without an account you get one; choose its password with POST /api/auth/forgot-password."""
    await invitations.accept(ports(), caller(), data.token)
    return Empty()


@routes.post("/api/invitations/decline")
@person_if_present
@validate_request(InvitationToken)
@validate_response(Empty)
async def decline(data: InvitationToken) -> Empty:
    """Decline an invitation."""
    await invitations.decline(ports(), caller(), data.token)
    return Empty()


# In a browser


class LinkIncomplete(Invalid):
    """This link is not complete. Open it as it stands in the mail."""


@routes.get("/invitations/accept")
@anyone
@describes_page({301: "The page that shows the invitation.", 400: "The token is not a UUID."}, query={"token": "the token of the mail"})
async def follow_link() -> Response:
    """Where the link of an invitation's mail leads: on to the frontend's page, or to our own."""
    token = request.args.get("token", "")
    if parse_id(token) is None:
        raise LinkIncomplete
    location = f"{app_context().acceptance_page}?{urlencode({'token': token})}"
    # Said here as well as by the outer layer, because a 301 is kept for ever otherwise (security.md R-7).
    headers = {"Location": location, "Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}
    return Response(b"", 301, headers)


@routes.get("/app/invitations/accept")
@anyone
@describes_page({200: "The invitation.", 400: "It has expired, or was answered or cancelled."}, query={"token": "the token of the mail"})
async def invitation_page() -> Response:
    """The page that shows an invitation. Looking at it answers nothing."""
    token = request.args.get("token", "")
    offer = await invitations.get_by_token(ports(), token)
    invitation = offer.invitation
    page = render(
        "invitation.html",
        form_action="'self'",
        design=await branding.get_design(ports(), invitation.org_id),
        token=token,
        organization=offer.organization_name,
        inviter=offer.inviter_email,
        email=invitation.email,
        role=ROLES[invitation.role],
        until=format_utc(invitation.expires_at),
    )
    return page_response(page)


ANSWERED: Final = {
    200: "It is answered.",
    400: "It has expired, or was answered or cancelled, or it cannot be accepted now.",
    403: "The form was not sent by our page, or the organization is not active.",
}


@routes.post("/app/invitations/accept")
@anyone
@describes_page(ANSWERED, form=["token"])
async def accept_by_form() -> Response:
    """What the page of an invitation sends to accept it."""
    token = await _token_of_form()
    design = await invitations.get_design(ports(), token)  # first, since an invitation is answered once
    organization = await invitations.accept(ports(), caller(), token)
    return page_response(render("invitation_accepted.html", design=design, organization=organization.name))


@routes.post("/app/invitations/decline")
@anyone
@describes_page(ANSWERED, form=["token"])
async def decline_by_form() -> Response:
    """What the page of an invitation sends to decline it."""
    token = await _token_of_form()
    design = await invitations.get_design(ports(), token)  # first, since an invitation is answered once
    organization = await invitations.decline(ports(), caller(), token)
    return page_response(render("invitation_declined.html", design=design, organization=organization.name))


async def _token_of_form() -> str:
    """The token, which is what allows a form to be sent: nobody else's page knows it (security.md G-2)."""
    return (await read_form()).get("token", "")
