"""To identity providers and back (identity.md section 4.9; decisions, points 75, 86, 87, 97 and 101; security.md section 12, G-2)."""

from typing import Any, Final

from quart import Blueprint, Response, request
from werkzeug.routing import BaseConverter

from core.federation.oauth.authorization_rules import AuthorizationRequest
from core.federation.sign_in import ProviderCredentials
from core.federation.upstream import social
from core.federation.upstream.social_rules import IDENTITIES_PATH, ProviderConsentDenied, ProviderStateUnknown
from core.kernel.errors import ProviderFailed, refuse
from core.kernel.providers import Provider
from entrypoints.http.edge import cookies
from entrypoints.http.edge.access import anyone
from entrypoints.http.edge.context import app_context, caller, page_response, ports, request_record
from entrypoints.http.edge.forms import check_query
from entrypoints.http.edge.openapi import describes_page, refuses
from entrypoints.http.pages import render
from entrypoints.http.pages.sign_in import redirect, safe_next, sign_in_browser, visitor

routes = Blueprint("social", __name__)

PARAMETERS: Final = {
    "org": "The slug of the organization whose service is signed in to. Without it and `service`, it is the platform itself.",
    "service": "The slug of the service.",
    "client_id": "The client id of the service, for clients that know no slugs.",
    "redirect_uri": "Where a code goes: one that the service has registered. It may be left out where there is one only.",
    "state": "Comes back with the code.",
    "code_challenge": "PKCE (RFC 7636), which mobile and desktop services need.",
    "code_challenge_method": "S256.",
    "user_code": "Of a device that waits for somebody to sign it in: it goes on on the page that asks about it.",
    "next": "A path of our own pages to go on to.",
    "link": "A ticket to link an account, from POST /api/user/identities/{provider}/link.",
}


class ProviderConverter(BaseConverter):
    """`<provider:...>` in a route: the name of an identity provider, so that other addresses below /auth/ are none of its."""

    regex = "|".join(provider.value for provider in Provider)


@routes.get("/auth/<provider:provider>")
@anyone
@refuses(400, 403, 404)
@describes_page(
    {200: "A page that asks, where nobody is signed in in this browser, whether to link an account.", 302: "On to the identity provider."},
    optional=PARAMETERS,
    changes_state=True,
)
async def start(provider: str) -> Response:
    """Sign in through an identity provider, for an application or on our own pages; or link an account there."""
    check_query()
    browser, ask, here = cookies.device_cookie() or cookies.new_device_id(), request.args.get, (ports(), caller(), provider)
    if ticket := ask("link"):
        me = await visitor()
        address, email = await social.begin_link(*here, browser, app_context().base_url, ticket, None if me is None else me.user_id)
        if me is None:  # anybody's page may have sent it here, with a ticket for an account of its own
            response = page_response(render("link.html", provider=provider.title(), email=email, address=address))
            cookies.keep_device_cookie(response, browser)
            return response
    else:
        after = safe_next(request.args["next"]) if ask("next") else None
        wanted = AuthorizationRequest.from_fields(request.args)
        address = await social.begin(*here, browser, app_context().base_url, wanted, user_code=ask("user_code") or None, after=after)
    response = redirect(address, 302)
    cookies.keep_device_cookie(response, browser)
    return response


@routes.get("/auth/<provider:provider>/callback")
@anyone
@refuses(400, 401, 403, 404, 409)
@describes_page(
    {
        200: "The account at the identity provider was linked.",
        302: "The identity provider refused or failed: on to the application, with an error.",
        303: "Signed in, on to what that was for, or to the page that asks for a code; or linked, and back to one's account.",
    },
    optional={
        "code": "What the identity provider is asked with.",
        "state": "What the browser was sent there with.",
        "error": "Why there is no code.",
        "iss": "Who gave it (RFC 9207).",
    },
    changes_state=True,
)
async def callback(provider: str) -> Response:
    """Where identity providers send browsers back to."""
    check_query()
    browser, state = cookies.device_cookie(), request.args.get("state")
    pending = await social.take_state(ports(), provider, browser, state)
    browser, state = browser or refuse(ProviderStateUnknown), state or refuse(ProviderStateUnknown)
    given: dict[str, Any] = {"code": request.args.get("code"), "error": request.args.get("error"), "issuer": request.args.get("iss")}
    try:
        whom = await social.fetch_identity(ports(), pending, browser, state, app_context().base_url, **given)
    except (ProviderConsentDenied, ProviderFailed) as failed:
        error = "access_denied" if isinstance(failed, ProviderConsentDenied) else "server_error"
        address = await social.error_redirect(ports(), pending, error, app_context().base_url)
        if address is None:
            raise
        request_record().error_code = failed.code
        return redirect(address, 302)
    if pending.user_id is None:
        return await sign_in_browser(ProviderCredentials(pending, whom), pending.after)
    me = await visitor()
    await social.link(ports(), caller(), pending, whom, None if me is None else me.user_id)
    if me is None:  # it was begun elsewhere, by a program that has the person's token
        return page_response(render("linked.html", provider=pending.provider.value.title()))
    response = redirect(IDENTITIES_PATH)
    cookies.set_notice_cookie(response, "linked")
    return response
