"""The first sign-in of a new user: after a sign-up on our page, or on the page of an invitation.

A registration proves nothing, and neither does a verification link alone: an attacker can register
the address of a victim, who then gets the link. So a link signs in only the browser in which the
user chose the password. In any other browser, it verifies the address, and the user signs in with
the password (security A-7).

The email of an invitation proves the mailbox, so a new user chooses a password right on its page.
That works only for an account that has no user yet. Otherwise a forwarded invitation would open the
account of its recipient: it lives for days, unlike a reset link.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import partial
from hmac import compare_digest
from typing import TYPE_CHECKING
from uuid import UUID

from core.accounts import accounts, events, profiles
from core.accounts.model.accounts import Account, EmailNotFree, LinkInvalid, check_new_password
from core.accounts.model.devices import PresentedDevice
from core.accounts.model.email_queue import LinkContinuation, TokenPurpose
from core.accounts.model.profiles import ProfileChanges
from core.applications.model.services import Service
from core.applications.model.users import AccessPolicy
from core.authentication import login
from core.authentication.browser import check_form_token
from core.authentication.model.identities import PendingIdentity
from core.authentication.model.login import PASSWORD, InvitationAnswer, InviteeHasAccount, OpenInvitation, SignInMethod
from core.kernel.callers import OrganizationStatus, Person, Visitor
from core.kernel.causes import Caller
from core.kernel.errors import OrganizationNotActive, refuse
from core.kernel.values import KEEP, digest
from core.tenancy import invitations
from core.tenancy.model.invitations import InvitationExpired, InviteeCannotJoin
from core.tenancy.model.members import AlreadyMember
from core.tenancy.model.organizations import Organization
from core.tenancy.model.settings import Design

if TYPE_CHECKING:
    from core.authentication.model.login import PreAuthToken, SignedIn
    from ports import Ports
    from ports.storage import Reading, Transaction


@dataclass(frozen=True, slots=True)
class AcceptedInvitation:
    """An invitation that was just accepted. `launch_url` is the URL of the organization's application, if one can be opened."""

    opened: OpenInvitation  # as it was before
    organization: Organization
    design: Design | None
    launch_url: str | None


# After a sign-up


def is_of_browser(continuation: LinkContinuation, device_cookie: str | None) -> bool:
    """Return whether the user signed up in the browser with this device cookie."""
    signed_up = continuation.browser_hash
    return signed_up is not None and device_cookie is not None and compare_digest(signed_up, digest(device_cookie))


async def sign_in_after_sign_up(
    ports: Ports, caller: Caller, token: str, device_cookie: str, client: PresentedDevice
) -> SignedIn | PreAuthToken:
    """Verify the address of a sign-up in this browser, and start a browser session. The link works once. Raises: LinkInvalid."""
    method = SignInMethod(PASSWORD, None, in_browser=True)
    return await login.sign_in_to_account(ports, caller, method, partial(_redeem, ports, token, device_cookie), client)


async def _redeem(ports: Ports, token: str, device_cookie: str, tx: Transaction) -> tuple[Account, PendingIdentity | None]:
    now, token_hash = ports.clock.now(), digest(token)
    continuation = await tx.one_time_tokens.continuation(token_hash, TokenPurpose.VERIFY_EMAIL) or refuse(LinkInvalid)
    if not is_of_browser(continuation, device_cookie):
        raise LinkInvalid
    # Only the first link signs in. The user may have changed the password since.
    account = await tx.accounts.lock_by_token(token_hash, TokenPurpose.VERIFY_EMAIL)
    if account is None or account.email_verified_at is not None:
        raise LinkInvalid
    account = await accounts.redeem_verification(tx, token, now)
    if continuation.service_id is not None:
        await _enroll(tx, continuation.service_id, account.id, now)
    return account, None


async def _enroll(tx: Transaction, service_id: UUID, user_id: UUID, now: datetime) -> None:
    """Make the user an end user of the application that they signed up for, unless it no longer admits them.

    The sign-up page has named the application, so no further page asks for consent.
    """
    service = await tx.services.context_by_id(service_id)
    if service is not None and service.status is OrganizationStatus.ACTIVE:
        tx.end_users.enroll_deferred(service_id, user_id, now)


# Invitations


async def find_invitation(ports: Ports, token: str, person: Person | None) -> OpenInvitation:
    """Return the pending invitation with this token, and how its recipient accepts it in this browser. Nothing changes.

    `person` is the user who is signed in in this browser. For the recipient, `token` may also be the
    hash of the token.

    Raises: OrganizationNotActive.
    """
    received = await invitations.get_by_token(ports, token, person)
    invitation = received.invitation
    async with ports.storage.reading() as read:
        organization = await read.organizations.by_id(invitation.org_id)
    if organization is None or organization.status is not OrganizationStatus.ACTIVE:
        raise OrganizationNotActive
    if invitation.is_for(person):
        return OpenInvitation(received, InvitationAnswer.SIGNED_IN)
    # The person who has the other token must not learn whether there is an account.
    if not invitation.is_proved_by(digest(token)):
        return OpenInvitation(received, InvitationAnswer.UNPROVED)
    async with ports.storage.reading() as read:
        account = await read.accounts.by_email(invitation.email)
        has_user = account is not None and await _has_user(read, account)
    return OpenInvitation(received, InvitationAnswer.SIGN_IN if has_user else InvitationAnswer.CHOOSE_PASSWORD)


async def _has_user(read: Reading | Transaction, account: Account) -> bool:
    """Return whether the account has a user who proved its address, or used it. An organization or a squatter may have created it."""
    if not account.is_usable or account.first_verified_at is None:
        return False
    return account.password_hash is not None or await read.accounts.has_signed_in(account.id)


async def accept_by_form(
    ports: Ports, caller: Caller, token: str, visitor: Visitor | None, session_cookie: str | None, form_token: str | None
) -> AcceptedInvitation:
    """Accept an invitation with the form of its page.

    `form_token` is None if the page was shown without a session. `visitor` is the user of the session
    with this cookie. A recipient without a session signs in afterwards.

    Raises: FormTokenInvalid.
    """
    opened = await find_invitation(ports, token, visitor)
    if visitor is not None and form_token is not None and opened.answer is InvitationAnswer.SIGNED_IN:
        # Only this confirms the membership. The inviter knows a token of the invitation too, and could send the form from another site.
        check_form_token(session_cookie or "", form_token)
        caller = visitor
    # Load everything before the change, so that a failure afterwards cannot hide that it was made.
    design, url = await invitations.get_design(ports, token), await launch_url(ports, opened.received.invitation.org_id)
    return AcceptedInvitation(opened, await invitations.accept(ports, caller, token), design, url)


async def accept_with_password(
    ports: Ports, caller: Caller, token: str, password: str, name: str, client: PresentedDevice
) -> SignedIn | PreAuthToken:
    """Accept an invitation with the token of its email, set the password and the name of the account, and start a browser session.

    The account is created if there is none. All of this happens in one transaction. An empty name
    changes nothing.

    Raises: InviteeHasAccount, AlreadyMember, NameInvalid; the errors of `find_invitation`,
    `invitations.add_invited_member`, `check_new_password` and
    `login.sign_in_to_account`.
    """
    opened = await find_invitation(ports, token, None)  # saves the expensive hash; `_accept` decides
    if opened.answer is not InvitationAnswer.CHOOSE_PASSWORD:
        raise InviteeHasAccount
    check_new_password(password, opened.received.invitation.email, ports.policy.common_passwords)
    changes = ProfileChanges.parse(name=name.strip() or KEEP)
    password_hash = await ports.passwords.hash(password)
    method = SignInMethod(PASSWORD, None, in_browser=True)
    return await login.sign_in_to_account(ports, caller, method, partial(_accept, ports, caller, token, password_hash, changes), client)


async def _accept(
    ports: Ports, caller: Caller, token: str, password_hash: str, changes: ProfileChanges, tx: Transaction
) -> tuple[Account, PendingIdentity | None]:
    now = ports.clock.now()
    organization, invitation = await invitations.lock_by_token(tx, caller, token)
    if organization.status is not OrganizationStatus.ACTIVE:
        raise OrganizationNotActive
    invitations.require_pending(invitation)
    if invitation.expires_at <= now:  # the sweeper marks it
        raise InvitationExpired
    # Lock order: organization, membership, account.
    existing = await tx.accounts.by_email(invitation.email)
    if existing is not None and await tx.members.lock(organization.id, existing.id) is not None:
        raise AlreadyMember
    # Not `lock_by_email`: it does not see an account that another transaction is creating.
    try:
        account, _ = await accounts.find_or_add(tx, invitation.email, now)
    except EmailNotFree:
        raise InviteeCannotJoin from None
    if not invitation.is_proved_by(digest(token)) or await _has_user(tx, account):
        raise InviteeHasAccount
    account = await invitations.add_invited_member(tx, organization, invitation, now, by_mail=True)
    await tx.one_time_tokens.void(account.id, TokenPurpose.RESET_PASSWORD)
    await tx.accounts.set_password(account.id, password_hash, now)
    tx.record(events.password_changed(account.id, "set"))
    await profiles.apply_changes(tx, account, changes, now)
    return await tx.accounts.lock(account.id) or account, None


async def launch_url(ports: Ports, org_id: UUID) -> str | None:
    """Return the launch URL of the organization's only application with one that admits all members, or None."""
    async with ports.storage.reading() as read:
        services = [
            service for policy in (AccessPolicy.ANYONE, AccessPolicy.MEMBERS) for service in await read.services.with_policy(org_id, policy)
        ]
    urls = [service.access.launch_url for service in services if service.access.launch_url is not None]
    return urls[0] if len(urls) == 1 else None


async def application_to_open(ports: Ports, continuation: LinkContinuation) -> Service | None:
    """Return the application that a welcome email named, if its organization is active and it has a launch URL."""
    if continuation.service_id is None:
        return None
    async with ports.storage.reading() as read:
        context = await read.services.context_by_id(continuation.service_id)
        if context is None or context.status is not OrganizationStatus.ACTIVE:
            return None
        service = await read.services.by_id(context.org_id, context.id)
    return None if service is None or service.access.launch_url is None else service
