"""The next step of an authorization request in the browser: sign in, choose an account, agree, or get the code.

Sources: OpenID Connect Core section 3.1.2.

A request can ask for a fresh sign-in. Before the browser goes to the sign-in page for that, the
request gets a stamp: the signed time at which the user was asked, and the session of the browser at
that time. A sign-in after this time, with another session, is fresh. The stamp belongs to exactly this
request, so an older stamp of another request proves nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Final

from core.applications.model.client_settings import ClientSettings
from core.applications.model.users import AccessPolicy
from core.authentication.model.openid import SESSION_EXPIRY, OpenIdGrant, Scope, SignInStamp
from core.federation.oauth import authorization as oauth
from core.federation.oauth.consents import load_agreement
from core.federation.oauth.model import openid_requests
from core.federation.oauth.model.authorization import Authorization, AuthorizationRequest, check_request
from core.federation.oauth.model.openid_requests import (
    AccessDenied,
    AuthenticationUnmet,
    ConsentRequired,
    IdTokenHintInvalid,
    OpenIdRequest,
    Prompt,
    SignInRequired,
)
from core.federation.oauth.model.pushed_requests import PushedRequest, PushedRequestRequired
from core.kernel import proofs
from core.kernel.callers import Visitor
from core.kernel.claims import FRONTEND_CLIENT_ID
from core.kernel.errors import refuse
from core.kernel.proofs import Acr, Strength
from core.kernel.values import digest

if TYPE_CHECKING:
    from ports import Ports

STAMP_TTL: Final = timedelta(hours=1)
CLOCK_LEEWAY: Final = timedelta(seconds=30)  # the clocks of our processes can differ; the same as for tokens (security J-3)


class Step(Enum):
    """The next page or redirect in the browser."""

    SIGN_IN = "sign in"
    SIGN_UP = "sign up"
    SELECT_ACCOUNT = "select account"
    CONSENT = "consent"
    CODE = "code"


@dataclass(frozen=True, slots=True)
class NextStep:
    """The next step. `grant` is that of OpenID Connect, or None without it. `code` was issued, if that is the step."""

    step: Step
    grant: OpenIdGrant | None = None
    code: str | None = field(default=None, repr=False)


def parse(ports: Ports, authorization: Authorization, base_url: str) -> OpenIdRequest:
    """Return the checked parameters of OpenID Connect. Raises: PushedRequestRequired, IdTokenHintInvalid."""
    context, request = authorization.context, authorization.request
    if context is not None and context.require_pushed_authorization_requests and not isinstance(request, PushedRequest):
        raise PushedRequestRequired
    hint = None
    if authorization.request.id_token_hint is not None:
        hint = ports.tokens.read_id_token_hint(authorization.request.id_token_hint) or refuse(IdTokenHintInvalid)
        client_id = FRONTEND_CLIENT_ID if authorization.context is None else str(authorization.context.client_id)
        if hint.client_id != client_id:
            raise IdTokenHintInvalid
    parsed = openid_requests.parse(authorization.request, base_url, None if hint is None else hint.user_id, authorization.api)
    check_request(authorization)
    return parsed if authorization.service is None else _with_settings(parsed, authorization.service)


def _with_settings(openid: OpenIdRequest, settings: ClientSettings) -> OpenIdRequest:
    """Return the request with the claims and the authentication class that the application's settings add to each request."""
    if settings.required_acr is not None:
        openid = replace(openid, required_acr=Acr(settings.required_acr))
    if settings.enterprise:
        names = {*openid.claims.id_token, SESSION_EXPIRY}
        openid = replace(openid, claims=replace(openid.claims, id_token=tuple(sorted(names))))
    return openid


async def advance(
    ports: Ports, visitor: Visitor | None, authorization: Authorization, openid: OpenIdRequest, answer: str | None = None
) -> NextStep:
    """Find the next step, and issue the code if that is the step. `answer` is that of the user to our page, or None if it did not ask.

    `continue` agrees to the scopes, `select` continues with this account, and every other answer refuses.

    Raises: AccessDenied.
    """
    if answer not in (None, "continue", "select"):
        raise AccessDenied
    agreed = answer == "continue"
    step = await find_next_step(ports, visitor, authorization, openid, agreed=agreed, selected=answer == "select")
    if step.step is not Step.CODE or visitor is None or authorization.redirect_uri is None:
        return step
    return replace(step, code=await oauth.issue_code(ports, visitor, authorization, step.grant, agreed=agreed))


async def find_next_step(
    ports: Ports,
    visitor: Visitor | None,
    authorization: Authorization,
    openid: OpenIdRequest,
    *,
    agreed: bool = False,
    selected: bool = False,
) -> NextStep:
    """Return the next step for this visitor, who has all required factors.

    `agreed`: the user has just agreed on our page. `selected`: the user has just chosen this account on
    our page, which showed no scopes to agree to.

    Raises: SignInRequired, ConsentRequired, AuthenticationUnmet, AccessDenied.
    """
    is_silent = Prompt.NONE in openid.prompt
    if Prompt.CREATE in openid.prompt and _needs_sign_up(ports, visitor, authorization):
        return NextStep(Step.SIGN_UP)
    if visitor is None or await _needs_sign_in(ports, visitor, authorization, openid):
        if is_silent:
            raise SignInRequired
        return NextStep(Step.SIGN_IN)
    await _require_access(ports, visitor, authorization, openid)
    grant, needs_consent = await _grant(ports, visitor, authorization, openid)
    if agreed and not is_silent:
        return NextStep(Step.CODE, grant)
    asks_again = Prompt.CONSENT in openid.prompt and authorization.context is not None  # the platform itself needs no consent
    if needs_consent or asks_again:
        if is_silent:
            raise ConsentRequired
        return NextStep(Step.CONSENT, grant)
    if Prompt.SELECT_ACCOUNT in openid.prompt and not selected and not await _is_fresh(ports, visitor, authorization.request):
        return NextStep(Step.SELECT_ACCOUNT, grant)
    return NextStep(Step.CODE, grant)


async def _require_access(ports: Ports, visitor: Visitor, authorization: Authorization, openid: OpenIdRequest) -> None:
    """Check that the user may use the application and the API resource of the request. Raises: AccessDenied."""
    context = authorization.context
    if context is None:
        return
    async with ports.storage.reading() as read:
        if not await read.end_users.may_use(context.org_id, context.id, visitor.user_id, ports.clock.now()):
            raise AccessDenied
        if openid.api is not None and not await read.api_resources.may_use(context.org_id, openid.api.id, visitor.user_id):
            raise AccessDenied("The user may not use this API.")


def _needs_sign_up(ports: Ports, visitor: Visitor | None, authorization: Authorization) -> bool:
    """Return whether a request with prompt=create has not yet led to a new session.

    A user who has an account already can sign in on the sign-up page instead. Only applications that
    admit anyone have a sign-up.
    """
    if authorization.service is not None and authorization.service.access.policy is not AccessPolicy.ANYONE:
        return False
    stamp = _stamp_of_any_age(ports, authorization.request)  # the link in the email works for longer than a stamp
    return visitor is None or stamp is None or visitor.session_id == stamp.session_id


async def _needs_sign_in(ports: Ports, visitor: Visitor, authorization: Authorization, openid: OpenIdRequest) -> bool:
    """Return whether the session of the visitor is not enough. Raises: AuthenticationUnmet if a fresh sign-in was not enough."""
    used, is_fresh = visitor.browser.proofs, await _is_fresh(ports, visitor, authorization.request)
    if openid.subject not in (None, visitor.user_id):
        if is_fresh:
            raise SignInRequired("Another user has signed in.")
        return True
    if openid.required_acr is Acr.MFA and proofs.strength_of(used) < Strength.TWO:
        if is_fresh:
            raise AuthenticationUnmet
        return True
    if is_fresh:
        return False
    if Prompt.LOGIN in openid.prompt or openid.max_age == timedelta():
        return True
    if openid.max_age is not None:
        is_recent = proofs.is_fresh(used) and ports.clock.now() - proofs.proved_at(used) <= openid.max_age
        if not is_recent or await _lacks_factor(ports, visitor):
            return True
    if openid.wished_acr is Acr.MFA and Prompt.NONE not in openid.prompt:
        return await _lacks_factor(ports, visitor)
    return False


async def _grant(ports: Ports, visitor: Visitor, authorization: Authorization, openid: OpenIdRequest) -> tuple[OpenIdGrant | None, bool]:
    """Return the grant, and whether the user must agree to it first.

    Without OpenID Connect, the user must agree if the organization does not know them yet, as an end
    user or a confirmed member. Otherwise any web page could send the user here, and the organization
    would learn who they are. With OpenID Connect, and for an API resource, the user agrees once to each
    scope, unless they are a confirmed member of the organization of a trusted application.

    Any program on the user's machine can claim a redirect URI that is not https (RFC 8252 section
    8.6). For such a URI the user must agree each time. Exception: the application has a secret, which
    another program lacks, and the user has agreed to these scopes before.

    Every user must agree each time if the application is set to always ask.

    `offline_access` counts only if the user is asked, has agreed to it before, or if the application
    is trusted.
    """
    context, service = authorization.context, authorization.service
    grant = openid.grant
    if context is None or service is None:
        return grant, False
    is_https = (authorization.redirect_uri or "").startswith("https:")
    is_claimable = not is_https and (context.is_public or service.pkce_without_secret)
    always = service.always_ask_consent
    async with ports.storage.reading() as read:
        if grant is None:
            return None, always or not is_https or not await read.end_users.is_known(context.org_id, visitor.user_id)
        agreement = await load_agreement(read, service, visitor.user_id, grant, counts_trust=is_https)
    if Scope.OFFLINE_ACCESS not in agreement.scope and Prompt.CONSENT not in openid.prompt:
        grant = replace(grant, scope=tuple(scope for scope in grant.scope if scope is not Scope.OFFLINE_ACCESS))
    return grant, always or is_claimable or not agreement.covers(grant)


# Stamps


def asks_for_more(openid: OpenIdRequest) -> bool:
    """Return whether a session alone may not be enough, so that the request needs a stamp before the user signs in."""
    acr = openid.required_acr or openid.wished_acr
    return bool(openid.prompt) or openid.max_age is not None or acr is not None or openid.subject is not None


def add_stamp(ports: Ports, request: AuthorizationRequest, visitor: Visitor | None) -> AuthorizationRequest:
    """Return the request with the time at which its user was first asked to sign in, and the session of the visitor then."""
    if _read_stamp(ports, request) is not None:
        return request
    stamp = SignInStamp(ports.clock.now(), None if visitor is None else visitor.session_id)
    return replace(request, asked=ports.tokens.sign_stamp(_identity(request), stamp))


def is_stamped(path: str) -> bool:
    """Return whether an authorization request with a stamp continues at this path."""
    request = AuthorizationRequest.from_path(path)
    return request is not None and request.asked is not None


def asked_at(ports: Ports, path: str) -> datetime | None:
    """Return the time (UTC) in the stamp of the authorization request that continues at this path, or None."""
    request = AuthorizationRequest.from_path(path)
    stamp = None if request is None else _read_stamp(ports, request)
    return None if stamp is None else stamp.at


async def _is_fresh(ports: Ports, visitor: Visitor, request: AuthorizationRequest) -> bool:
    """Return whether the visitor signed in after this request had asked for it, with all factors of the account.

    The clocks of two processes differ, so the time alone does not decide. The session that the browser
    had when the user was asked is never fresh.

    The user can change where the sign-in form continues. Then the sign-in knows nothing of this
    request, and a trusted device skips the second factor.
    """
    session, stamp = visitor.browser, _read_stamp(ports, request)
    if stamp is None or session.id == stamp.session_id or not proofs.is_fresh(session.proofs):
        return False
    if proofs.proved_at(session.proofs) < stamp.at - CLOCK_LEEWAY:
        return False
    return not await _lacks_factor(ports, visitor)


async def _lacks_factor(ports: Ports, visitor: Visitor) -> bool:
    """Return whether the session began without the account's second factor, for example on a trusted device."""
    if proofs.strength_of(visitor.browser.proofs) >= Strength.TWO:
        return False
    async with ports.storage.reading() as read:
        account = await read.accounts.by_id(visitor.user_id)
    return account is not None and not proofs.covers(visitor.browser.proofs, account.factors)


def _read_stamp(ports: Ports, request: AuthorizationRequest) -> SignInStamp | None:
    """Return the stamp of the request, or None if there is none, or if it is too old or belongs to another request."""
    stamp, now = _stamp_of_any_age(ports, request), ports.clock.now()
    return None if stamp is None or now - stamp.at > STAMP_TTL else stamp


def _stamp_of_any_age(ports: Ports, request: AuthorizationRequest) -> SignInStamp | None:
    return None if request.asked is None else ports.tokens.read_stamp(request.asked, _identity(request), ports.clock.now())


def _identity(request: AuthorizationRequest) -> bytes:
    return digest(replace(request, asked=None).query)
