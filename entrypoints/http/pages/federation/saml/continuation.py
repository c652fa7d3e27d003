"""The page that continues a SAML sign-on."""

from functools import partial

from quart import Blueprint, Response, after_this_request, request

from core.applications.model.users import NoAccessToService
from core.federation.saml import sign_on as saml_sign_on
from core.federation.saml.model.sign_on import LoginRequired, SignOnNotFound, SignOnResult, SignOnReturn
from core.kernel.access import AddressNotVerified
from core.kernel.errors import refuse
from entrypoints.http.api.federation.saml.configuration import PROVIDER
from entrypoints.http.base import cookies
from entrypoints.http.base.context import caller, ports
from entrypoints.http.edge.access import anyone
from entrypoints.http.edge.errors import wants_page
from entrypoints.http.edge.openapi import describes_page, refuses
from entrypoints.http.pages.federation.saml.messages import REFUSALS, result_page
from entrypoints.http.pages.flow.flows import page_flow
from entrypoints.http.pages.flow.forms import sign_in_form
from entrypoints.http.pages.form_pages import no_access_page
from entrypoints.http.pages.visitors import visitor

routes = Blueprint("saml_pages", __name__)


@routes.get(f"{PROVIDER}/authenticate")
@anyone
@refuses(401, 403, 429)
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
    user = await visitor()
    returned = SignOnReturn(
        org_slug=org_slug,
        service_slug=service_slug,
        state=state,
        cookie=cookies.saml_cookie(state),
        ticket=request.args.get("ticket"),
        session_cookie=cookies.session_cookie(),
    )
    try:
        result = await saml_sign_on.resume(ports(), caller(), returned, user)
    except (NoAccessToService, AddressNotVerified) as refusal:
        if user is None or returned.ticket is not None or not wants_page():
            raise
        # The sign-on is still pending, so the page offers to continue it as another user.
        return no_access_page(refusal, user, request.full_path)
    return await sign_in_form(page_flow(result.path)) if isinstance(result, LoginRequired) else _signed_on(result, state)


def _signed_on(result: SignOnResult, state: str) -> Response:
    response = result_page(result)
    if result.signed_in is not None:
        session, secret = result.signed_in
        cookies.set_session_cookie(response, secret, session.expires_at)
    cookies.clear_saml_cookie(response, state)
    return response
