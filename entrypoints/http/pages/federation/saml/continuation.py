"""The page that continues a SAML sign-on, and what answers its flow."""

from dataclasses import replace
from functools import partial

from quart import Blueprint, Response, after_this_request, request

from core.applications.model.users import NoAccessToService
from core.authentication.flow.model import Flow, FlowEnded
from core.federation.destination import Asked, PageAnswer
from core.federation.saml import sign_on as saml_sign_on
from core.federation.saml import target
from core.federation.saml.model.sign_on import SignOnNotFound, SignOnReturn
from core.kernel.access import AddressNotVerified
from core.kernel.callers import Visitor
from core.kernel.errors import SessionEnded, refuse
from core.kernel.sign_in_policy.steps import Step
from entrypoints.http.api.federation.saml.configuration import PROVIDER
from entrypoints.http.base import cookies
from entrypoints.http.base.context import caller, ports
from entrypoints.http.base.redirects import redirect
from entrypoints.http.edge.access import PROTOCOL, anyone
from entrypoints.http.edge.errors import wants_page
from entrypoints.http.edge.openapi import describes_page, refuses
from entrypoints.http.pages.federation.saml.messages import REFUSALS, result_page
from entrypoints.http.pages.flow.flows import path_of, step_path
from entrypoints.http.pages.form_pages import no_access_page
from entrypoints.http.pages.visitors import visitor

routes = Blueprint("saml_pages", __name__)


@routes.get(f"{PROVIDER}/authenticate")
@anyone(PROTOCOL)
@refuses(401, 403, 429)
@describes_page(
    {200: "The form that posts the response to the application.", 303: "Redirect to the sign-in page.", **REFUSALS},
    query={"saml_state": "The state of the sign-on."},
    optional={"ticket": "The ticket from a sign-in with `saml_state` through the API."},
    changes_state=True,
)
async def authenticate(org_slug: str, service_slug: str) -> Response:
    """Continue a SAML sign-on.

    A signed-in user is sent to the application immediately. A user without a session is sent to the sign-in page.
    """
    state = request.args.get("saml_state") or refuse(SignOnNotFound)
    after_this_request(partial(cookies.forget_old_sign_ons, state))  # after errors too
    user, ticket = await visitor(), request.args.get("ticket")
    returned = SignOnReturn(
        org_slug=org_slug,
        service_slug=service_slug,
        state=state,
        cookie=cookies.sign_on(state).read(),
        device_cookie=cookies.DEVICE.read(),
        session_id=None if user is None else user.session_id,
    )
    waiting = await target.find(ports(), returned)
    try:
        outcome = await saml_sign_on.resume(ports(), caller(), waiting, user, ticket, cookies.SESSION.read())
    except (NoAccessToService, AddressNotVerified) as refusal:
        if user is None or ticket is not None or not wants_page():
            raise
        response = no_access_page(refusal, user, path_of(await target.keep(ports(), waiting, cookies.browser_id())))
    else:
        if isinstance(outcome, Asked):
            flow = await target.keep(ports(), waiting, cookies.browser_id())
            response = redirect(path_of(flow, step_path(outcome.step)))
        else:
            response = result_page(outcome)
            if outcome.signed_in is not None:
                session, secret = outcome.signed_in
                cookies.SESSION.set(response, secret, session.expires_at)
    cookies.sign_on(state).clear(response)
    return response


async def resume(flow: Flow, user: Visitor | None, _reply: PageAnswer | None) -> Asked | Response:
    """Return the next step in a sign-on's flow, or the response that ends the flow."""
    try:
        outcome = await saml_sign_on.resume(ports(), caller(), await target.load(ports(), flow), user)
        if isinstance(outcome, Asked):
            return replace(outcome, destination=await target.find_destination(ports(), flow, ""))
    except SessionEnded:  # during this request
        return Asked(Step.SIGN_IN)
    except (NoAccessToService, AddressNotVerified) as refusal:
        if user is None:
            raise
        # The flow is still open, so the page offers to continue it as another user.
        return no_access_page(refusal, user, path_of(flow))
    except SignOnNotFound:
        raise FlowEnded from None
    return result_page(outcome)
