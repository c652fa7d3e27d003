"""Where applications, and the browsers that they send, meet their identity providers (organizations.md section 4.3; decisions, points
172 to 183). A message that cannot be used is answered with a page, and nothing is sent anywhere (security.md X-3)."""

from collections.abc import Sequence
from functools import partial
from urllib.parse import urlencode

from quart import Blueprint, Response, after_this_request, request
from werkzeug.exceptions import UnsupportedMediaType

from core import saml, saml_logout, saml_messages, saml_sign_on
from core.errors import NotFound, OrganizationNotActive, refuse
from core.saml_logout import GoThere, LogoutUnknown
from core.saml_messages import MessageInvalid
from core.saml_sign_on import SignInFirst, StateUnknown
from entrypoints.http import cookies
from entrypoints.http.access import ACCOUNT, SIGN_IN, anyone
from entrypoints.http.context import caller, page_response, ports, served
from entrypoints.http.forms import FORM, FormInvalid, fields_of_form
from entrypoints.http.openapi import describes, describes_page, refuses
from entrypoints.http.pages import render
from entrypoints.http.saml import answer_page
from entrypoints.http.sign_in import sign_in_form, visitor, with_next

routes = Blueprint("saml_protocol", __name__)

PROVIDER = "/saml/<org_slug>/<service_slug>"
DEFLATE = "urn:oasis:names:tc:SAML:2.0:bindings:URL-Encoding:DEFLATE"
METADATA = "application/samlmetadata+xml"
REFUSALS = {
    400: "The message cannot be used, and nothing was sent anywhere.",
    403: "The organization is not active, or the person has no access to the application.",
    404: "There is no such service, or it does not sign people in with SAML.",
}


@routes.get(f"{PROVIDER}/metadata")
@anyone
@refuses(403)
@describes({200: "An EntityDescriptor."}, content_type=METADATA)
async def metadata(org_slug: str, service_slug: str) -> Response:
    """What an application has to know of its identity provider."""
    document = await saml.metadata(ports(), org_slug, service_slug)
    return Response(document, 200, {"Cache-Control": "no-cache"}, content_type=METADATA)


class _Sent:
    """What came by one of the two bindings: each field once."""

    def __init__(self, fields: Sequence[tuple[str, str]]) -> None:
        """Raises MessageInvalid."""
        ours = [(name, text) for name, text in fields if name in ("SAMLRequest", "SAMLResponse", "RelayState", "SAMLEncoding")]
        self._fields = dict(ours)
        if len(self._fields) < len(ours) or {"SAMLRequest", "SAMLResponse"} <= self._fields.keys():
            raise MessageInvalid
        if self._fields.get("SAMLEncoding", DEFLATE) != DEFLATE:
            raise MessageInvalid
        self.relay_state = self._fields.get("RelayState")

    def document(self, name: str) -> bytes | None:
        """The document of this name. Raises MessageInvalid."""
        text = self._fields.get(name)
        if text is None:
            return None
        unpacked = saml_messages.unpacked_from_post if request.method == "POST" else saml_messages.unpacked_from_redirect
        return unpacked(text)


async def _sent() -> _Sent:
    """What came. Raises MessageInvalid, FormInvalid, and 415 for a POST of anything but a form."""
    if request.method != "POST":
        return _Sent(list(request.args.items(multi=True)))
    if request.mimetype != FORM:
        raise UnsupportedMediaType("Applications send a form here.")
    return _Sent(await fields_of_form())


def _redirect(address: str) -> Response:
    """On, by GET: from a form with 303, since another method would send it again; else as the binding says, with 302."""
    headers = {"Location": address, "Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}
    return Response(b"", 303 if request.method == "POST" else 302, headers)


async def _sign_on(org_slug: str, service_slug: str) -> Response:
    await saml.check_open(ports(), org_slug, service_slug)
    sent = await _sent()
    document = sent.document("SAMLRequest") or refuse(MessageInvalid)
    begun = await saml_sign_on.begin(ports(), served().base_url, caller(), org_slug, service_slug, document, sent.relay_state)
    # A form of another site comes without our cookies, and our answer may set them all the same: so the page that follows has both.
    response = _redirect(begun.path)
    cookies.set_saml_cookie(response, begun.state, begun.cookie)
    return response


@routes.get(f"{PROVIDER}/sso")
@anyone
@refuses(403)
@describes_page({302: "On to the page that answers.", **REFUSALS}, changes_state=True)
async def sso_by_redirect(org_slug: str, service_slug: str) -> Response:
    """An application asks to have somebody signed in, by HTTP-Redirect: `SAMLRequest`, and perhaps `RelayState`."""
    return await _sign_on(org_slug, service_slug)


@routes.post(f"{PROVIDER}/sso")
@anyone
@refuses(403)
@describes_page({303: "On to the page that answers.", **REFUSALS}, form=["SAMLRequest"])
async def sso_by_post(org_slug: str, service_slug: str) -> Response:
    """The same by HTTP-POST."""
    return await _sign_on(org_slug, service_slug)


@routes.get(f"{PROVIDER}/authenticate")
@anyone
@refuses(403)
@describes_page(
    {200: "The form that posts the answer to the application; or the form to sign in, where nobody is signed in.", **REFUSALS},
    query={"saml_state": "What the sign-on is known by."},
    changes_state=True,
)
async def authenticate(org_slug: str, service_slug: str) -> Response:
    """The page on which people sign in for an application, and from which they go on to it."""
    state = request.args.get("saml_state") or refuse(StateUnknown)
    after_this_request(partial(cookies.forget_old_sign_ons, state))  # whatever the answer is
    ticket = request.args.get("ticket")
    found = await visitor()
    outcome = await saml_sign_on.go_on(ports(), org_slug, service_slug, state, cookies.saml_cookie(state), ticket, found, caller())
    if isinstance(outcome, SignInFirst):
        return await sign_in_form(outcome.path)
    response = answer_page(outcome)
    if outcome.signed_in is not None:
        session, secret = outcome.signed_in
        if found is not None:
            await saml_logout.give_way(ports(), found, session.id)
        cookies.set_session_cookie(response, secret, session.expires_at)
    cookies.clear_saml_cookie(response, state)
    return response


async def _logout(org_slug: str, service_slug: str) -> Response:
    try:
        await saml.check_open(ports(), org_slug, service_slug)
    except (NotFound, OrganizationNotActive) as closed:
        return await _pass_over(org_slug, service_slug) or refuse(closed)
    sent = await _sent()
    asked, answered = sent.document("SAMLRequest"), sent.document("SAMLResponse")
    base_url = served().base_url
    if asked is not None:
        started = await saml_logout.receive_request(ports(), base_url, caller(), org_slug, service_slug, asked, sent.relay_state)
        response = _redirect(started.path)
        cookies.set_logout_cookie(response, started.cookie)
        return response
    if answered is not None and request.method == "POST":
        # A form of another site comes without our cookies, and only the browser that was sent there may bring an answer: so it brings it
        # once more, by the other binding.
        query = urlencode({"SAMLResponse": saml_messages.packed_for_redirect(answered)})
        return _redirect(f"{saml.path(org_slug, service_slug, 'slo')}?{query}")
    if answered is not None:
        cookie = cookies.logout_cookie()
        return _redirect(await saml_logout.receive_response(ports(), base_url, caller(), org_slug, service_slug, answered, cookie))
    if request.method == "POST":
        raise MessageInvalid
    return await _step()


async def _pass_over(org_slug: str, service_slug: str) -> Response | None:
    """On with the sign-out under way in this browser, although the service that it comes back from has closed meanwhile: what that one says
    does not count, but the others are still to be told. None where there is nothing to go on with."""
    if request.method == "POST":  # without cookies, so that it cannot be known here
        try:
            came_back = request.mimetype == FORM and "SAMLResponse" in dict(await fields_of_form())
        except FormInvalid:
            return None
        return _redirect(saml.path(org_slug, service_slug, "slo")) if came_back else None
    if "SAMLRequest" in request.args:
        return None
    try:
        return await _step()
    except LogoutUnknown:
        return None


async def _step() -> Response:
    """The next step of the sign-out under way in this browser. Raises LogoutUnknown."""
    step = await saml_logout.go_on(ports(), cookies.logout_cookie(), await visitor(), caller())
    if isinstance(step, GoThere):
        response = _redirect(step.address)
    else:
        response = page_response(render("signed_out.html", is_partial=step.is_partial, onward=with_next(SIGN_IN, step.after or ACCOUNT)))
    if not isinstance(step, GoThere) or step.is_last:
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
@describes_page({303: "On to the page that signs out.", **REFUSALS}, form=["SAMLRequest"])
async def slo_by_post(org_slug: str, service_slug: str) -> Response:
    """The same by HTTP-POST."""
    return await _logout(org_slug, service_slug)
