"""OpenID Connect's logout endpoint, for browsers (RP-Initiated Logout 1.0)."""

from typing import Any, Final

from quart import Blueprint, Response, request

from core.federation.oauth import end_session as oauth_end_session
from core.federation.oauth.model.end_session import END_SESSION_PATH, ApplicationReturn, EndSessionRequest, LogoutRequestFacts
from core.kernel import page_paths
from core.kernel.callers import Visitor
from core.tenancy import branding
from entrypoints.http import kit
from entrypoints.http.pages import form_pages
from entrypoints.http.pages.authentication.sign_in import sign_out_browser
from entrypoints.http.pages.federation.signed_out import end_page
from entrypoints.http.pages.federation.unregistered import unregistered_page, unregistered_values
from entrypoints.http.pages.visitors import visitor

routes = Blueprint("end_session", __name__)

PARAMETERS: Final = {
    "id_token_hint": "An ID token that the application got for this user; it may have expired. With it, the user is not asked.",
    "client_id": "The client id of the application.",
    "post_logout_redirect_uri": "The registered URI to return to. Send `id_token_hint` or `client_id` with it.",
    "state": "Returned unchanged to that URI. At most 4096 characters.",
    "logout_hint": "Accepted and ignored.",
    "ui_locales": "Accepted and ignored: the pages are in English.",
}


@routes.get(END_SESSION_PATH)
@kit.anyone(kit.PROTOCOL)
@kit.refuses(400, 404)
@kit.describes_page(
    {
        200: "The page that asks the user, or that says that the user is signed out.",
        303: "Signed out, now or before. Redirect to the post_logout_redirect_uri.",
    },
    optional=PARAMETERS,
    changes_state=True,
)
async def end_session() -> Response:
    """Sign the user out at an application's request.

    The application opens this URL in the user's browser. The user is asked first, unless `id_token_hint` is an ID token
    for a session that was authorized in this browser. They are also asked if the post_logout_redirect_uri is not
    registered. If no user is signed in, the application's ID token is enough to return to it at once. All applications'
    sessions that were authorized in this browser end too, except sessions with the scope `offline_access`.
    """
    facts, user = await _check(EndSessionRequest.from_fields(request.args)), await visitor()
    if facts.is_proven and facts.refusal is None:
        return await _sign_out(user, facts)
    return await _signed_out(facts) if user is None else await _question_page(user, facts)


@routes.post(END_SESSION_PATH)
@kit.anyone
@kit.refuses(400, 403, 404)
@kit.describes_page(
    {
        200: "The user is signed out.",
        303: "Redirect to the post_logout_redirect_uri, to the account page, or to the same request with GET.",
        403: "The form was sent from another site.",
    },
    optional=PARAMETERS,
    form=["form_token", "answer"],
)
async def answer_question() -> Response:
    """Send the form on the page that asks the user, or a logout request as a form.

    With a `form_token` it is our page's form: `answer` is `continue`, and every other value keeps the user signed in.
    An application's request is checked, and redirected to the same request with GET.
    """
    fields = await kit.read_request_of_application()
    if fields is not None:
        # A form from another site comes without our cookies, so GET must find out who is signed in.
        facts = await _check(EndSessionRequest.from_fields(fields))
        if facts.refusal is not None:
            return await unregistered_page(facts.refusal, facts.request.path)
        return kit.redirect(facts.request.path)
    form, user = await kit.read_form(), await visitor()
    facts = await _check(EndSessionRequest.from_fields(request.args))
    if user is None:
        return await _signed_out(facts)
    form_pages.check_session_form(form)
    return await _sign_out(user, facts) if form.get("answer") == "continue" else kit.redirect(page_paths.ACCOUNT_PATH)


async def _check(logout_request: EndSessionRequest) -> LogoutRequestFacts:
    """Check a logout request."""
    facts = await oauth_end_session.check(kit.ports(), logout_request, kit.cookies.SESSION.read())
    if facts.refusal is not None and (facts.refusal.unregistered is None or not kit.wants_page()):
        raise facts.refusal
    return facts


async def _sign_out(user: Visitor | None, facts: LogoutRequestFacts) -> Response:
    signed_out = end_page(None, cannot_return=facts.cannot_return) if facts.return_url is None else kit.redirect(facts.return_url)
    return await sign_out_browser(user, facts.path_after or page_paths.HOME_PATH, signed_out)


async def _signed_out(facts: LogoutRequestFacts) -> Response:
    """Return the response for a browser without a session.

    With the application's ID token, it redirects there. Otherwise a page links there: nothing shows that the user has
    ever used the application, so any page could use us as a redirector (RFC 9700 section 4.11).
    """
    if facts.has_hint and facts.return_url is not None:
        return kit.redirect(facts.return_url)
    application = None if facts.service is None or facts.return_url is None else ApplicationReturn(facts.service.name, facts.return_url)
    unregistered = await unregistered_values(facts.refusal)
    return end_page(application, cannot_return=facts.cannot_return, refusal=facts.refusal, unregistered=unregistered)


async def _question_page(user: Visitor, facts: LogoutRequestFacts) -> Response:
    design = None if facts.service is None else await branding.get_design(kit.ports(), facts.service.org_id)
    values: dict[str, Any] = {
        "design": design,
        "form_token": form_pages.session_form_token(),
        "action": facts.request.path,
        "service": None if facts.service is None else facts.service.name,
        "organization": design.organization_name if design else "",
        "email": user.email,
        "cannot_return": facts.cannot_return,
        "unregistered": await unregistered_values(facts.refusal),
    }
    if facts.refusal is not None:
        return form_pages.refused_page(facts.refusal, "federation/end_session.html", **values)
    return kit.page_response(kit.render("federation/end_session.html", **values))
