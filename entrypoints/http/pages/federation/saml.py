"""SAML pages: continue a sign-on, return to the application, end a logout."""

from functools import partial

from quart import Blueprint, Response, after_this_request, request

from core.applications.model.users import NoAccessToService
from core.federation.saml import sign_on as saml_sign_on
from core.federation.saml.model.sign_on import LoginRequired, SignOnNotFound, SignOnResult, SignOnReturn
from core.kernel.access import AddressNotVerified
from core.kernel.errors import Refusal, refuse
from entrypoints.http.api.federation.saml.messages import PROVIDER, REFUSALS
from entrypoints.http.edge import cookies
from entrypoints.http.edge.access import anyone
from entrypoints.http.edge.context import caller, page_response, ports
from entrypoints.http.edge.errors import wants_page
from entrypoints.http.edge.openapi import describes_page, refuses
from entrypoints.http.pages import render
from entrypoints.http.pages.authentication.sign_in import no_access_page, refused_page, sign_in_form, visitor

routes = Blueprint("saml_pages", __name__)


@routes.get(f"{PROVIDER}/authenticate")
@anyone
@refuses(403)
@describes_page(
    {200: "The form that posts the response to the application, or the sign-in form.", **REFUSALS},
    query={"saml_state": "The state of the sign-on."},
    optional={"ticket": "The ticket from a sign-in with `saml_state` through the API."},
    changes_state=True,
)
async def authenticate(org_slug: str, service_slug: str) -> Response:
    """Continue a SAML sign-on.

    A signed-in user is sent to the application immediately. Otherwise the page shows the sign-in
    form.
    """
    state = request.args.get("saml_state") or refuse(SignOnNotFound)
    after_this_request(partial(cookies.forget_old_sign_ons, state))  # after errors too
    cookie, user = cookies.session_cookie(), await visitor()
    returned = SignOnReturn(
        org_slug=org_slug,
        service_slug=service_slug,
        state=state,
        cookie=cookies.saml_cookie(state),
        ticket=request.args.get("ticket"),
        session_cookie=cookie,
    )
    try:
        result = await saml_sign_on.resume(ports(), caller(), returned, user)
    except (NoAccessToService, AddressNotVerified) as refusal:
        if user is None or cookie is None or returned.ticket is not None or not wants_page():
            raise
        # The sign-on is still pending, so the page offers to continue it as another user.
        return no_access_page(refusal, user, request.full_path)
    if isinstance(result, LoginRequired):
        return await sign_in_form(result.path)
    response = result_page(result)
    if result.signed_in is not None:
        session, secret = result.signed_in
        cookies.set_session_cookie(response, secret, session.expires_at)
    cookies.clear_saml_cookie(response, state)
    return response


def result_page(result: SignOnResult) -> Response:
    """Return the page that posts a response to the application.

    It posts with a script, and has a button for browsers without scripts.
    """
    page = render(
        "federation/saml_response.html",
        scripted=True,
        acs_url=result.acs_url,
        saml_response=result.saml_response,
        relay_state=result.relay_state,
        is_error=result.is_error,
    )
    return page_response(page)


def logout_error_page(refusal: Refusal, path: str) -> Response:
    """Return the page for an invalid message during a logout.

    Its button continues the logout at this path.
    """
    return refused_page(refusal, "federation/logout_error.html", next_path=path)
