"""Mails: queued in the transaction that caused them, prepared once, sent until it works or visibly given up.

A row says only what kind of mail goes to which address. What it needs besides, a one-time token above all, is made by the mailer
(`prepare`), never inside the request: so a mail for an unknown address costs a request exactly what a mail for a known one costs
(security.md B-2). Only an invitation brings its token along, since the inviter is told it as well, and what is about an invoice its
address. The token is kept, sealed, until the mail has gone out, so that a second attempt says the same as the first.

The mailer claims, prepares, sends, records. Killed between any two of these, nothing is lost: the claim is a lease that ends. Killed
between sending and recording, the same letter goes out once more, with the same Message-ID.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from core.accounts.one_time_tokens import TokenPurpose
from core.kernel.principals import SYSTEM
from core.kernel.values import digest, new_id

if TYPE_CHECKING:
    from collections.abc import Collection

    from ports import Ports
    from ports.outside import EmailMessage
    from ports.storage import Transaction
from core.accounts.email_queue_rules import (
    ACCOUNT_EMAILS,
    ADDRESS_CHANGE_EMAILS,
    INVITATION_EMAILS,
    LEASE,
    MAX_ATTEMPTS,
    MAX_LOST_CLAIMS,
    NO_BUSY_SERVERS,
    SENT_BY_ORGANIZATIONS,
    LINK_EXPIRED,
    WELCOME_EMAILS,
    EmailResult,
    BusyServers,
    QueuedEmail,
    EmailKind,
    EmailOutcome,
    backoff,
)


async def claim_due(ports: Ports, limit: int, held_back: BusyServers = NO_BUSY_SERVERS) -> list[QueuedEmail]:
    """At most `limit` mails to send now, each leased to the caller: if nothing is heard of it, it falls due again."""
    now = ports.clock.now()
    async with ports.storage.transaction(by=SYSTEM) as tx:
        return await tx.email_queue.claim(now, now + LEASE, limit, held_back)


async def prepare(ports: Ports, mail: QueuedEmail) -> tuple[QueuedEmail, EmailMessage] | EmailResult:
    """The letter to send for a claimed mail; or how the mail ended instead, which is then recorded already."""
    now = ports.clock.now()
    async with ports.storage.transaction(by=SYSTEM) as tx:
        prepared = await _prepared(ports, tx, mail, now)
        if isinstance(prepared, EmailResult):
            await tx.email_queue.finish(mail, prepared.outcome, now, reason=prepared.reason)
            return prepared
        if mail.org_id is not None:
            prepared = replace(prepared, design=await tx.branding.design(mail.org_id))
            if mail.kind in SENT_BY_ORGANIZATIONS:
                prepared = replace(prepared, server=await tx.smtp.server(mail.org_id))
    return prepared, ports.email_templates.compose(prepared)


async def _prepared(ports: Ports, tx: Transaction, mail: QueuedEmail, now: datetime) -> QueuedEmail | EmailResult:
    """`mail` with what it needs, or how it ends instead of going out."""
    if mail.claims - 1 - mail.attempts >= MAX_LOST_CLAIMS:
        return EmailResult(EmailOutcome.GIVEN_UP, "it was begun too often without an outcome")
    match mail.kind:
        case EmailKind.VERIFY_EMAIL:
            purpose, ttl = TokenPurpose.VERIFY_EMAIL, ports.policy.verification_ttl
        case EmailKind.RESET_PASSWORD | EmailKind.WELCOME:
            purpose, ttl = TokenPurpose.RESET_PASSWORD, ports.policy.reset_ttl
        case EmailKind.INVITATION:
            return await _invitation(ports, tx, mail, now)
        case EmailKind.EMAIL_CHANGED:
            return mail if await _let_through(ports, tx, mail, ADDRESS_CHANGE_EMAILS, now) else EmailResult(EmailOutcome.DROPPED)
        case EmailKind.TRIAL_ENDS | EmailKind.PAYMENT_ACTION:
            return await _about_subscription(tx, mail)
        case _:  # a notice has nothing of ours to open
            return mail
    if mail.token is None:
        return await _with_token(ports, tx, mail, purpose, ttl, now) or EmailResult(EmailOutcome.DROPPED)
    if await tx.one_time_tokens.is_live(digest(mail.token), purpose, now):
        return mail
    # A link that no longer opens anything would only confuse: it has expired on the way, or a later mail has taken its place.
    if now >= mail.created_at + ttl:
        return EmailResult(EmailOutcome.GIVEN_UP, LINK_EXPIRED)
    return EmailResult(EmailOutcome.DROPPED)


async def _with_token(ports: Ports, tx: Transaction, mail: QueuedEmail, purpose: TokenPurpose, ttl: timedelta, now: datetime) -> QueuedEmail | None:
    """`mail` with a new token, kept for further attempts; None where it must not go out."""
    account = await tx.accounts.lock_by_email(mail.address)
    if account is None or not account.is_usable:
        return None
    if purpose is TokenPurpose.VERIFY_EMAIL and account.email_verified_at is not None:
        return None
    if await _has_enough(ports, tx, mail, WELCOME_EMAILS if mail.kind is EmailKind.WELCOME else ACCOUNT_EMAILS, now):
        return None
    if purpose is TokenPurpose.RESET_PASSWORD:
        # A new reset link cancels earlier ones, by the time they were asked for: another process may be ahead of this one.
        if await tx.one_time_tokens.newer_exists(account.id, purpose, mail.created_at):
            return None
        await tx.one_time_tokens.void(account.id, purpose)
    token = str(new_id())  # the contract wants the form of a UUID: 122 bits from the operating system
    await tx.one_time_tokens.add(
        digest(token), purpose, account.id, account.email, created_at=mail.created_at, expires_at=now + ttl, org_id=mail.org_id
    )
    return replace(mail, token=token) if await tx.email_queue.save_token(mail, token, now) else None


async def _has_enough(ports: Ports, tx: Transaction, mail: QueuedEmail, kinds: Collection[EmailKind], now: datetime) -> bool:
    """Whether the recipient gets no more mails of these kinds for the time being (security.md E-5)."""
    return await tx.email_queue.count_since(mail.address, kinds, now - timedelta(hours=1)) >= ports.policy.mails_per_recipient


async def _invitation(ports: Ports, tx: Transaction, mail: QueuedEmail, now: datetime) -> QueuedEmail | EmailResult:
    """`mail` with what it invites to, as long as it invites to anything."""
    if mail.token is None:
        return EmailResult(EmailOutcome.GIVEN_UP, "its link is lost: it was sealed under a key that is gone")
    offer = await tx.invitations.received_by_token(digest(mail.token), now)
    if offer is None or not offer.invitation.is_pending:
        expired = offer is not None and offer.invitation.expires_at <= now
        return EmailResult(EmailOutcome.GIVEN_UP, LINK_EXPIRED) if expired else EmailResult(EmailOutcome.DROPPED)
    return replace(mail, offer=offer) if await _let_through(ports, tx, mail, INVITATION_EMAILS, now) else EmailResult(EmailOutcome.DROPPED)


async def _about_subscription(tx: Transaction, mail: QueuedEmail) -> QueuedEmail | EmailResult:
    """`mail` with what it is about, while that is not over; as it is, if an earlier release has queued it, which did not say."""
    if mail.org_id is None or mail.subscription_id is None:
        return mail
    purchase = await tx.subscriptions.purchase(mail.org_id, mail.subscription_id)
    return EmailResult(EmailOutcome.DROPPED) if purchase is None else replace(mail, purchase=purchase)


async def _let_through(ports: Ports, tx: Transaction, mail: QueuedEmail, kinds: Collection[EmailKind], now: datetime) -> bool:
    """Whether the mail may go out; one that was let through stays so, however many attempts it takes."""
    if mail.token_at is not None:
        return True
    await tx.email_queue.lock_recipient(mail.address)
    return not await _has_enough(ports, tx, mail, kinds, now) and await tx.email_queue.save_token(mail, mail.token, now)


async def record_sent(ports: Ports, mail: QueuedEmail) -> None:
    """The mail server took it."""
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.email_queue.finish(mail, EmailOutcome.SENT, ports.clock.now())


async def record_failure(ports: Ports, mail: QueuedEmail, reason: str, spread: float) -> datetime | None:
    """The attempt failed: when the mail falls due again, or None if it was given up."""
    now = ports.clock.now()
    attempts = mail.attempts + 1
    async with ports.storage.transaction(by=SYSTEM) as tx:
        if attempts >= MAX_ATTEMPTS:
            await tx.email_queue.finish(mail, EmailOutcome.GIVEN_UP, now, reason=reason)
            return None
        due_at = now + backoff(attempts, spread)
        await tx.email_queue.postpone(mail, due_at, reason)
    return due_at
