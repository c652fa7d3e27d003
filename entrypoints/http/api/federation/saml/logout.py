"""Single logout (organizations.md section 4.3; decisions, point 183)."""

from typing import Final
from urllib.parse import urlencode

from quart import Blueprint, Response, request

from core.federation.saml import bindings as saml_bindings
from core.federation.saml import configuration as saml
from core.federation.saml import configuration_rules as saml_rules
from core.federation.saml import logout as saml_logout
from core.federation.saml.logout_rules import LogoutCookies, LogoutFinished, LogoutNotFound, NoMatchingSession, Redirect
from core.federation.saml.messages import ReceivedDocument, SamlMessageInvalid, SamlMessageTooLong
from core.kernel.errors import NotFound, OrganizationNotActive, refuse
from entrypoints.http.api.federation.saml.messages import PROVIDER, REFUSALS, onward, sent
from entrypoints.http.edge import cookies
from entrypoints.http.edge.access import ACCOUNT, SIGN_IN, anyone
from entrypoints.http.edge.context import app_context, caller, page_response, ports
from entrypoints.http.edge.errors import wants_page
from entrypoints.http.edge.forms import FORM, FormInvalid, read_fields
from entrypoints.http.edge.openapi import describes_page, refuses
from entrypoints.http.pages import render
from entrypoints.http.pages.sign_in import refused_page, visitor, with_next

routes = Blueprint("saml_logout", __name__)

# Of the path on which a form is brought once more: browsers send cookies and more besides, and all of it has to fit into the headers.
LONGEST_PATH: Final = 12 * 1024


async def _logout(org_slug: str, service_slug: str) -> Response:
    try:
        return await _heard(org_slug, service_slug)
    except (NotFound, OrganizationNotActive) as closed:
        # It may close at any time until what it says is kept.
        return await _pass_over(org_slug, service_slug) or refuse(closed)
    except (SamlMessageInvalid, LogoutNotFound) as refusal:
        if not await _can_go_on():
            raise
        return refused_page(refusal, "signing_out_goes_on.html", onward=saml_rules.endpoint_path(org_slug, service_slug, "slo"))


async def _can_go_on() -> bool:
    """Whether a browser has come back with an answer that cannot be used, in which a sign-out is under way all the same."""
    secret = cookies.logout_cookie()
    if secret is None or "SAMLResponse" not in request.args or not wants_page():
        return False
    return await saml_logout.is_in_progress(ports(), caller(), secret)


async def _heard(org_slug: str, service_slug: str) -> Response:
    await saml.check_enabled(ports(), org_slug, service_slug)
    message = await sent()
    asked, answered = message.document("SAMLRequest"), message.document("SAMLResponse")
    if request.method == "POST":
        # A form of another site comes without our cookies, and a message counts only in the browser that is meant: so that brings it once
        # more, by the other binding.
        if asked is not None:
            saml_bindings.check_relay_state(message.relay_state)
            kept = {} if message.relay_state is None else {"RelayState": message.relay_state}
            fields = {"SAMLRequest": saml_bindings.encode_redirect(asked), **kept}
        else:
            fields = {"SAMLResponse": saml_bindings.encode_redirect(answered or refuse(SamlMessageInvalid))}
        path = f"{saml_rules.endpoint_path(org_slug, service_slug, 'slo')}?{urlencode(fields)}"
        return onward(path if len(path) <= LONGEST_PATH else refuse(SamlMessageTooLong))
    if asked is not None:
        return await _asked(org_slug, service_slug, asked, message.relay_state)
    if answered is not None:
        secret = cookies.logout_cookie()
        next_ = await saml_logout.receive_response(
            ports(),
            app_context().base_url,
            caller(),
            ReceivedDocument(org_slug=org_slug, service_slug=service_slug, document=answered),
            secret,
        )
        return onward(next_) if isinstance(next_, str) else await _taken(next_)
    return await _step()


async def _pass_over(org_slug: str, service_slug: str) -> Response | None:
    """On with the sign-out under way in this browser, although the service that it comes back from has closed meanwhile: what that one says
    does not count, but the others are still to be told. None where there is nothing to go on with."""
    if request.method == "POST":  # without cookies, so that it cannot be known here
        try:
            came_back = request.mimetype == FORM and "SAMLResponse" in dict(await read_fields())
        except FormInvalid:
            return None
        return onward(saml_rules.endpoint_path(org_slug, service_slug, "slo")) if came_back else None
    if "SAMLRequest" in request.args:
        return None
    try:
        return await _step()
    except LogoutNotFound:
        return None


async def _asked(org_slug: str, service_slug: str, document: bytes, relay_state: str | None) -> Response:
    """The first step of the sign-out that an application asks for."""
    shown = LogoutCookies(logout=cookies.logout_cookie(), session=cookies.session_cookie())
    received = ReceivedDocument(org_slug=org_slug, service_slug=service_slug, document=document, relay_state=relay_state)
    step = await saml_logout.receive_request(ports(), app_context().base_url, await visitor(), caller(), shown, received)
    return onward(step.url) if isinstance(step, NoMatchingSession) else await _taken(step)


async def _step() -> Response:
    """The next step of the sign-out under way in this browser. Raises LogoutUnknown."""
    return await _taken(await saml_logout.resume(ports(), cookies.logout_cookie(), caller()))


async def _taken(step: Redirect | LogoutFinished) -> Response:
    secret = None
    if isinstance(step, Redirect):
        response, secret = onward(step.url), step.secret
    else:
        response = page_response(render("signed_out.html", is_partial=step.is_partial, onward=with_next(SIGN_IN, step.after or ACCOUNT)))
    if secret is not None:
        cookies.set_logout_cookie(response, secret)
    else:
        cookies.clear_logout_cookie(response)
    if await visitor() is None:
        cookies.clear_session_cookie(response)
    return response


@routes.get(f"{PROVIDER}/slo")
@anyone
@refuses(403)
@describes_page({200: "Signed out.", 302: "On to the next application, or back to the one that asked.", **REFUSALS}, changes_state=True)
async def slo_by_redirect(org_slug: str, service_slug: str) -> Response:
    """An application asks to have somebody signed out everywhere, or says that it has done so, by HTTP-Redirect.

    That is a `SAMLRequest` or a `SAMLResponse`; without either, the browser goes on with the sign-out that is under way in it.
    """
    return await _logout(org_slug, service_slug)


@routes.post(f"{PROVIDER}/slo")
@anyone
@refuses(403)
@describes_page({303: "On to the same by HTTP-Redirect.", **REFUSALS}, form=["SAMLRequest"])
async def slo_by_post(org_slug: str, service_slug: str) -> Response:
    """The same by HTTP-POST."""
    return await _logout(org_slug, service_slug)
