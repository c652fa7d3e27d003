"""The page that asks before an identity provider replaces another user's session (security O-13)."""

from quart import Blueprint, Response

from core.authentication import sessions
from core.authentication.flow.methods import SignInMethod
from core.authentication.flow.model import Flow
from core.kernel.access import OtherUserPresent
from core.kernel.callers import Visitor
from entrypoints.http.base import cookies
from entrypoints.http.base.context import ports
from entrypoints.http.base.redirects import redirect, safe_next
from entrypoints.http.base.rendering.templates import page_response, render
from entrypoints.http.edge.access import anyone
from entrypoints.http.edge.forms import read_form
from entrypoints.http.edge.openapi import describes_page
from entrypoints.http.pages.authentication.sign_in import sign_in_browser
from entrypoints.http.pages.flow.flows import FLOW_PATH, in_flow, path_of
from entrypoints.http.pages.form_pages import check_session_form, session_form_token
from entrypoints.http.pages.visitors import visitor

routes = Blueprint("other_user_pages", __name__)


async def sign_in_at_provider(method: SignInMethod, flow: Flow, present: Visitor | None, start: str, address: str | None) -> Response:
    """Sign in an identity provider's user, or ask first if another user is signed in in this browser.

    `start` is the path that leads to the provider again, and `address` the email address that it named.
    """
    try:
        return await sign_in_browser(method, flow, present_id=None if present is None else present.user_id)
    except OtherUserPresent:
        assert present is not None, "the user of this browser is another one"
        return page_response(
            render(
                "authentication/other_user.html",
                form_token=session_form_token(),
                action=path_of(flow, "/switch"),
                start=start,
                stay=path_of(flow),
                email=present.email,
                address=address,
            )
        )


@routes.post(f"{FLOW_PATH}/switch")
@anyone
@describes_page(
    {
        200: "The sign-in has ended. The page goes on.",
        303: "Signed out. Continue at the identity provider.",
        403: "The form was not sent by our page.",
    },
    form={"form_token": "The form token of the page.", "start": "The path that leads to the identity provider."},
)
@in_flow
async def switch_user(flow: Flow) -> Response:
    """Sign in at an identity provider as a user who is not signed in in this browser.

    This browser's session ends first.
    """
    form, user = await read_form(), await visitor()
    if user is not None:
        check_session_form(form)
        await sessions.logout(ports(), user)
    response = redirect(safe_next(form.get("start") or path_of(flow)))
    cookies.SESSION.clear(response)
    return response
