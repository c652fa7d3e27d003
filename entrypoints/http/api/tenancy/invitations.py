"""The API for invitations, for members who send them and for their recipients.

The pages behind the link in an invitation email are in `entrypoints.http.pages.tenancy.invitation_links`.
"""

from uuid import UUID

from pydantic import Field
from quart import Blueprint

from core.kernel.roles import Capability
from core.kernel.values import Email
from core.tenancy import invitations, inviting
from core.tenancy.model.invitations import MAX_BULK_INVITATIONS, Invitation, InvitationStatus, ListedInvitation, ReceivedInvitation
from entrypoints.http import kit
from entrypoints.http.api.tenancy import roles
from entrypoints.http.edge.access import person_if_present

routes = Blueprint("invitations", __name__)


# Members


class InvitationResponse(kit.ResponseModel):
    """An invitation to join an organization."""

    id: UUID = Field(description="The invitation's id.")
    org_id: UUID = Field(description="The organization's id.")
    email: str = Field(description="The invited email address.")
    role: roles.Role = Field(description="The role that the recipient gets.")
    invited_by: UUID = Field(description="The user id of the inviter.")
    status: InvitationStatus = Field(description="The invitation's status. All except `pending` are final.")
    token: str = Field(
        description="The SHA-256, in hexadecimal, of the token in the response that created the invitation. Only the signed-in recipient "
        "can use it."
    )
    expires_at: kit.Timestamp = Field(description="When the invitation expires.")
    created_at: kit.Timestamp = Field(description="When the invitation was sent.")


class InviterResponse(kit.ResponseModel):
    """The account that sent an invitation."""

    id: str = Field(description="The inviter's user id, or `unknown` if the account no longer exists.")
    email: str = Field(description="The inviter's email address.")
    created_at: kit.Timestamp = Field(description="When the inviter's account was created.")


class ListedInvitationResponse(kit.ResponseModel):
    """An invitation and its inviter."""

    invitation: InvitationResponse = Field(description="The invitation.")
    inviter: InviterResponse = Field(description="The account that sent the invitation.")


class CreatedInvitationResponse(ListedInvitationResponse):
    """A new invitation and its inviter.

    Only this response contains this token. The email has a second token, which also proves the mailbox.
    """

    token: str = Field(description="The one-time token, which accepts or declines the invitation.")


class InvitationRequest(kit.RequestModel):
    """A new invitation."""

    email: kit.EmailAddress = Field(description="The email address to invite.")
    # A plain string, because the use case has a better error message for the role owner.
    role: roles.AssignableRole = Field(
        description="The role that the recipient gets. Roles other than `member` need `roles.manage`, and every right that they give."
    )


@routes.post("/api/organizations/<org_slug>/invitations")
@kit.member(Capability.MEMBERS_MANAGE, kit.GIVES)
@kit.refuses(409, 429)
async def invite(org_slug: str, data: InvitationRequest) -> CreatedInvitationResponse:
    """Invite an email address to the organization.

    Sends an email with a link to accept or decline. The response contains the one-time token, which no later response
    does. 400 if there is already a pending invitation for this address. 429 if the organization has reached its daily
    invitation limit.
    """
    created, token = await inviting.invite(kit.ports(), kit.acting(), Email(data.email), data.role)
    return CreatedInvitationResponse(**dict(_to_listed_response(created)), token=token)


class BulkInvitationRequest(kit.RequestModel):
    """New invitations."""

    invitations: list[InvitationRequest] = Field(
        min_length=1,
        max_length=MAX_BULK_INVITATIONS,
        description=f"The addresses with their roles, {MAX_BULK_INVITATIONS} at most in one call.",
    )


class BulkInvitationResponse(kit.ResponseModel):
    """The result for an address."""

    email: str = Field(description="The email address.")
    invitation: InvitationResponse | None = Field(description="The invitation, or null if this address was not invited.")
    error: str | None = Field(description="Why this address was not invited, or null if it was.")


class BulkInvitationListResponse(kit.ResponseModel):
    """A bulk invitation's results."""

    results: list[BulkInvitationResponse] = Field(description="A result for every address, in the request's order.")
    invited: int = Field(description="The number of invitations that were sent.")


@routes.post("/api/organizations/<org_slug>/invitations/bulk")
@kit.member(Capability.MEMBERS_MANAGE, kit.GIVES)
@kit.refuses(429)
async def invite_many(org_slug: str, data: BulkInvitationRequest) -> BulkInvitationListResponse:
    """Invite up to 100 email addresses to the organization.

    Every address gets an email. Addresses of members, of blocked users and with a pending invitation are skipped, and
    their results say why. Any other error refuses the whole call, and sends nothing: an invalid address, a role that
    you may not give, or 429 if the daily limit does not allow all invitations.
    """
    results = await inviting.invite_many(kit.ports(), kit.acting(), [(Email(item.email), item.role) for item in data.invitations])
    return BulkInvitationListResponse(
        results=[
            BulkInvitationResponse(
                email=result.email,
                invitation=None if result.invitation is None else _to_response(result.invitation.invitation),
                error=None if result.refusal is None else result.refusal.message,
            )
            for result in results
        ],
        invited=sum(result.invitation is not None for result in results),
    )


class InvitationsQuery(kit.PageQuery):
    """The page in the list, and the filters."""

    status: InvitationStatus | None = Field(None, description="Return only invitations with this status.")
    role: kit.Text | None = Field(None, description="Return only invitations to this role.")
    search: kit.Text | None = Field(
        default=None, description="Return only invitations with this text in their email address. Case is ignored."
    )


@routes.get("/api/organizations/<org_slug>/invitations")
@kit.member(Capability.MEMBERS_MANAGE)
async def list_invitations(org_slug: str, query_args: InvitationsQuery) -> tuple[list[ListedInvitationResponse], int, dict[str, str]]:
    """List the organization's invitations.

    The newest come first. The header X-Total-Count says how many invitations match.
    """
    page, search, role = query_args.page_request(), query_args.search, query_args.role
    listed = await invitations.list_page(kit.ports(), kit.acting(), query_args.status, page, search=search, role=role)
    # Keep the status 200: without it, quart-schema drops the headers.
    return [_to_listed_response(item) for item in listed.items], 200, {"X-Total-Count": str(listed.total)}


@routes.post("/api/organizations/<org_slug>/invitations/<invitation_id>")
@kit.member(Capability.MEMBERS_MANAGE, kit.GIVES)
async def cancel(org_slug: str, invitation_id: UUID) -> kit.Empty:
    """Cancel a pending invitation.

    Its link and its token stop working. 404 if the invitation is not pending.
    """
    await invitations.cancel(kit.ports(), kit.acting(), invitation_id)
    return kit.Empty()


@routes.post("/api/organizations/<org_slug>/invitations/<invitation_id>/resend")
@kit.member(Capability.MEMBERS_MANAGE, kit.GIVES)
@kit.refuses(400, 429)
async def resend(org_slug: str, invitation_id: UUID) -> ListedInvitationResponse:
    """Send a pending or expired invitation again.

    This cancels a pending invitation, so its links stop working, and sends a new invitation to the same address with
    the same role. 404 if the invitation was answered or canceled. 429 if the organization has reached its daily
    invitation limit.
    """
    return _to_listed_response(await inviting.resend(kit.ports(), kit.acting(), invitation_id))


@routes.post("/api/organizations/<org_slug>/invitations/<invitation_id>/accept")
@kit.member(Capability.MEMBERS_MANAGE, kit.PROMOTES)
@kit.refuses(400)
async def accept_on_behalf(org_slug: str, invitation_id: UUID) -> kit.Empty:
    """Accept a pending invitation on behalf of its recipient.

    The recipient must have an account. Your role must allow you to send this invitation yourself.
    """
    await invitations.accept_on_behalf(kit.ports(), kit.acting(), invitation_id)
    return kit.Empty()


def _to_listed_response(listed: ListedInvitation) -> ListedInvitationResponse:
    inviter = listed.inviter
    return ListedInvitationResponse(invitation=_to_response(listed.invitation), inviter=InviterResponse.of(inviter))


def _to_response(invitation: Invitation) -> InvitationResponse:
    return InvitationResponse.of(invitation, token=invitation.shown_hash.hex())


# Recipients


class InvitingOrganizationResponse(kit.ResponseModel):
    """The organization that an invitation is for."""

    slug: str = Field(description="The organization's slug.")
    name: str = Field(description="The organization's display name.")


class ReceivedInvitationResponse(kit.ResponseModel):
    """An invitation that you can accept or decline."""

    id: UUID = Field(description="The invitation's id.")
    email: str = Field(description="The invited email address.")
    role: roles.Role = Field(description="The role that you get.")
    token: str = Field(description="Send this to accept or decline. It works only for you, while you are signed in.")
    expires_at: kit.Timestamp = Field(description="When the invitation expires.")
    created_at: kit.Timestamp = Field(description="When the invitation was sent.")
    organization: InvitingOrganizationResponse = Field(description="The organization that you are invited to.")


@routes.get("/api/invitations")
@kit.person_anywhere
@kit.refuses(404)
async def list_received() -> list[ReceivedInvitationResponse]:
    """List the invitations that you received.

    Returns pending invitations to your email address. The list is empty until your email address is
    verified.
    """
    return [_to_received_response(received) for received in await invitations.list_received(kit.ports(), kit.signed_in())]


def _to_received_response(received: ReceivedInvitation) -> ReceivedInvitationResponse:
    invitation = received.invitation
    return ReceivedInvitationResponse.of(
        invitation,
        token=invitation.shown_hash.hex(),
        organization=InvitingOrganizationResponse(slug=received.organization_slug, name=received.organization_name),
    )


class InvitationTokenRequest(kit.RequestModel):
    """An invitation's token."""

    token: kit.Text = Field(
        description="The token from the email, or from the response that created the invitation. If you are signed in, the `token` from "
        "GET /api/invitations works, too."
    )


@routes.post("/api/invitations/accept")
@person_if_present(kit.MINE)
async def accept(data: InvitationTokenRequest) -> kit.Empty:
    """Accept an invitation.

    You need no access token. If you send an access token, it must be for the invited address. If there is no account
    with the invited address, an account is created without a password: set it with POST /api/auth/forgot-password. At a
    domain that another organization has verified, only the email's token creates an account.
    """
    await invitations.accept(kit.ports(), kit.caller(), data.token)
    return kit.Empty()


@routes.post("/api/invitations/decline")
@person_if_present(kit.MINE)
async def decline(data: InvitationTokenRequest) -> kit.Empty:
    """Decline an invitation.

    You need no access token. The invitation cannot be accepted afterwards.
    """
    await invitations.decline(kit.ports(), kit.caller(), data.token)
    return kit.Empty()
