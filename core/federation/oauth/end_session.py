"""Sign-outs that an application requests (OpenID Connect RP-Initiated Logout 1.0).

Any web page can send the browser here. So the user is signed out without a question only if the ID
token in `id_token_hint` belongs to a session that was authorized in this browser. And the browser
returns to an application only at a registered URI, and only with such a hint or after the user
agreed. Without a session in this browser, any ID token of the application is enough.
"""

from urllib.parse import parse_qsl

from core.applications.model import services
from core.authentication.model.openid import IdTokenHint
from core.federation.oauth.model import authorization, end_session
from core.federation.oauth.model.external_clients import is_external
from core.kernel import callers, uris, values
from core.kernel.claims import FRONTEND_CLIENT_ID
from core.kernel.errors import Refusal
from ports import Ports
from ports.storage import Reading


async def check(ports: Ports, request: end_session.EndSessionRequest, session_cookie: str | None) -> end_session.LogoutRequestFacts:
    """Check a logout request that arrived in the browser with this session cookie.

    A hint that we did not issue, or issued to another client than `client_id`, is ignored, and the user
    is asked. So is an ID token of a signing key that was removed.

    A post_logout_redirect_uri that is not registered is a refusal in the facts, because the user can sign out anyway.

    Raises: OAuthStateInvalid, ServiceNotFound, PostLogoutClientMissing.
    """
    if request.state is not None and (len(request.state) > authorization.MAX_STATE_LENGTH or not values.is_printable(request.state)):
        raise authorization.OAuthStateInvalid
    if request.post_logout_redirect_uri is not None and request.id_token_hint is None and request.client_id is None:
        raise end_session.PostLogoutClientMissing
    hint = None if request.id_token_hint is None else ports.tokens.read_id_token_hint(request.id_token_hint)
    if hint is not None and request.client_id not in (None, hint.client_id):
        hint = None
    client_id = request.client_id if hint is None else hint.client_id
    async with ports.storage.reading() as read:
        client = None if client_id in (None, FRONTEND_CLIENT_ID) else await _find_client(read, client_id or "")
        is_proven = hint is not None and session_cookie is not None and await _is_of_browser(read, hint, session_cookie)
    # An external client has no page after a sign-out, so its hint alone says who asks.
    is_of_external = hint is not None and is_external(hint.client_id)
    if request.client_id not in (None, FRONTEND_CLIENT_ID) and client is None and not is_of_external:
        raise services.ServiceNotFound
    service = None if client is None else client[0]
    target = refusal = None
    if request.post_logout_redirect_uri is not None and client_id is not None:
        registered = () if service is None else service.post_logout_redirect_uris
        uri = uris.find_registered(registered, request.post_logout_redirect_uri)
        if uri is None:
            refusal = end_session.PostLogoutRedirectUriNotRegistered(
                None
                if service is None
                else services.UnregisteredUri(request.post_logout_redirect_uri, services.POST_LOGOUT_REDIRECT_URIS, service)
            )
        # The user signs out, but does not go on to an application of an organization that is not active.
        elif client is not None and client[1].status is callers.OrganizationStatus.ACTIVE:
            target = uri if request.state is None else uris.add_parameters(uri, {"state": request.state})
    return end_session.LogoutRequestFacts(
        request=request, service=service, return_url=target, has_hint=hint is not None, is_proven=is_proven, refusal=refusal
    )


async def find_return(ports: Ports, path: str | None) -> end_session.ApplicationReturn | None:
    """Return the way back to the application from `LogoutRequestFacts.path_after`, or None for every other path."""
    endpoint, _, query = (path or "").partition("?")
    if endpoint != end_session.END_SESSION_PATH:
        return None
    try:
        facts = await check(ports, end_session.EndSessionRequest.from_fields(dict(parse_qsl(query))), None)
    except Refusal:  # the application has changed since
        return None
    return (
        None if facts.service is None or facts.return_url is None else end_session.ApplicationReturn(facts.service.name, facts.return_url)
    )


async def _find_client(read: Reading, client_id: str) -> tuple[services.Service, callers.ServiceContext] | None:
    parsed = values.parse_id(client_id)
    return None if parsed is None else await read.services.by_client_id(parsed)


async def _is_of_browser(read: Reading, hint: IdTokenHint, session_cookie: str) -> bool:
    client_name = None if hint.client_id == FRONTEND_CLIENT_ID else hint.client_id
    return await read.session_sign_ins.is_of_browser(hint.session_id, hint.user_id, client_name, values.digest(session_cookie))
