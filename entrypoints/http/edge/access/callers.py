"""How the access decorators identify and authorize the caller of a request."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, cast

from quart import Response, g, request

from core.applications import api_keys
from core.applications.model import api_keys as api_keys_model
from core.authentication import admissions, browser, callers, impersonation
from core.authentication.model import dpop
from core.authentication.tokens import signing_keys
from core.billing.model import provider_events
from core.kernel import errors, page_paths
from core.kernel.access import OwnMembershipNotConfirmed, Requirement
from core.kernel.callers import Member, Person, ServiceAccountCaller
from core.kernel.judgement import PolicyPath
from core.kernel.roles import Capability
from core.kernel.sign_in_policy.explanations import PolicyRefused
from core.setup import opening
from core.setup.model.links import SetupSessionMissing
from entrypoints.http.base import context, cookies
from entrypoints.http.edge.access import declaration
from entrypoints.http.edge.directory.authentication import authenticate_directory
from entrypoints.http.edge.limits import take_directory_token
from entrypoints.http.edge.proofs import read_proof
from entrypoints.http.edge.protocol.connection import LazyBody
from entrypoints.http.edge.reauthentication import to_sign_in_again

# The header that Stripe uses, so that Stripe can call this endpoint directly.
SIGNATURE_OF_STRIPE: Final = "Stripe-Signature"


class NotSignedIn(errors.Unauthenticated):
    """Sign in first. Send an access token, or open this page in a browser and sign in there."""


async def as_anyone(_: declaration.Access) -> None:
    g.caller = context.anonymous()


def bearer_token() -> str:
    """Return the token of the Authorization header. Tokens are accepted nowhere else (security J-7)."""
    scheme, _, token = context.current_request().headers.get("Authorization", "").partition(" ")
    token = token.lstrip(" ")
    if scheme.lower() != "bearer" or not token:
        raise errors.Unauthenticated
    return token


async def presented_token() -> dpop.PresentedToken:
    """Return the access token of the request: with the scheme Bearer, or with the scheme DPoP and a proof (RFC 9449 section 7)."""
    scheme, _, token = context.current_request().headers.get("Authorization", "").partition(" ")
    token = token.lstrip(" ")
    if scheme.lower() != "dpop" or not token:
        return dpop.PresentedToken(bearer_token())
    try:
        proof = await read_proof(token)
    except dpop.ProofInvalid as refusal:
        raise dpop.ProofRefused(refusal.message) from None
    except dpop.NonceMissing as refusal:
        raise dpop.NonceRequired(refusal.nonce) from None
    return dpop.PresentedToken(token, proof or errors.refuse(dpop.ProofRefused("Send a DPoP proof together with the access token.")))


def _required(access: declaration.Access) -> Requirement:
    return access.requirement(context.current_request().method)


async def as_person(access: declaration.Access, *, allow_former_users: bool = False) -> None:
    user = await callers.authenticate(
        context.ports(), context.anonymous(), await presented_token(), _required(access), allow_former_users=allow_former_users
    )
    _record_organization(user)
    await _authorize_user(user, access)


async def as_person_with_profile(access: declaration.Access) -> None:
    user, g.own_profile = await callers.authenticate_with_profile(
        context.ports(), context.anonymous(), await presented_token(), _required(access)
    )
    _record_organization(user)
    await _authorize_user(user, access)


def _record_organization(user: Person) -> None:
    if user.organization is not None:
        context.request_record().organization = user.organization.slug
    elif user.service is not None:
        context.request_record().organization = user.service.org_slug


async def as_person_if_present(access: declaration.Access) -> None:
    if "Authorization" in request.headers:
        await as_person(access, allow_former_users=True)
    else:
        g.caller = context.anonymous()


async def as_pre_auth(_: declaration.Access) -> None:
    claims = await signing_keys.read_pre_auth(context.ports(), bearer_token())
    context.request_record().caller = str(claims.user_id)
    g.pre_auth = claims
    g.caller = context.anonymous()  # the user is not signed in until the second factor is verified


async def as_browser(access: declaration.Access, load: Callable[..., Awaitable[Person]] = browser.authenticate) -> Response | None:
    cookie = cookies.SESSION.read()
    if cookie is None:
        return await to_sign_in_again()
    try:
        user = await load(context.ports(), context.anonymous(), cookie)
    except errors.SessionEnded:
        return await to_sign_in_again()
    await _authorize_user(user, access)
    return None


as_console_user = partial(as_browser, load=browser.authenticate_in_console)


async def as_browser_of_member(access: declaration.Access) -> Response | None:
    assert access.capability is not None, "the access of a member has a capability"
    cookie, slug = cookies.SESSION.read(), (request.view_args or {})["org_slug"]
    if cookie is None:
        return await to_sign_in_again()
    context.request_record().organization = slug
    try:
        user = await browser.authenticate_member(
            context.ports(),
            context.anonymous(),
            cookie,
            slug,
            access.capability,
            inactive=access.inactive,
            reminds=request.method == "GET",
            asks_policy=access.row(request.method).asks_policy,
        )
    except PolicyRefused as refusal:
        if isinstance(refusal.caller, Member) and Capability.ORGANIZATION_OWN in refusal.caller.acts_in.rights:
            context.request_record().way_back = "Review the rules", page_paths.IMPOSED_RULES_PATH.format(org_slug=slug)
        raise
    except errors.SessionEnded:
        return await to_sign_in_again()
    except OwnMembershipNotConfirmed:
        return Response(b"", 303, {"Location": page_paths.ORGANIZATIONS_PATH, "Cache-Control": "no-store"})
    await _authorize_user(user, access)
    return None


async def as_person_or_browser(access: declaration.Access) -> Response | None:
    if "Authorization" in request.headers:
        await as_person(access, allow_former_users=True)
        return None
    redirect = await as_browser(access)
    if redirect is not None and (request.method != "GET" or "text/html" not in request.accept_mimetypes.values()):
        raise NotSignedIn
    return redirect


async def as_member(access: declaration.Access) -> None:
    assert access.capability is not None, "the access of a member has a capability"
    slug = (request.view_args or {})["org_slug"]
    context.request_record().organization = slug
    user = await callers.authenticate_member(context.ports(), context.anonymous(), await presented_token(), slug, _required(access))
    await _authorize(user, access)


async def as_platform_owner(access: declaration.Access) -> None:
    user = await callers.authenticate_on_platform(context.ports(), context.anonymous(), await presented_token(), _required(access))
    if isinstance(user, Person):
        _record_organization(user)
    await _authorize(user, access)


async def as_service_key(access: declaration.Access) -> None:
    assert access.permission is not None, "the access of an API key has a permission"
    # API keys are accepted only in this header.
    key = request.headers.get("X-Api-Key") or errors.refuse(api_keys_model.ApiKeyInvalid)
    program = await api_keys.authenticate(context.ports(), context.anonymous(), key, access.permission)
    context.request_record().caller, context.request_record().organization = str(program.key_id), program.service.org_slug
    g.caller = program


async def as_scim_client(_: declaration.Access) -> None:
    directory = await authenticate_directory(bearer_token())
    context.request_record().caller, context.request_record().organization = str(directory.token_id), directory.org_slug
    g.caller = directory
    # First without a statement: refusing large bodies must be cheap.
    cast("LazyBody", request.body).admit_with(partial(context.app_context().large_bodies.admit, directory.org_id))
    await take_directory_token(directory.org_id)


async def as_setup_link(_: declaration.Access) -> None:
    cookie = cookies.SETUP.read() or errors.refuse(SetupSessionMissing)
    reader = await opening.authenticate(context.ports(), context.anonymous(), cookie)
    context.request_record().caller = str(reader.link_id)
    g.caller = reader


async def as_billing(_: declaration.Access) -> None:
    headers = request.headers
    header = headers.get("billing-signature") or headers.get(SIGNATURE_OF_STRIPE)
    raw = await request.body
    provider_events.verify(context.app_context().billing_secrets, header, raw, context.ports().clock.now())
    context.request_record().caller = "billing"
    g.caller = context.anonymous()


async def _authorize(user: Person | ServiceAccountCaller, access: declaration.Access) -> None:
    if isinstance(user, Person):
        await _authorize_user(user, access)
    else:  # `callers` has checked its rights
        context.request_record().caller = str(user.account_id)
        g.caller = user


async def _authorize_user(user: Person, access: declaration.Access) -> None:
    context.request_record().caller = str(user.user_id)
    if user.impersonator_id is not None:
        context.request_record().impersonator = str(user.impersonator_id)
        g.impersonation_entry = await impersonation.record_request(
            context.ports(), user, request.method, context.request_record().route, request.view_args or {}
        )
    path = PolicyPath.CONSOLE if access.credentials is declaration.Credentials.COOKIE else PolicyPath.API
    facts = admissions.check_act(context.ports(), path, user, _required(access))
    g.caller = user
    g.caller = await admissions.admit(context.ports(), facts)
