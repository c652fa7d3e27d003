"""The invitation pages, behind the link in an invitation email.

They need no session.

The token in a form also protects against CSRF, because other sites do not know it (security G-2). The inviter may
know the token, so a form that signs in or confirms a membership has a form token as well.
"""

from typing import Any, Final
from urllib.parse import urlencode

from quart import Blueprint, Response

from core.accounts.model.profiles import NameInvalid
from core.authentication import joining
from core.authentication.flow.model import Flow
from core.authentication.model.login import InvitationAnswer
from core.federation import sign_in as sign_in_flow
from core.kernel import errors
from core.kernel.callers import Visitor
from core.kernel.page_paths import SIGN_IN_PATH
from core.kernel.proofs import Method
from core.kernel.values import digest, parse_id
from core.tenancy import branding, invitations, sign_in_policies
from core.tenancy.model.invitations import InvitationExpired, InvitationNotPending, parse_token
from entrypoints.http import kit
from entrypoints.http.base.context import app_context
from entrypoints.http.pages import form_pages
from entrypoints.http.pages.accounts.access import ORGANIZATIONS
from entrypoints.http.pages.authentication import sign_in
from entrypoints.http.pages.flow import flows
from entrypoints.http.pages.flow.forms import JOINED
from entrypoints.http.pages.visitors import visitor_of_account

routes = Blueprint("invitation_pages", __name__)

INVITATION: Final = "/app/invitations/accept"
NOT_ANSWERED: Final = {
    400: "The invitation is not pending, has expired, or cannot be accepted now.",
    403: "The form was sent from another site, or the organization is not active.",
}


class LinkIncomplete(errors.Invalid):
    """This link is incomplete. Copy the whole link from the invitation email, or ask for a new invitation."""


@routes.get("/invitations/accept")
@kit.anyone
@kit.describes_page(
    {301: "Redirect to the page that shows the invitation.", 400: "The token is not a UUID."}, query={"token": "The token from the email."}
)
async def follow_link() -> Response:
    """Follow the link in an invitation email.

    Redirects to the frontend's page, if the operator has configured it, or else to our own page.
    """
    token = kit.link_token()
    if parse_id(token) is None:
        raise LinkIncomplete
    location = f"{app_context().acceptance_page}?{urlencode({'token': token})}"
    # The middleware sets these headers, too. They are repeated here, because without them browsers
    # keep the redirect with the token in their cache forever (security R-7).
    headers = {"Location": location, "Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}
    return Response(b"", 301, headers)


@routes.get(INVITATION)
@kit.anyone
@kit.describes_page(
    {
        200: "The invitation, with buttons to accept and decline it.",
        400: "The invitation is not pending, or has expired.",
        403: "The organization is not active.",
    },
    query={"token": "The token from the email."},
)
async def invitation_page() -> Response:
    """Show an invitation.

    The page has buttons to accept and to decline. A new user chooses a password there, if the organization accepts passwords. Opening it
    changes nothing. In the recipient's browser, `token` may also be the token's hash.
    """
    return await _show(kit.link_token() or errors.refuse(LinkIncomplete))


async def _show(token: str, refusal: errors.Invalid | errors.Limited | None = None, name: str = "") -> Response:
    """Return an invitation's page, or the page that says that it cannot be answered. `refusal` is the last attempt's refusal."""
    user = await visitor_of_account()
    try:
        opened = await joining.find_invitation(kit.ports(), token, user)
    except (InvitationNotPending, InvitationExpired) as ended:
        return _ended_page(ended)
    received, answer = opened.received, opened.answer
    invitation = received.invitation
    ways = await sign_in_policies.accepted_ways(kit.ports(), invitation.org_id)
    is_new_user, is_signed_in = answer is InvitationAnswer.NEW_USER, answer is InvitationAnswer.SIGNED_IN
    values: dict[str, Any] = {
        "design": await branding.get_design(kit.ports(), invitation.org_id),
        "token": token,
        "organization": received.organization_name,
        "inviter": received.inviter_email,
        "email": invitation.email,
        "role": invitation.role_phrase,
        "until": invitation.expires_at,
        "is_new_user": is_new_user,
        "other_user": user.email if user is not None and not is_signed_in else None,
        "providers": {},
        "accepts_password": Method.PASSWORD in ways,
        "accepts_passkey": Method.PASSKEY in ways,
        "typed_name": name,
        "wrong": "name" if isinstance(refusal, NameInvalid) else "new_password",
    }
    if not is_new_user:
        values["form_token"] = form_pages.session_form_token() if is_signed_in else None
        if refusal is not None:
            return form_pages.refused_page(refusal, "tenancy/invitation.html", **values)
        return kit.page_response(kit.render("tenancy/invitation.html", problem=None, **values))
    # A sign-in's path is stored, so it has only the token's hash. This works for the recipient, once they are signed in.
    again = f"{INVITATION}?{urlencode({'token': digest(token).hex()})}"
    values["providers"] = (await flows.page_values(flows.page_flow(again)))["providers"]
    if refusal is not None:
        return form_pages.refused_form_page(refusal, "tenancy/invitation.html", **values)
    return form_pages.form_page("tenancy/invitation.html", problem=None, **values)


def _ended_page(refusal: errors.Invalid) -> Response:
    """Return the page for an invitation that can no longer be answered, with the next step."""
    if not kit.wants_page():
        raise refusal
    return form_pages.refused_page(refusal, "tenancy/invitation_ended.html", sign_in=kit.with_next(SIGN_IN_PATH, ORGANIZATIONS))


@routes.post(INVITATION)
@kit.anyone
@kit.describes_page(
    {
        200: "The invitation is accepted. The page shows how to sign in.",
        303: "The invitation is accepted. Continue at the application, at the page of the organizations, or at the sign-in page.",
        **NOT_ANSWERED,
    },
    form=["token"],
)
async def accept_by_form() -> Response:
    """Accept an invitation with the form on its page.

    With the email's token, and with `new_password`, a new user is signed in, and `name` is their name. If the organization accepts no
    passwords, `join` replaces `new_password`. The user then sets up a factor that its sign-in policy accepts. A signed-in recipient sends
    the page's form token. A recipient without a session signs in afterwards. If there was no account with the invited address, an account
    is created.
    """
    form = await kit.read_form()
    token = form.get("token", "")
    if "new_password" in form or "join" in form:
        return await _join(form, token)
    user = await visitor_of_account()
    try:
        accepted = await joining.accept_by_form(kit.ports(), kit.caller(), token, user, kit.cookies.SESSION.read(), form.get("form_token"))
    except (InvitationNotPending, InvitationExpired) as ended:
        return _ended_page(ended)
    except errors.Invalid as refusal:
        if not kit.wants_page():
            raise
        return await _show(token, refusal)
    return _accepted_page(accepted, user)


def _accepted_page(accepted: joining.AcceptedInvitation, user: Visitor | None) -> Response:
    """Return the next page for a recipient who did not choose a password."""
    if accepted.opened.answer is InvitationAnswer.SIGNED_IN:
        return _continue(kit.redirect(accepted.launch_url or ORGANIZATIONS), accepted.launch_url)
    if accepted.opened.answer is InvitationAnswer.SIGN_IN and user is None:
        return kit.redirect(kit.with_next(SIGN_IN_PATH, ORGANIZATIONS), notice=JOINED)
    return form_pages.form_page(
        "tenancy/invitation_accepted.html",
        design=accepted.design,
        organization=accepted.organization.name,
        email=accepted.opened.received.invitation.email,
        other_user=None if user is None else user.email,
        session_token=form_pages.session_form_token(),
        sign_in=kit.with_next(SIGN_IN_PATH, ORGANIZATIONS),
        next=ORGANIZATIONS,
    )


async def _join(form: dict[str, str], token: str) -> Response:
    form_pages.check_browser_form(form)
    name = form.get("name", "")
    method, flow, cookie = (
        joining.InvitationSignIn(token, form.get("new_password"), name),
        flows.page_flow(ORGANIZATIONS),
        kit.cookies.SESSION.read(),
    )
    try:
        outcome, place = await sign_in_flow.join(kit.ports(), kit.caller(), flow, method, cookie, sign_in.presented_browser())
    except (InvitationNotPending, InvitationExpired) as ended:
        return _ended_page(ended)
    except (errors.Invalid, errors.Limited) as refusal:
        return await _show(token, refusal, name)
    if isinstance(outcome, Flow):
        return await sign_in.sign_in_response(outcome, flow)
    return _continue(await sign_in.sign_in_response(outcome, flow, to=place), place)


def _continue(response: Response, place: str | None) -> Response:
    """Return the redirect to the organization's application, or to the page with the user's organizations, which shows a notice.

    If the sign-in policy asks for a factor first, the page that asks for it shows the notice.
    """
    if place is None or place.startswith("/"):
        kit.cookies.NOTICE.set(response, JOINED)
    return response


@routes.post("/app/invitations/decline")
@kit.anyone
@kit.describes_page({200: "The invitation is declined.", **NOT_ANSWERED}, form=["token"])
async def decline_by_form() -> Response:
    """Decline an invitation with the form on its page.

    The invitation cannot be accepted afterwards.
    """
    token = (await kit.read_form()).get("token", "")
    design = await invitations.get_design(kit.ports(), token)
    try:
        # A token's hash works for the signed-in recipient.
        user = await visitor_of_account() if parse_token(token)[1] else None
        organization = await invitations.decline(kit.ports(), user or kit.caller(), token)
    except (InvitationNotPending, InvitationExpired) as ended:
        return _ended_page(ended)
    return kit.page_response(kit.render("tenancy/invitation_declined.html", design=design, organization=organization.name))
