"""Mails: queued in the transaction that caused them, prepared once, sent until it works or visibly given up.

A row says only what kind of mail goes to which address. What it needs besides, a one-time token above all, is made by the mailer
(`prepare`), never inside the request: so a mail for an unknown address costs a request exactly what a mail for a known one costs
(security.md B-2). Only an invitation brings its token along, since the inviter is told it as well, and what is about an invoice its
address. The token is kept, sealed, until the mail has gone out, so that a second attempt says the same as the first.

The mailer claims, prepares, sends, records. Killed between any two of these, nothing is lost: the claim is a lease that ends. Killed
between sending and recording, the same letter goes out once more, with the same Message-ID.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING
from uuid import UUID

from core.access import SYSTEM
from core.one_time_tokens import Purpose
from core.values import Email, digest, new_id

if TYPE_CHECKING:
    from core.branding import Design
    from core.invitations import Offer
    from core.smtp import MailServer
    from core.subscriptions import Purchase
    from ports import Ports
    from ports.outside import Letter
    from ports.storage import Transaction


class MailKind(StrEnum):
    """What a mail is for; each kind has a pair of templates of its name."""

    VERIFY_EMAIL = "verify_email"
    RESET_PASSWORD = "reset_password"  # noqa: S105  (a kind, not a secret)
    PASSWORD_CHANGED = "password_changed"  # noqa: S105
    EMAIL_CHANGED = "email_changed"
    UNUSUAL_SIGN_IN = "unusual_sign_in"
    MFA_ENABLED = "mfa_enabled"
    MFA_DISABLED = "mfa_disabled"
    MFA_REMOVED = "mfa_removed"  # by a platform owner
    BACKUP_CODES_REGENERATED = "backup_codes_regenerated"
    BACKUP_CODE_USED = "backup_code_used"
    INVITATION = "invitation"
    WELCOME = "welcome"
    TRIAL_ENDS = "trial_ends"
    PAYMENT_ACTION = "payment_action"


# Which mails are counted together against the limit per recipient (security.md E-5). Invitations, and the welcome to whom a directory has
# provisioned, are counted apart, so that no organization can use up what somebody may need to get back into the own account.
ACCOUNT_MAILS = frozenset({MailKind.VERIFY_EMAIL, MailKind.RESET_PASSWORD})
INVITATIONS = frozenset({MailKind.INVITATION})
WELCOMES = frozenset({MailKind.WELCOME})
# That an address is no account's any more can be brought about by whoever gives and takes addresses, such as a directory.
FAREWELLS = frozenset({MailKind.EMAIL_CHANGED})
# What an organization writes itself, and sends through a server of its own if it has one. Never a mail of an account (security.md E-1).
OF_ORGANIZATIONS = frozenset({MailKind.INVITATION})


@dataclass(frozen=True, slots=True)
class Mail:
    """A mail on its way. Times are UTC; `attempts` counts the attempts whose outcome is known, `claims` all that were begun."""

    id: UUID
    kind: MailKind
    address: Email
    created_at: datetime
    due_at: datetime
    claims: int = 0
    attempts: int = 0
    # For PAYMENT_ACTION the whole address of an invoice, if there is one: it opens to whoever has it, too.
    token: str | None = field(default=None, repr=False)
    token_at: datetime | None = None  # when the token was prepared, or it was let through, which counts against the limit of its recipient
    org_id: UUID | None = None  # the organization that it speaks for, or whose design alone it has: its kind tells (E-1)
    subscription_id: UUID | None = None  # of that organization, if it is about one
    purchase: Purchase | None = None  # what a prepared mail says of that
    offer: Offer | None = None  # what a prepared invitation invites to
    server: MailServer | None = None  # the organization's own, which a prepared mail goes through; None is the platform's
    design: Design | None = None  # how a prepared mail looks, if not like one of the platform's own


class Outcome(StrEnum):
    """How a mail ended."""

    SENT = "sent"
    DROPPED = "dropped"  # nobody to write to, nothing to say, or too many for this recipient (E-5)
    GIVEN_UP = "given_up"


@dataclass(frozen=True, slots=True)
class Ended:
    """A mail that is done with, and for the operator why, where that is no matter of course."""

    outcome: Outcome
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class HeldBack:
    """Mails that wait, because the servers that they go through are kept busy enough: those of these organizations, or of all."""

    organizations: frozenset[UUID] = frozenset()
    every_own_server: bool = False


NOTHING_HELD_BACK = HeldBack()

# Long enough for the whole exchange with a slow mail server, so that no second worker starts while the first is still at it.
LEASE = timedelta(seconds=120)
MAX_ATTEMPTS = 24
# Claims after which nothing was heard: a mail that takes the process down with it must not do so for ever.
MAX_LOST_CLAIMS = 10
TOO_LATE = "its link expired before it could be sent"


def new_mail(
    kind: MailKind,
    address: Email,
    now: datetime,
    *,
    token: str | None = None,
    org_id: UUID | None = None,
    subscription_id: UUID | None = None,
) -> Mail:
    """A mail that is due at once; with its token, if that exists already."""
    return Mail(
        id=new_id(), kind=kind, address=address, created_at=now, due_at=now, token=token, org_id=org_id, subscription_id=subscription_id
    )


def backoff(attempts: int, spread: float) -> timedelta:
    """How long to wait after the given number of failed attempts: 5 s doubling to an hour, times 0.75 to 1.25.

    `spread` is a random number from 0 to 1. All attempts together take some fourteen hours: a mail server may be away for a night, and a
    verification link has hours left when it arrives. A reset link does not live that long, and `prepare` gives it up when it dies.
    """
    return timedelta(seconds=min(5 * 2 ** (attempts - 1), 3600) * (0.75 + spread / 2))


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
    offer = await tx.invitations.offer(digest(mail.token), now)
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
