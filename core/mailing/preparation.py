"""The last step before an email is sent: create its token, look up its data, and decide whether to send it. Tests go out at once.

The mailer does this outside any request. A request for an unknown address therefore takes exactly as long as a request
for a known address (security B-2). Two kinds of email have their token in the queue from the start. An invitation
stores its token's hash, and a notice about an invoice has the invoice's URL. The token stays in the queue, sealed,
until the email is sent, so that a second attempt sends the same text.
"""

from collections.abc import Awaitable, Collection
from dataclasses import fields, replace
from datetime import datetime, timedelta
from uuid import UUID

from core.accounts.model import email_queue
from core.authentication import account_recovery
from core.authentication.methods import email as email_method
from core.authentication.model import login
from core.authentication.model.recovery import RECOVERY_TTL, name_factors
from core.authentication.model.sessions import CODE_TTL
from core.kernel import callers
from core.kernel.causes import SYSTEM
from core.kernel.errors import refuse
from core.kernel.page_paths import ORGANIZATIONS_PATH
from core.kernel.values import digest, new_id
from core.mailing.model.emails import PreparedEmail
from core.provisioning.model.users import WelcomeContext
from core.setup.model.links import CODE_TTL as SETUP_CODE_TTL
from core.setup.model.links import SetupLinkState
from core.tenancy.model import settings
from ports import Ports
from ports.outside import EmailMessage
from ports.storage import Transaction

DROPPED = email_queue.EmailResult(email_queue.EmailOutcome.DROPPED)
EXPIRED = email_queue.EmailResult(email_queue.EmailOutcome.GIVEN_UP, email_queue.LINK_EXPIRED)


async def prepare(ports: Ports, email: email_queue.QueuedEmail) -> tuple[PreparedEmail, EmailMessage] | email_queue.EmailResult:
    """Return a claimed email and its message, or its result if it must not be sent. The result is already recorded.

    An email that was withdrawn, or claimed again after its lease expired, is not sent.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=SYSTEM) as tx:
        design = welcome = None  # read together with the first statement of `_prepare`
        if email.org_id is not None and email.kind not in email_queue.ORGANIZATION_EMAILS:
            design = tx.branding.design(email.org_id)
        if email.org_id is not None and email.kind is email_queue.EmailKind.WELCOME:
            welcome = tx.scim_users.welcome_context(email.org_id, email.address, now)
        values = {field.name: getattr(email, field.name) for field in fields(email_queue.QueuedEmail)}
        prepared = await _prepare(ports, tx, PreparedEmail(**values), welcome, now)
        if isinstance(prepared, email_queue.EmailResult):
            await tx.email_queue.finish(email, prepared.outcome, now, reason=prepared.reason)
            return prepared
        invitation = prepared.invitation
        # The organization's own server must not see a token that proves the mailbox.
        if email.org_id is not None and invitation is not None and invitation.invitation.inviter_token_hash is None:
            prepared = replace(prepared, server=await tx.smtp.server(email.org_id))
        is_claimed = tx.email_queue.is_claimed(email)  # read together with the commit
    if not await is_claimed:
        return DROPPED
    prepared = replace(prepared, design=await design if design else None, welcome=await welcome if welcome else None)
    return prepared, ports.email_templates.compose(prepared)


async def _prepare(
    ports: Ports, tx: Transaction, email: PreparedEmail, welcome: Awaitable[WelcomeContext | None] | None, now: datetime
) -> PreparedEmail | email_queue.EmailResult:
    """Return the email with its token and data, or its result if it must not be sent."""
    if email.claims - 1 - email.attempts >= email_queue.MAX_LOST_CLAIMS:
        return email_queue.EmailResult(email_queue.EmailOutcome.GIVEN_UP, "it was claimed too often without an outcome")
    if email.notice_id is not None:
        return await _prepare_security_notice(tx, email, email.notice_id, now)
    if email.kind in email_queue.ORGANIZATION_EMAILS:
        return await _prepare_organization_notice(ports, tx, email, now)
    return await _prepare_by_kind(ports, tx, email, welcome, now)


async def _prepare_by_kind(
    ports: Ports, tx: Transaction, email: PreparedEmail, welcome: Awaitable[WelcomeContext | None] | None, now: datetime
) -> PreparedEmail | email_queue.EmailResult:
    match email.kind:
        case (
            email_queue.EmailKind.VERIFY_EMAIL
            | email_queue.EmailKind.RESET_PASSWORD
            | email_queue.EmailKind.MEMBER_RESET
            | email_queue.EmailKind.WELCOME
        ):
            return await _prepare_link(ports, tx, email, welcome, now)
        case email_queue.EmailKind.RECOVERY_LINK:
            return await _prepare_recovery(ports, tx, email, now)
        case email_queue.EmailKind.EMAIL_SIGN_IN:
            return await _prepare_sign_in(ports, tx, email, now)
        case email_queue.EmailKind.INVITATION:
            return await _prepare_invitation(ports, tx, email, now)
        case email_queue.EmailKind.CONFIRM_EMAIL_CHANGE:
            return await _prepare_email_change(ports, tx, email, now)
        case email_queue.EmailKind.REAUTHENTICATION:
            has_expired = now >= email.created_at + CODE_TTL
            return EXPIRED if has_expired else await _drop_if_limited(ports, tx, email, email_queue.REAUTHENTICATION_EMAILS, now)
        case email_queue.EmailKind.SETUP_LINK | email_queue.EmailKind.SETUP_CODE:
            return await _prepare_setup(ports, tx, email, now)
        case email_queue.EmailKind.EMAIL_CHANGED:
            return await _drop_if_limited(ports, tx, email, email_queue.ADDRESS_CHANGE_EMAILS, now)
        case email_queue.EmailKind.TRIAL_ENDS | email_queue.EmailKind.PAYMENT_ACTION:
            return await _prepare_subscription_notice(tx, email)
    return email  # the other notices have no link with a token


async def _prepare_link(
    ports: Ports, tx: Transaction, email: PreparedEmail, welcome: Awaitable[WelcomeContext | None] | None, now: datetime
) -> PreparedEmail | email_queue.EmailResult:
    """Return the email with a token for its link. A token that no longer works is not sent again."""
    purpose, ttl = email_queue.TokenPurpose.RESET_PASSWORD, ports.policy.reset_ttl
    if email.kind is email_queue.EmailKind.VERIFY_EMAIL:
        purpose, ttl = email_queue.TokenPurpose.VERIFY_EMAIL, ports.policy.verification_ttl
    elif email.kind is email_queue.EmailKind.WELCOME:
        ttl = ports.policy.welcome_ttl
    elif email.kind is email_queue.EmailKind.RECOVERY_LINK:
        purpose, ttl = email_queue.TokenPurpose.RECOVER_ACCOUNT, RECOVERY_TTL
    if email.token is None:
        return await _add_token(ports, tx, email, purpose, ttl, welcome, now) or DROPPED
    if await tx.one_time_tokens.live_email(digest(email.token), purpose, now) is not None:
        return email
    # The token expired during the retries, or a later email replaced it.
    return EXPIRED if now >= email.created_at + ttl else DROPPED


async def _add_token(
    ports: Ports,
    tx: Transaction,
    email: PreparedEmail,
    purpose: email_queue.TokenPurpose,
    ttl: timedelta,
    welcome: Awaitable[WelcomeContext | None] | None,
    now: datetime,
) -> PreparedEmail | None:
    """Create a token, store it for further attempts, and return the email with it, or None if it must not be sent."""
    locked = tx.accounts.lock_by_email(email.address)
    is_replaced = None
    if purpose is not email_queue.TokenPurpose.VERIFY_EMAIL:
        is_replaced = tx.one_time_tokens.newer_exists(email.address, purpose, email.created_at)
    own_limits = {
        email_queue.EmailKind.WELCOME: email_queue.WELCOME_EMAILS,
        email_queue.EmailKind.MEMBER_RESET: email_queue.MEMBER_RESET_EMAILS,
        email_queue.EmailKind.RECOVERY_LINK: frozenset(),  # limited when the recovery starts
    }
    is_limited = await _limit_is_reached(ports, tx, email, own_limits.get(email.kind, email_queue.ACCOUNT_EMAILS), now)
    account = await locked
    if account is None or is_limited:
        return None
    # The mailbox's owner can free an account by a reset (`mailbox.prove_mailbox`).
    if not account.is_usable and not (email.kind is email_queue.EmailKind.RESET_PASSWORD and await tx.accounts.can_be_freed(account.id)):
        return None
    if purpose is email_queue.TokenPurpose.VERIFY_EMAIL and account.email_verified_at is not None:
        return None
    if is_replaced is not None:
        # A new link cancels earlier links (security A-5, M-8). The requests decide the order,
        # because another process may already have sent a later link.
        if await is_replaced:
            return None
        await tx.one_time_tokens.void(account.id, purpose)
    token = str(new_id())  # the API documents a UUID: 122 random bits from the operating system
    await tx.one_time_tokens.add(
        email_queue.OneTimeToken(
            digest(token),
            purpose,
            account.id,
            account.email,
            created_at=email.created_at,
            expires_at=now + ttl,
            org_id=email.org_id,
            continuation=await _continuation(tx, email, purpose, account.id, welcome),
        )
    )
    await tx.email_queue.save_token(email, token, now)
    return replace(email, token=token)


async def _prepare_recovery(ports: Ports, tx: Transaction, email: PreparedEmail, now: datetime) -> PreparedEmail | email_queue.EmailResult:
    """Return the email with its link, the issuer and the accepted factors, or its result if the recovery has ended or was replaced."""
    recovery = await tx.recoveries.of_address(email.address, now)
    if recovery is None or recovery.created_at != email.created_at:
        return DROPPED
    issuer = await tx.accounts.by_id(recovery.issuer_id)
    name = "An admin" if issuer is None else issuer.profile.name or issuer.email
    organization = None if recovery.org_id is None else await tx.organizations.by_id(recovery.org_id)
    of_organization = "" if organization is None else f" of {organization.name}"
    factors = name_factors(await account_recovery.load_methods(tx, recovery, now))
    named = replace(email, link_until=recovery.expires_at, detail=f"{name}{of_organization}", factors=factors)
    return await _prepare_link(ports, tx, named, None, now)


async def _prepare_sign_in(ports: Ports, tx: Transaction, email: PreparedEmail, now: datetime) -> PreparedEmail | email_queue.EmailResult:
    """Return the email with its link and code, or its result if it must not be sent.

    Only the last step depends on the account. Codes for an address without an account are therefore limited, replaced
    and refused in the same way (security B-1, B-2).
    """
    account = await tx.accounts.lock_by_email(email.address)
    await tx.email_queue.lock_recipient(email.address)
    if email.token is None and await _limit_is_reached(ports, tx, email, email_queue.SIGN_IN_EMAILS, now):
        return DROPPED
    requested = await tx.flows.find_email(email.id, now)
    if requested is None:  # the token has expired or was used, or a newer request replaced it
        return EXPIRED if now >= email.created_at + ports.policy.email_sign_in_ttl else DROPPED
    challenge, service_name, code = requested
    token = email.token
    if token is None:
        await tx.flows.remove_older_emails(email.address, email.created_at)
        token, code = str(new_id()), login.new_code()
        if account is None or not account.is_usable:
            await tx.flows.issue_email(challenge, None, None, code)  # checking this code takes as long as checking any other code
            await tx.email_queue.save_token(email, None, now)  # counts against the limit
            return DROPPED
        await tx.flows.issue_email(challenge, account.id, digest(token), code)
        await tx.email_queue.save_token(email, token, now)
    assert code is not None, "an email with a token has a code"
    return replace(email, token=token, sign_in=login.IssuedEmailSignIn(code, service_name, email_method.describe_origin(ports, challenge)))


async def _prepare_setup(ports: Ports, tx: Transaction, email: PreparedEmail, now: datetime) -> PreparedEmail | email_queue.EmailResult:
    """Return the email with a set-up link or its code, or its result if either has ended.

    The limit for links and codes is checked before.
    """
    if email.kind is email_queue.EmailKind.SETUP_CODE:
        if now >= email.created_at + SETUP_CODE_TTL:
            return EXPIRED
    else:
        link = await tx.setup_links.by_token(digest(email.token or ""))
        if link is None or link.state(now) is not SetupLinkState.WAITING:
            return DROPPED
        email = replace(email, link_until=link.expires_at)
    return await _prepare_organization_notice(ports, tx, email, now)


async def _continuation(
    tx: Transaction,
    email: PreparedEmail,
    purpose: email_queue.TokenPurpose,
    user_id: UUID,
    welcome: Awaitable[WelcomeContext | None] | None,
) -> email_queue.LinkContinuation:
    """Return where the browser continues after the link.

    A verification link that was sent again continues the sign-up, in the browser that signed up. The browser that
    requested it proves nothing: it did not choose the password (security A-7). A welcome link continues at the
    application that the email names, or else at the user's organizations.
    """
    if welcome is not None:
        context = await welcome
        return email_queue.LinkContinuation(ORGANIZATIONS_PATH, service_id=None if context is None else context.application_id)
    requested = email.continuation
    if purpose is not email_queue.TokenPurpose.VERIFY_EMAIL or requested.browser_hash is not None:
        return requested
    sign_up = await tx.one_time_tokens.sign_up(user_id, email.address)
    return requested if sign_up is None else replace(sign_up, next_path=requested.next_path or sign_up.next_path)


async def _prepare_invitation(
    ports: Ports, tx: Transaction, email: PreparedEmail, now: datetime
) -> PreparedEmail | email_queue.EmailResult:
    """Return the email with its invitation, or its result if the invitation is no longer pending."""
    if email.token is None:
        return email_queue.EmailResult(
            email_queue.EmailOutcome.GIVEN_UP, "its link is lost: it was sealed under a key that no longer exists"
        )
    received = await tx.invitations.received_by_token(digest(email.token), now)
    if received is None or not received.invitation.is_pending:
        is_expired = received is not None and received.invitation.expires_at <= now
        return EXPIRED if is_expired else DROPPED
    return await _drop_if_limited(ports, tx, replace(email, invitation=received), email_queue.INVITATION_EMAILS, now)


async def _prepare_security_notice(
    tx: Transaction, email: PreparedEmail, notice_id: UUID, now: datetime
) -> PreparedEmail | email_queue.EmailResult:
    """Return an email about a way into an account with its undo token, or its result if it was undone or has expired.

    The email has no limit per recipient: a thief could use the limit up. Every change needs a fresh sign-in.
    """
    notice = await tx.security_notices.by_id(notice_id)
    account = None if notice is None else await tx.accounts.lock(notice.user_id)
    notice = None if account is None else await tx.security_notices.by_id(notice_id)  # again: it may have been undone before the lock
    if notice is None or notice.undone_at is not None:
        return DROPPED
    if not notice.can_be_undone(now):
        return EXPIRED
    if email.token is not None:
        return replace(email, undo_until=notice.undo_until, detail=notice.detail)
    token = str(new_id())
    await tx.security_notices.save_token(notice.id, digest(token))
    await tx.email_queue.save_token(email, token, now)
    return replace(email, token=token, undo_until=notice.undo_until, detail=notice.detail)


async def _prepare_email_change(
    ports: Ports, tx: Transaction, email: PreparedEmail, now: datetime
) -> PreparedEmail | email_queue.EmailResult:
    """Return the email that proves a new address with its token, or its result if the change has ended."""
    change = None if email.email_change_id is None else await tx.email_changes.by_id(email.email_change_id)
    account = None if change is None else await tx.accounts.lock(change.user_id)
    if change is None or account is None:
        return DROPPED
    change = await tx.email_changes.by_id(change.id)  # again: it may have ended before the account was locked
    if change is None:
        return DROPPED
    until = change.expires_at
    if now >= until:
        return EXPIRED
    if not (change.is_pending(now) and account.is_usable):
        return DROPPED
    if email.token is not None:
        return replace(email, link_until=until)
    if await _limit_is_reached(ports, tx, email, email_queue.ADDRESS_PROOF_EMAILS, now):
        return DROPPED
    token = str(new_id())
    await tx.one_time_tokens.add(
        email_queue.OneTimeToken(
            digest(token),
            email_queue.TokenPurpose.VERIFY_EMAIL,
            account.id,
            change.new_email,
            created_at=email.created_at,
            expires_at=until,
        )
    )
    await tx.email_queue.save_token(email, token, now)
    return replace(email, token=token, link_until=until)


async def _prepare_subscription_notice(tx: Transaction, email: PreparedEmail) -> PreparedEmail | email_queue.EmailResult:
    """Return the email with its subscription, or DROPPED if the subscription has ended."""
    assert email.org_id is not None
    assert email.subscription_id is not None
    purchase = await tx.subscriptions.purchase(email.org_id, email.subscription_id)
    return DROPPED if purchase is None else replace(email, purchase=purchase)


async def _prepare_organization_notice(
    ports: Ports, tx: Transaction, email: PreparedEmail, now: datetime
) -> PreparedEmail | email_queue.EmailResult:
    """Return the email with its organization.

    Return DROPPED if the organization is deleted. An email about an organization that waits is also
    dropped if it waits no longer, or the recipient has reached their limit.
    """
    organization = None if email.org_id is None else await tx.organizations.by_id(email.org_id)
    if organization is None:
        return DROPPED
    owner = await tx.organizations.owner_address(organization.id)
    if email.kind is email_queue.EmailKind.ORGANIZATION_WAITING:
        is_waiting = organization.status is callers.OrganizationStatus.PENDING
        if not is_waiting or not await _is_within_limit(ports, tx, email, email_queue.WAITING_ORGANIZATION_EMAILS, now):
            return DROPPED
        email = replace(email, resembles=(await tx.organizations.resembled([organization.id])).get(organization.id, ()))
    if email.kind in email_queue.IMPOSED_RULE_EMAILS:
        return await _drop_if_limited(ports, tx, replace(email, organization=organization, owner=owner), {email.kind}, now)
    return replace(email, organization=organization, owner=owner)


async def _drop_if_limited(
    ports: Ports, tx: Transaction, email: PreparedEmail, kinds: Collection[email_queue.EmailKind], now: datetime
) -> PreparedEmail | email_queue.EmailResult:
    """Return the email if the recipient's limit allows it, or DROPPED."""
    return email if await _is_within_limit(ports, tx, email, kinds, now) else DROPPED


async def _is_within_limit(
    ports: Ports, tx: Transaction, email: PreparedEmail, kinds: Collection[email_queue.EmailKind], now: datetime
) -> bool:
    """Return whether the recipient's limit allows the email. Count an allowed email, unless an earlier attempt counted it."""
    if email.token_at is not None:
        return True
    await tx.email_queue.lock_recipient(email.address)
    if await _limit_is_reached(ports, tx, email, kinds, now):
        return False
    await tx.email_queue.save_token(email, email.token, now)
    return True


async def _limit_is_reached(
    ports: Ports, tx: Transaction, email: email_queue.QueuedEmail, kinds: Collection[email_queue.EmailKind], now: datetime
) -> bool:
    """Return whether the recipient has received enough such emails in the last hour (security E-5).

    Emails about imposed rules have a limit per organization, so that an organization cannot use up another organization's limit.
    """
    org_id = email.org_id if email.kind in email_queue.IMPOSED_RULE_EMAILS else None
    return (
        await tx.email_queue.count_since(email.address, kinds, now - email_queue.LIMIT_WINDOW, org_id) >= ports.policy.mails_per_recipient
    )


EXAMPLE_TOKEN = "example"  # in a link that does not work  # noqa: S105


async def send_test(ports: Ports, caller: callers.Member) -> settings.MailServerTest:
    """Send an email to the caller's own address through the organization's mail server, with the organization's design."""
    async with ports.storage.reading() as read:
        server = await read.smtp.server(caller.acts_in.id) or refuse(settings.MailServerNotSet)
        design = await read.branding.design(caller.acts_in.id)
    return await ports.mail.check_server(server, _compose(ports, caller, email_queue.EmailKind.MAIL_SERVER_TEST, design))


def compose_example(ports: Ports, caller: callers.Member, design: settings.Design) -> EmailMessage:
    """Return an email to the caller in this design. The email is not sent, and its link does not work."""
    return _compose(ports, caller, email_queue.EmailKind.RESET_PASSWORD, design)


def _compose(ports: Ports, caller: callers.Member, kind: email_queue.EmailKind, design: settings.Design | None) -> EmailMessage:
    now = ports.clock.now()
    mail = PreparedEmail(id=new_id(), kind=kind, address=caller.email, created_at=now, due_at=now, token=EXAMPLE_TOKEN, design=design)
    return ports.email_templates.compose(mail)
