"""Sign-in through identity providers, and linking accounts at them.

The browser goes to the identity provider with a state, and returns once with this state and a code.
We exchange the code for the identity of the user, and sign the user in in this browser. Then the
browser continues where the user wanted to go. Applications get no code or token here: the browser
continues at their authorization request, in `oauth.authorization` (security A-4, A-7, O-1, O-5,
O-6).
"""

from __future__ import annotations

import hmac
import re
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from core.accounts import accounts, mailbox
from core.accounts import events as accounts_events
from core.accounts.model import accounts as accounts_model
from core.accounts.model.accounts import Account, AccountOrigin, EmailNotFree
from core.accounts.model.devices import PresentedDevice
from core.accounts.model.email_queue import EmailKind, new_email
from core.applications.model.services import Service, ServiceNotFound
from core.authentication import login, oauth_credentials
from core.authentication.model.identities import PendingIdentity, ProviderUnknown, parse_provider
from core.authentication.model.login import LoginFailure, PreAuthToken, SignedIn
from core.federation.model.sign_in import (
    MAX_STATE_LENGTH,
    NO_TARGET,
    STATE_TTL,
    BrowserSignInNeeded,
    LinkOfAnotherBrowser,
    LinkTicketInvalid,
    ProviderAnswer,
    ProviderAnswerInvalid,
    ProviderConsentDenied,
    ProviderEmailMissing,
    ProviderEmailTaken,
    ProviderSignIn,
    ProviderState,
    ProviderStateUnknown,
    ProviderTarget,
    SignedInAsAnotherUser,
)
from core.federation.oauth import authorization as oauth
from core.federation.oauth import authorization_steps, pushed_requests
from core.federation.oauth.model import device_flow
from core.federation.oauth.model.authorization import Authorization, AuthorizationRequest, AuthorizationResponse, check_request, respond
from core.federation.saml import pending as saml_pending
from core.kernel.access import OrganizationNotFound, require_sign_in
from core.kernel.callers import OrganizationStatus, Visitor
from core.kernel.causes import Caller
from core.kernel.connections import ConnectionSlug
from core.kernel.errors import OrganizationNotActive, ProviderFailed, refuse
from core.kernel.page_paths import ACCOUNT_PATH, IDENTITIES_PATH
from core.kernel.providers import AuthenticationRequest, ReauthenticationNotConfirmed
from core.kernel.sign_in_age import SignInAge
from core.kernel.values import base64url, digest, is_printable, new_secret

if TYPE_CHECKING:
    from core.kernel.providers import FederatedIdentity
    from ports import Ports
    from ports.storage import Transaction

_CODE_OR_ERROR: Final = re.compile("[ -~]{1,4096}")  # RFC 6749 appendices A.7 and A.11


# The sign-in page


async def available_providers(
    ports: Ports, after: str, authorization: Authorization | None, *, fresh_only: bool
) -> dict[ConnectionSlug, str]:
    """Return the path that starts a sign-in at each available identity provider.

    A provider is available if the platform or the application has credentials there. `after` is the
    path where the user continues, and `authorization` the application's request, if any. With
    `fresh_only`, return only providers that can reauthenticate the user.
    """
    configured = [connection.slug for connection in ports.providers.connections.values() if connection.can_reauthenticate or not fresh_only]
    available = oauth_credentials.platform_providers(ports)
    if configured and authorization is not None and authorization.service is not None:
        async with ports.storage.reading() as read:
            available |= (await read.oauth_credentials.list_of_service(authorization.service.org_id, authorization.service.id)).keys()
    query = urlencode({"next": after}) if authorization is None else authorization.request.query
    return {provider: f"/auth/{provider}?{query}" for provider in configured if provider in available}


# To the provider


async def begin(ports: Ports, caller: Caller, provider_name: str, device_cookie: str, base_url: str, sign_in: ProviderSignIn) -> str:
    """Return the URL of the provider that starts a sign-in there.

    `device_cookie` is the secret in the browser's device cookie. A request with `org` alone comes from the
    lookup of an email domain (`home_realm.find_sign_in`): the user signs in to their own account.

    Raises: ProviderUnknown, also if neither the service nor the platform has credentials there; the
    errors of `pushed_requests.present` and `authorization.check_request`.
    """
    provider = _find_provider(ports, provider_name)
    service, after = None, sign_in.after
    if sign_in.user_code is not None:
        async with ports.storage.reading() as read:
            client = await oauth.find_service(read, sign_in.request)
        service, after = None if client is None else client[0], device_flow.verification_url(sign_in.user_code)
    elif after is None and sign_in.request.org is not None and sign_in.request == AuthorizationRequest(org=sign_in.request.org):
        await _require_active(ports, sign_in.request.org)
        after = ACCOUNT_PATH
    elif after is None:
        authorization = await pushed_requests.present(ports, sign_in.request, device_cookie)
        check_request(authorization)
        service, after = authorization.service, ACCOUNT_PATH if authorization.redirect_uri is None else sign_in.request.path
    return await _start(ports, caller, provider, device_cookie, base_url, after, service=service)


async def _require_active(ports: Ports, org_slug: str) -> None:
    """Check that the organization is active. Raises: OrganizationNotFound, OrganizationNotActive."""
    if not is_printable(org_slug):
        raise OrganizationNotFound
    async with ports.storage.reading() as read:
        status = await read.organizations.status_by_slug(org_slug) or refuse(OrganizationNotFound)
    if status is not OrganizationStatus.ACTIVE:
        raise OrganizationNotActive


async def begin_with_ticket(
    ports: Ports, caller: Caller, provider_name: str, device_cookie: str, base_url: str, ticket: str, visitor: Visitor | None
) -> str:
    """Return the URL of the provider at which the user links an account, or signs in again for their session.

    Source: security O-6.

    The browser opened a URL with a ticket. `visitor` is the user who is signed in in this browser. The
    ticket works only in the browser of the session that it was made for. If that session has none, the
    user shows with a fresh sign-in that the browser is theirs. Other browsers do not use the ticket up.

    Raises: ProviderUnknown, LinkTicketInvalid, BrowserSignInNeeded, SignedInAsAnotherUser, LinkOfAnotherBrowser, SignInNotRecent.
    """
    provider, now = _find_provider(ports, provider_name), ports.clock.now()
    async with ports.storage.reading() as read:
        record = await read.identities.find_ticket(digest(ticket), provider, now) or refuse(LinkTicketInvalid)
    if visitor is None:
        raise BrowserSignInNeeded if record.browser_session_id is None else LinkOfAnotherBrowser
    # An attacker could send a ticket's URL to a victim, to link the victim's provider account to
    # the attacker's account.
    if visitor.user_id != record.user_id:
        raise SignedInAsAnotherUser
    if record.browser_session_id is None:
        require_sign_in(visitor, SignInAge.FRESH, ports.policy, now)
    elif visitor.session_id != record.browser_session_id:
        raise LinkOfAnotherBrowser
    async with ports.storage.transaction(by=visitor) as tx:
        if not await tx.identities.consume_ticket(digest(ticket), now):
            raise LinkTicketInvalid
    target = ProviderTarget(record.user_id, record.session_id, visitor.session_id, reauthenticates=record.after is not None)
    return await _start(ports, caller, provider, device_cookie, base_url, record.after or IDENTITIES_PATH, target=target)


async def _start(
    ports: Ports,
    caller: Caller,
    provider: ConnectionSlug,
    device_cookie: str,
    base_url: str,
    after: str,
    *,
    service: Service | None = None,
    target: ProviderTarget = NO_TARGET,
) -> str:
    now, state = ports.clock.now(), new_secret()
    org_id, service_id = (None, None) if service is None else (service.org_id, service.id)
    pending = ProviderState(
        state_hash=digest(state),
        browser_hash=digest(device_cookie),
        provider=provider,
        org_id=org_id,
        service_id=service_id,
        user_id=target.user_id,
        session_id=target.session_id,
        browser_session_id=target.browser_session_id,
        reauthenticates=target.reauthenticates,
        scopes=None if service is None else service.scopes_at(provider),
        after=after,
        created_at=now,
        expires_at=now + STATE_TTL,
    )
    request = await _authentication_request(ports, pending, state, device_cookie, base_url)
    async with ports.storage.transaction(by=caller) as tx:
        if not await tx.provider_states.add(pending):  # the service was just deleted, or the user's session just ended
            raise ServiceNotFound if service is not None else LinkTicketInvalid
    return ports.providers.authorization_url(provider, request)


def _find_provider(ports: Ports, provider_name: str) -> ConnectionSlug:
    provider = parse_provider(provider_name)
    if provider not in ports.providers.connections:
        raise ProviderUnknown
    return provider


async def _authentication_request(
    ports: Ports, pending: ProviderState, state: str, device_cookie: str, base_url: str
) -> AuthenticationRequest:
    """Return the request to the provider. It is the same before the redirect and after it.

    The nonce and the code verifier are derived from the state and the browser's cookie. The
    database stores only hashes of the state and the cookie, so a reader of the database cannot
    compute them. Another browser has another cookie, so its request does not match.
    """

    def derive(purpose: str) -> str:
        return base64url(hmac.digest(device_cookie.encode(), f"{purpose} {state}".encode(), "sha256"))

    return AuthenticationRequest(
        client=await oauth_credentials.load_client(ports, pending.provider, pending.org_id, pending.service_id),
        redirect_uri=f"{base_url}/auth/{pending.provider}/callback",
        state=state,
        nonce=derive("nonce"),
        code_verifier=derive("verifier"),
        scopes=pending.scopes,
        fresh_since=await _fresh_since(ports, pending),
    )


async def _fresh_since(ports: Ports, pending: ProviderState) -> datetime | None:
    if pending.reauthenticates:
        connection = ports.providers.connections.get(pending.provider)
        return pending.created_at if connection is not None and connection.can_reauthenticate else None
    return await fresh_sign_in_since(ports, pending.after)


async def fresh_sign_in_since(ports: Ports, path: str) -> datetime | None:
    """Return the time (UTC) since when the application at this path has waited for a fresh sign-in, or None if it accepts a session."""
    return authorization_steps.asked_at(ports, path) or await saml_pending.fresh_sign_in_since(ports, path)


# Back from the provider


async def consume_state(ports: Ports, provider_name: str, device_cookie: str | None, state: str | None) -> ProviderState:
    """Consume and return the pending state, which must have been started in this browser. Raises: ProviderUnknown, ProviderStateUnknown."""
    provider = parse_provider(provider_name)
    if device_cookie is None or state is None or len(state) > MAX_STATE_LENGTH:
        ports.metrics.login_failed(LoginFailure.STATE)
        raise ProviderStateUnknown
    async with ports.storage.autocommit() as statements:
        pending = await statements.provider_states.consume(digest(state), digest(device_cookie), provider, ports.clock.now())
    if pending is None:
        ports.metrics.login_failed(LoginFailure.STATE)
        raise ProviderStateUnknown
    return pending


async def fetch_identity(
    ports: Ports, pending: ProviderState, device_cookie: str, state: str, base_url: str, answer: ProviderAnswer
) -> FederatedIdentity:
    """Exchange the provider's code for the identity of the user.

    Raises: ProviderAnswerInvalid for an answer that a provider never sends; ProviderConsentDenied
    if the user, or their administrator, refused; ReauthenticationNotConfirmed, ProviderFailed,
    ProviderUnknown.
    """
    try:
        connection = ports.providers.connections.get(pending.provider)
        if answer.issuer is not None and not (connection and connection.is_issuer(answer.issuer)):
            raise ProviderAnswerInvalid
        if not _CODE_OR_ERROR.fullmatch(answer.error or answer.code or ""):
            raise ProviderAnswerInvalid
        if answer.error == "access_denied":
            raise ProviderConsentDenied
        if answer.error is not None or answer.code is None:
            raise ProviderFailed(f"{pending.provider} answered with an error instead of a code")
        request = await _authentication_request(ports, pending, state, device_cookie, base_url)
        return await ports.providers.identify(pending.provider, request, answer.code)
    except (ProviderAnswerInvalid, ProviderConsentDenied, ReauthenticationNotConfirmed, ProviderFailed):
        ports.metrics.login_failed(LoginFailure.PROVIDER)
        raise


async def error_response(ports: Ports, pending: ProviderState, error: str, base_url: str) -> AuthorizationResponse | None:
    """Return the response that reports an error to the waiting application, if any.

    `error` is a code of RFC 6749 section 4.1.2.1.

    Raises: RequestUriInvalid if the application has pushed the request, and it was used before.
    """
    authorization = await oauth.authorization_at(ports, pending.after)
    if authorization is None or authorization.redirect_uri is None:
        return None
    await pushed_requests.finish(ports, authorization.request)
    return respond(authorization, base_url, error=error)


async def sign_in(
    ports: Ports, caller: Caller, pending: ProviderState, identity: FederatedIdentity, client: PresentedDevice
) -> SignedIn | PreAuthToken:
    """Start a browser session for this identity, or return a pre-auth token if the second factor is still required.

    Raises: ProviderEmailMissing, ProviderEmailTaken, ProviderStateUnknown, ServiceNotFound,
    OrganizationNotActive, AccountClosed.
    """
    try:
        find_account = partial(_find_account, ports, pending, identity)
        return await login.sign_in_with_identity(ports, caller, pending.provider, find_account, client, is_fresh=identity.is_fresh)
    except (ProviderEmailMissing, ProviderEmailTaken):
        ports.metrics.login_failed(LoginFailure.ADDRESS)
        raise


async def _find_account(
    ports: Ports, pending: ProviderState, identity: FederatedIdentity, tx: Transaction
) -> tuple[Account, PendingIdentity | None]:
    """Return the locked account of this identity, and the identity to link, if any.

    The caller links the identity after all factors are verified. If the identity is already linked
    in this context (the service, or the platform itself), only its new tokens are stored. A closed
    account is returned as it is.

    A linked identity is found by provider, issuer and subject, in this or another context, and
    never by its email address (security O-5).
    """
    now = ports.clock.now()
    if pending.service_id is not None:  # the organization may have been suspended while the browser was at the provider
        service = await tx.services.context_by_id(pending.service_id) or refuse(ServiceNotFound)
        if service.status is not OrganizationStatus.ACTIVE:
            raise OrganizationNotActive
    # Lock order: the subject before all other locks. Of two parallel first sign-ins, the second one
    # finds the account of the first.
    await tx.identities.lock_subject(pending.provider, identity.issuer, identity.subject)
    match = await tx.identities.match(pending.provider, identity.issuer, identity.subject, pending.service_id)
    if match is None:
        account = await _find_account_by_email(pending, identity, tx, now)
    else:
        account = await tx.accounts.lock(match.user_id) or refuse(ProviderStateUnknown)
        match = await tx.identities.match(pending.provider, identity.issuer, identity.subject, pending.service_id)
        if match is None or match.user_id != account.id:  # unlinked before the account lock was granted
            raise ProviderStateUnknown
    if not account.is_usable:
        return account, None
    pending_identity = None
    if match is not None and match.is_here:
        await tx.identities.update_tokens(match.id, identity.email, identity.tokens)
    else:
        pending_identity = pending.to_link(identity, known_elsewhere=match is not None)
    if identity.is_fresh:
        await saml_pending.record_fresh_sign_in(tx, pending.after, account.id)
    return account, pending_identity


async def _find_account_by_email(pending: ProviderState, identity: FederatedIdentity, tx: Transaction, now: datetime) -> Account:
    """Return the locked account for a new identity.

    It is a new account, or the account with the same email address, if the provider has verified
    that address.

    Raises: ProviderEmailMissing, ProviderEmailTaken.
    """
    email = identity.email or refuse(ProviderEmailMissing)
    origin = AccountOrigin.PLATFORM if pending.org_id is None else AccountOrigin.SIGN_UP
    if not identity.email_verified:
        account = accounts_model.new_account(email, None, now, origin=origin, org_id=pending.org_id)
        if not await tx.accounts.add_if_free(account):
            raise ProviderEmailTaken
        # As after a registration, the user must verify the address first. Until then it proves
        # nothing (security A-4).
        await tx.email_queue.add(new_email(EmailKind.VERIFY_EMAIL, email, now, org_id=pending.org_id))
        tx.record(accounts_events.signed_up(account.id, pending.org_id, pending.service_id))
        return account
    try:
        account, is_new = await accounts.find_or_add(tx, email, now, origin=origin, org_id=pending.org_id)
    except EmailNotFree:
        raise ProviderEmailTaken from None
    if account.is_usable and account.email_verified_at is not None:
        return account
    if is_new:
        tx.record(accounts_events.signed_up(account.id, pending.org_id, pending.service_id))
    elif account.is_usable and account.is_unproven:
        raise ProviderEmailTaken
    return await mailbox.prove_mailbox(tx, account, now) or account
