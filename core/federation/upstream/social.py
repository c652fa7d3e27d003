"""Signing in through identity providers, and linking accounts there (identity.md section 4.9; decisions, points 75, 86, 87, 101 and 102;
security.md A-4, A-7, O-1, O-5, O-6).

A browser goes to the provider with a state and comes back with it and a code, once. Whoever the provider then vouches for is signed in in
this browser, and goes on to what they came for; applications get nothing here (core/oauth.py).
"""

from __future__ import annotations

import hmac
import re
from base64 import urlsafe_b64encode
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from core.accounts import accounts, accounts_rules
from core.accounts import events as accounts_events
from core.accounts.accounts_rules import Origin
from core.accounts.email_queue_rules import MailKind, new_mail
from core.accounts.own_account import lock_own_account
from core.applications.services_rules import ServiceNotFound
from core.authentication import events as authentication_events
from core.authentication import login, oauth_credentials
from core.authentication.identities_rules import AlreadyLinked, PendingIdentity
from core.authentication.login_failures import LoginFailure
from core.authentication.oauth_credentials_rules import ProviderUnknown, parse_provider
from core.federation.oauth import authorization as oauth
from core.federation.oauth import authorization_rules as oauth_rules
from core.federation.oauth import device_flow_rules
from core.federation.saml import pending as saml_pending
from core.federation.upstream.social_rules import (
    ACCOUNT_PATH,
    IDENTITIES_PATH,
    MAX_STATE_LENGTH,
    STATE_TTL,
    IdentityLinkedToAnother,
    LinkTicketInvalid,
    ProviderAnswerInvalid,
    ProviderConsentDenied,
    ProviderEmailMissing,
    ProviderEmailTaken,
    ProviderState,
    ProviderStateUnknown,
    SignedInAsAnotherUser,
)
from core.kernel.errors import OrganizationNotActive, ProviderFailed, refuse
from core.kernel.principals import AccountGone, OrganizationStatus, Person
from core.kernel.providers import SUPPORTS_REAUTHENTICATION, AuthenticationRequest, Provider, ReauthenticationNotConfirmed
from core.kernel.values import digest, new_secret

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from core.accounts.accounts_rules import Account
    from core.accounts.devices_rules import Client
    from core.applications.services_rules import Service
    from core.authentication.login_rules import PreAuthToken, SignedIn
    from core.federation.oauth.authorization_rules import Authorization, AuthorizationRequest
    from core.kernel.principals import Caller
    from core.kernel.providers import FederatedIdentity
    from core.kernel.values import Email
    from ports import Ports
    from ports.storage import Transaction

_SENT: Final = re.compile("[ -~]{1,4096}")  # a code, or an error (RFC 6749, appendices A.7 and A.11)


# What providers there are to sign in with


async def available_providers(ports: Ports, after: str, authorization: Authorization | None, *, anew: bool) -> dict[Provider, str]:
    """Where to go to sign in through which provider, before one goes on to this path of ours, which is a request of an application or not:
    those that are set up, or where the application has credentials of its own; `anew`, those that can be asked for a fresh sign-in."""
    known = [provider for provider in Provider if ports.providers.knows(provider) and (provider in SUPPORTS_REAUTHENTICATION or not anew)]
    own: list[Provider] = []
    if known and authorization is not None and authorization.service is not None:
        async with ports.storage.reading() as read:
            own = await read.oauth_credentials.list_providers(authorization.service.org_id, authorization.service.id)
    query = urlencode({"next": after}) if authorization is None else authorization.request.query
    usable = oauth_credentials.platform_providers(ports).union(own)
    return {provider: f"/auth/{provider.value}?{query}" for provider in known if provider in usable}


# On the way


async def begin(
    ports: Ports,
    caller: Caller,
    provider_name: str,
    browser: str,
    base_url: str,
    wanted: AuthorizationRequest,
    *,
    user_code: str | None = None,
    after: str | None = None,
) -> str:
    """Where the browser goes to sign in through the provider. `browser` is the secret of its cookie.

    It goes on to what an application wants; or with `user_code` to the page of devices, or with `after` to that path of ours.
    Raises ProviderUnknown, also for one where neither the service nor the platform is known, and what core.oauth.judge raises.
    """
    provider = _known(ports, provider_name)
    service: Service | None = None
    if user_code is not None:
        async with ports.storage.reading() as read:
            found = await oauth.find_service(read, wanted)
        service, after = None if found is None else found[0], device_flow_rules.verification_url(user_code)
    elif after is None:
        authorization = await oauth.validate(ports, wanted)
        service, after = authorization.service, ACCOUNT_PATH if authorization.redirect_uri is None else wanted.path
    return await _send(ports, caller, provider, browser, base_url, after, service=service)


async def begin_link(
    ports: Ports, caller: Caller, provider_name: str, browser: str, base_url: str, ticket: str, visitor_id: UUID | None
) -> tuple[str, Email]:
    """Where the browser goes that has opened the address of a ticket (decisions, point 75), and whose account is to be linked.
    `visitor_id` is who is signed in in it; where nobody is, a page must ask before it goes on (security.md O-6).

    Raises ProviderUnknown, LinkUnknown, OfAnother.
    """
    provider, now = _known(ports, provider_name), ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        found = await tx.identities.consume_ticket(digest(ticket), provider, now) or refuse(LinkTicketInvalid)
        account = await tx.accounts.by_id(found.user_id) or refuse(LinkTicketInvalid)
    # Whoever is sent such an address by somebody else must not have their own account linked to that one's.
    if visitor_id not in (None, found.user_id):
        raise SignedInAsAnotherUser
    address = await _send(ports, caller, provider, browser, base_url, IDENTITIES_PATH, linking=(found.user_id, found.session_id))
    return address, account.email


async def _send(
    ports: Ports,
    caller: Caller,
    provider: Provider,
    browser: str,
    base_url: str,
    after: str,
    *,
    service: Service | None = None,
    linking: tuple[UUID, UUID] | None = None,
) -> str:
    now, state = ports.clock.now(), new_secret()
    org_id, service_id = (None, None) if service is None else (service.org_id, service.id)
    user_id, session_id = linking or (None, None)
    pending = ProviderState(
        state_hash=digest(state),
        browser_hash=digest(browser),
        provider=provider,
        org_id=org_id,
        service_id=service_id,
        user_id=user_id,
        session_id=session_id,
        scopes=None if service is None else _scopes(service, provider),
        after=after,
        created_at=now,
        expires_at=now + STATE_TTL,
    )
    asking = await _asking(ports, pending, state, browser, base_url)
    async with ports.storage.transaction(by=caller) as tx:
        if not await tx.provider_states.add(pending):  # what it is for is gone at this moment
            raise ServiceNotFound if service is not None else LinkTicketInvalid
    return ports.providers.address(provider, asking)


def _known(ports: Ports, provider_name: str) -> Provider:
    provider = parse_provider(provider_name)
    if not ports.providers.knows(provider):
        raise ProviderUnknown
    return provider


def _scopes(service: Service, provider: Provider) -> tuple[str, ...] | None:
    return {
        Provider.CODEHOST: service.codehost_scopes,
        Provider.WEBSUITE: service.websuite_scopes,
        Provider.OFFICESUITE: service.officesuite_scopes,
    }[provider]


async def _asking(ports: Ports, pending: ProviderState, state: str, browser: str, base_url: str) -> AuthenticationRequest:
    """Nonce and verifier follow from the state and the cookie, each of which is kept as a hash alone: so nobody finds them in the database,
    and they are right in the browser alone that began it."""

    def derived(what: str) -> str:
        return urlsafe_b64encode(hmac.digest(browser.encode(), f"{what} {state}".encode(), "sha256")).rstrip(b"=").decode()

    return AuthenticationRequest(
        client=await oauth_credentials.load_client(ports, pending.provider, pending.org_id, pending.service_id),
        redirect_uri=f"{base_url}/auth/{pending.provider.value}/callback",
        state=state,
        nonce=derived("nonce"),
        code_verifier=derived("verifier"),
        scopes=pending.scopes,
        fresh_since=await saml_pending.fresh_login_since(ports, pending.after),
    )


# On the way back


async def take_state(ports: Ports, provider_name: str, browser: str | None, state: str | None) -> ProviderState:
    """What ends now; a state that was begun in this browser ends once. Raises ProviderUnknown, StateUnknown."""
    provider = parse_provider(provider_name)
    if browser is None or state is None or len(state) > MAX_STATE_LENGTH:
        ports.metrics.login_failed(LoginFailure.STATE)
        raise ProviderStateUnknown
    async with ports.storage.autocommit() as at_once:
        pending = await at_once.provider_states.take(digest(state), digest(browser), provider, ports.clock.now())
    if pending is None:
        ports.metrics.login_failed(LoginFailure.STATE)
        raise ProviderStateUnknown
    return pending


async def fetch_identity(
    ports: Ports,
    pending: ProviderState,
    browser: str,
    state: str,
    base_url: str,
    *,
    code: str | None,
    error: str | None,
    issuer: str | None,
) -> FederatedIdentity:
    """Whom the provider vouches for; `code`, `error` and `issuer` are what it has sent along (RFC 6749 section 4.1.2, RFC 9207).

    Raises AnswerInvalid for what a provider does not send, ConsentRefused where the person, or somebody for them, did not agree, ReauthenticationNotConfirmed,
    ProviderFailed, ProviderUnknown.
    """
    try:
        if issuer is not None and not ports.providers.is_issuer(pending.provider, issuer):
            raise ProviderAnswerInvalid
        if not _SENT.fullmatch(error or code or ""):
            raise ProviderAnswerInvalid
        if error == "access_denied":
            raise ProviderConsentDenied
        if error is not None or code is None:
            raise ProviderFailed(f"{pending.provider.value} gave an error in the place of a code")
        asking = await _asking(ports, pending, state, browser, base_url)
        return await ports.providers.vouch(pending.provider, asking, code)
    except (ProviderAnswerInvalid, ProviderConsentDenied, ReauthenticationNotConfirmed, ProviderFailed):
        ports.metrics.login_failed(LoginFailure.PROVIDER)
        raise


async def error_redirect(ports: Ports, pending: ProviderState, error: str, base_url: str) -> str | None:
    """Where an application hears that nothing comes of what it wanted, by a code of RFC 6749 section 4.1.2.1; None where there is none that
    would hear it."""
    authorization = await oauth.authorization_at(ports, pending.after)
    return None if authorization is None or authorization.redirect_uri is None else oauth_rules.error_uri(authorization, error, base_url)


async def sign_in(ports: Ports, caller: Caller, pending: ProviderState, whom: FederatedIdentity, client: Client) -> SignedIn | PreAuthToken:
    """What it gives to be vouched for: a session in this browser, or where the second factor is asked for, a pre-auth token.

    Raises AddressMissing, AddressTaken, StateUnknown, ServiceNotFound, OrganizationNotActive, and login.AccountClosed.
    """
    try:
        return await login.sign_in_with_identity(ports, caller, pending.provider, partial(_account_of, ports, pending, whom), client)
    except (ProviderEmailMissing, ProviderEmailTaken):
        ports.metrics.login_failed(LoginFailure.ADDRESS)
        raise


async def _account_of(
    ports: Ports, pending: ProviderState, whom: FederatedIdentity, tx: Transaction
) -> tuple[Account, PendingIdentity | None]:
    """The account that belongs to somebody at a provider, locked; one that is closed is returned as it is. And what is to be linked to it
    when they have come in; what is linked in this context already is renewed at once.

    An identity is found by provider, issuer and subject, in this context or in any other one, and never by its address (security.md O-5).
    """
    now = ports.clock.now()
    if pending.service_id is not None:  # which may have been closed while the browser was away (decisions, point 48)
        service = await tx.services.context_by_id(pending.service_id) or refuse(ServiceNotFound)
        if service.status is not OrganizationStatus.ACTIVE:
            raise OrganizationNotActive
    # First of all locks, so that of two who come for the first time the second finds what the first has made.
    await tx.identities.lock_subject(pending.provider, whom.issuer, whom.subject)
    known = await tx.identities.match(pending.provider, whom.issuer, whom.subject, pending.service_id)
    if known is None:
        account = await _by_address(pending, whom, tx, now)
    else:
        account = await tx.accounts.lock(known.user_id) or refuse(ProviderStateUnknown)
        known = await tx.identities.match(pending.provider, whom.issuer, whom.subject, pending.service_id)
        if known is None or known.user_id != account.id:  # unlinked at this moment
            raise ProviderStateUnknown
    if not account.is_usable:
        return account, None
    unlinked = None
    if known is not None and known.is_here:
        await tx.identities.update_tokens(known.id, whom.email, whom.tokens)
    else:
        unlinked = _unlinked(pending, whom, known_elsewhere=known is not None)
    if whom.is_fresh:
        await saml_pending.record_fresh_login(tx, pending.after, account.id)
    return account, unlinked


def _unlinked(pending: ProviderState, whom: FederatedIdentity, *, known_elsewhere: bool) -> PendingIdentity:
    return PendingIdentity(pending.service_id, pending.provider, whom.issuer, whom.subject, whom.email, whom.tokens, known_elsewhere)


async def _by_address(pending: ProviderState, whom: FederatedIdentity, tx: Transaction, now: datetime) -> Account:
    """The account of somebody who comes for the first time, locked: a new one, or one whose address is proved on both sides.

    Raises AddressMissing, AddressTaken.
    """
    email = whom.email or refuse(ProviderEmailMissing)
    origin = Origin.PLATFORM if pending.org_id is None else Origin.SIGN_UP
    if not whom.email_verified:
        account = accounts_rules.new_account(email, None, now, origin=origin, org_id=pending.org_id)
        if not await tx.accounts.add_if_free(account):
            raise ProviderEmailTaken
        # As at a registration: until the person follows it, the address is worth little.
        await tx.mails.queue(new_mail(MailKind.VERIFY_EMAIL, email, now, org_id=pending.org_id))
        tx.record(accounts_events.signed_up(account.id, pending.org_id, pending.service_id))
        return account
    account, born = await accounts.find_or_add(tx, email, now, origin=origin, org_id=pending.org_id)
    if not account.is_usable or account.email_verified_at is not None:
        return account
    if born:
        tx.record(accounts_events.signed_up(account.id, pending.org_id, pending.service_id))
    elif account.first_verified_at is None:
        # Whoever gave this address before has not shown that the mailbox is theirs. Nothing they left behind may survive.
        await accounts.shut(tx, account, now)
        await tx.pre_auths.remove_all(account.id)
        await tx.devices.distrust(account.id, now)
        await tx.accounts.drop_password(account.id, now)
    else:  # somebody has proved another address, and gave this one since: it is not known to be theirs, and the account is
        raise ProviderEmailTaken
    await tx.accounts.mark_verified(account.id, now)
    return await tx.accounts.lock(account.id) or refuse(ProviderStateUnknown)


async def link(ports: Ports, caller: Caller, pending: ProviderState, whom: FederatedIdentity, visitor_id: UUID | None) -> None:
    """Link the account at the provider to that of whoever began this, while the session lives in which they did. `visitor_id` is who is
    signed in in the browser.

    Raises OfAnother, LinkedToAnother, AlreadyLinked, AccountGone, SessionEnded.
    """
    assert pending.user_id is not None, "one that is to link has somebody who links"
    assert pending.session_id is not None, "and a session"
    if visitor_id not in (None, pending.user_id):
        raise SignedInAsAnotherUser
    now = ports.clock.now()
    async with ports.storage.reading() as read:
        account = await read.accounts.by_id(pending.user_id) or refuse(AccountGone)
    person = Person(user_id=account.id, email=account.email, session_id=pending.session_id, address=caller.address, agent=caller.agent)
    async with ports.storage.transaction(by=person) as tx:
        await tx.identities.lock_subject(pending.provider, whom.issuer, whom.subject)
        await lock_own_account(tx, person, now)
        known = await tx.identities.match(pending.provider, whom.issuer, whom.subject, None)
        if known is not None and known.user_id != account.id:
            raise IdentityLinkedToAnother
        if not await tx.identities.add(_unlinked(pending, whom, known_elsewhere=known is not None).of(account.id, now)):
            raise AlreadyLinked
        tx.record(authentication_events.identity_linked(account.id, pending.provider))
