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

from core.accounts.one_time_tokens import Purpose
from core.kernel.principals import SYSTEM
from core.kernel.values import digest, new_id

if TYPE_CHECKING:
    from collections.abc import Collection

    from ports import Ports
    from ports.outside import Letter
    from ports.storage import Transaction
from core.accounts.email_queue_rules import (
    ACCOUNT_MAILS,
    FAREWELLS,
    INVITATIONS,
    LEASE,
    MAX_ATTEMPTS,
    MAX_LOST_CLAIMS,
    NOTHING_HELD_BACK,
    OF_ORGANIZATIONS,
    TOO_LATE,
    WELCOMES,
    Ended,
    HeldBack,
    Mail,
    MailKind,
    Outcome,
    backoff,
)


async def claim_due(ports: Ports, limit: int, held_back: HeldBack = NOTHING_HELD_BACK) -> list[Mail]:
    """At most `limit` mails to send now, each leased to the caller: if nothing is heard of it, it falls due again."""
    now = ports.clock.now()
    async with ports.storage.transaction(by=SYSTEM) as tx:
        return await tx.mails.claim(now, now + LEASE, limit, held_back)


async def prepare(ports: Ports, mail: Mail) -> tuple[Mail, Letter] | Ended:
    """The letter to send for a claimed mail; or how the mail ended instead, which is then recorded already."""
    now = ports.clock.now()
    async with ports.storage.transaction(by=SYSTEM) as tx:
        prepared = await _prepared(ports, tx, mail, now)
        if isinstance(prepared, Ended):
            await tx.mails.finish(mail, prepared.outcome, now, reason=prepared.reason)
            return prepared
        if mail.org_id is not None:
            prepared = replace(prepared, design=await tx.branding.design(mail.org_id))
            if mail.kind in OF_ORGANIZATIONS:
                prepared = replace(prepared, server=await tx.smtp.server(mail.org_id))
    return prepared, ports.letters.compose(prepared)


async def _prepared(ports: Ports, tx: Transaction, mail: Mail, now: datetime) -> Mail | Ended:
    """`mail` with what it needs, or how it ends instead of going out."""
    if mail.claims - 1 - mail.attempts >= MAX_LOST_CLAIMS:
        return Ended(Outcome.GIVEN_UP, "it was begun too often without an outcome")
    match mail.kind:
        case MailKind.VERIFY_EMAIL:
            purpose, ttl = Purpose.VERIFY_EMAIL, ports.policy.verification_ttl
        case MailKind.RESET_PASSWORD | MailKind.WELCOME:
            purpose, ttl = Purpose.RESET_PASSWORD, ports.policy.reset_ttl
        case MailKind.INVITATION:
            return await _invitation(ports, tx, mail, now)
        case MailKind.EMAIL_CHANGED:
            return mail if await _let_through(ports, tx, mail, FAREWELLS, now) else Ended(Outcome.DROPPED)
        case MailKind.TRIAL_ENDS | MailKind.PAYMENT_ACTION:
            return await _about_subscription(tx, mail)
        case _:  # a notice has nothing of ours to open
            return mail
    if mail.token is None:
        return await _with_token(ports, tx, mail, purpose, ttl, now) or Ended(Outcome.DROPPED)
    if await tx.one_time_tokens.is_live(digest(mail.token), purpose, now):
        return mail
    # A link that no longer opens anything would only confuse: it has expired on the way, or a later mail has taken its place.
    if now >= mail.created_at + ttl:
        return Ended(Outcome.GIVEN_UP, TOO_LATE)
    return Ended(Outcome.DROPPED)


async def _with_token(ports: Ports, tx: Transaction, mail: Mail, purpose: Purpose, ttl: timedelta, now: datetime) -> Mail | None:
    """`mail` with a new token, kept for further attempts; None where it must not go out."""
    account = await tx.accounts.lock_by_email(mail.address)
    if account is None or not account.is_usable:
        return None
    if purpose is Purpose.VERIFY_EMAIL and account.email_verified_at is not None:
        return None
    if await _has_enough(ports, tx, mail, WELCOMES if mail.kind is MailKind.WELCOME else ACCOUNT_MAILS, now):
        return None
    if purpose is Purpose.RESET_PASSWORD:
        # A new reset link cancels earlier ones, by the time they were asked for: another process may be ahead of this one.
        if await tx.one_time_tokens.newer_exists(account.id, purpose, mail.created_at):
            return None
        await tx.one_time_tokens.void(account.id, purpose)
    token = str(new_id())  # the contract wants the form of a UUID: 122 bits from the operating system
    await tx.one_time_tokens.add(
        digest(token), purpose, account.id, account.email, created_at=mail.created_at, expires_at=now + ttl, org_id=mail.org_id
    )
    return replace(mail, token=token) if await tx.mails.keep_token(mail, token, now) else None


async def _has_enough(ports: Ports, tx: Transaction, mail: Mail, kinds: Collection[MailKind], now: datetime) -> bool:
    """Whether the recipient gets no more mails of these kinds for the time being (security.md E-5)."""
    return await tx.mails.token_mails_since(mail.address, kinds, now - timedelta(hours=1)) >= ports.policy.mails_per_recipient


async def _invitation(ports: Ports, tx: Transaction, mail: Mail, now: datetime) -> Mail | Ended:
    """`mail` with what it invites to, as long as it invites to anything."""
    if mail.token is None:
        return Ended(Outcome.GIVEN_UP, "its link is lost: it was sealed under a key that is gone")
    offer = await tx.invitations.received_by_token(digest(mail.token), now)
    if offer is None or not offer.invitation.is_pending:
        expired = offer is not None and offer.invitation.expires_at <= now
        return Ended(Outcome.GIVEN_UP, TOO_LATE) if expired else Ended(Outcome.DROPPED)
    return replace(mail, offer=offer) if await _let_through(ports, tx, mail, INVITATIONS, now) else Ended(Outcome.DROPPED)


async def _about_subscription(tx: Transaction, mail: Mail) -> Mail | Ended:
    """`mail` with what it is about, while that is not over; as it is, if an earlier release has queued it, which did not say."""
    if mail.org_id is None or mail.subscription_id is None:
        return mail
    purchase = await tx.subscriptions.purchase(mail.org_id, mail.subscription_id)
    return Ended(Outcome.DROPPED) if purchase is None else replace(mail, purchase=purchase)


async def _let_through(ports: Ports, tx: Transaction, mail: Mail, kinds: Collection[MailKind], now: datetime) -> bool:
    """Whether the mail may go out; one that was let through stays so, however many attempts it takes."""
    if mail.token_at is not None:
        return True
    await tx.mails.lock_recipient(mail.address)
    return not await _has_enough(ports, tx, mail, kinds, now) and await tx.mails.keep_token(mail, mail.token, now)


async def sent(ports: Ports, mail: Mail) -> None:
    """The mail server took it."""
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.mails.finish(mail, Outcome.SENT, ports.clock.now())


async def failed(ports: Ports, mail: Mail, reason: str, spread: float) -> datetime | None:
    """The attempt failed: when the mail falls due again, or None if it was given up."""
    now = ports.clock.now()
    attempts = mail.attempts + 1
    async with ports.storage.transaction(by=SYSTEM) as tx:
        if attempts >= MAX_ATTEMPTS:
            await tx.mails.finish(mail, Outcome.GIVEN_UP, now, reason=reason)
            return None
        due_at = now + backoff(attempts, spread)
        await tx.mails.postpone(mail, due_at, reason)
    return due_at
