"""Mailboxes, which wake actors, and the signals that wake each actor. Mailboxes contain no work: the work is in the database."""

import random
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

import trio

from actors.turns import waiting
from ports.observe import Clock
from ports.signals import Signal

NOW: Final = datetime.min.replace(tzinfo=UTC)  # a past time by any clock
# Seconds to wait after a due time. The actor sleeps by Trio's clock, and then the work must also be
# due by the system clock.
CLOCK_GRAIN: Final = 0.05


class Mailbox:
    """A memory channel with size 1. Posting never blocks, and several posts cause a single wake-up."""

    def __init__(self) -> None:
        self._sender, self._receiver = trio.open_memory_channel[None](1)

    def post(self, at: datetime = NOW) -> None:
        """Wake the actor, now or when it next waits, whatever the time. Callable from any task in the same Trio run."""
        with suppress(trio.WouldBlock):
            self._sender.send_nowait(None)

    def notify(self, payload: str) -> None:
        """Wake the actor because another process notified its channel."""
        self.post()

    async def wait(self, at_most: float) -> bool:
        """Return True at the next post, or at once if a post came since the last wait. Return False after `at_most` seconds."""
        with waiting(), trio.move_on_after(max(at_most, 0)):
            await self._receiver.receive()
            return True
        return False


class TimedMailbox:
    """A mailbox for the times at which work falls due. Only the earliest time is kept.

    The earliest time is enough: after every round, the actor reads the next time from the database.
    """

    def __init__(self) -> None:
        self._changed = Mailbox()
        self._earliest: datetime | None = None

    def post(self, at: datetime = NOW) -> None:
        """Wake the actor at this time, by the clock that it passes to `wait`. Callable from any task in the same Trio run."""
        if self._earliest is None or at < self._earliest:
            self._earliest = at
            self._changed.post()

    def notify(self, payload: str) -> None:
        """Wake the actor at the time in this payload, or now if it is empty."""
        self.post(datetime.fromisoformat(payload) if payload else NOW)

    async def wait(self, clock: Clock, at_most: float) -> None:
        """Return at the earliest posted time, but after at most `at_most` seconds. Then forget all earlier posts."""
        deadline = trio.current_time() + at_most
        while True:
            seconds = deadline - trio.current_time()
            if self._earliest is not None:
                seconds = min(seconds, (self._earliest - clock.now()).total_seconds() + CLOCK_GRAIN)
            if seconds <= 0 or self._earliest is NOW:
                break
            await self._changed.wait(at_most=seconds)
        self._earliest = None
        await trio.lowlevel.checkpoint()


def jittered(seconds: float) -> float:
    """Return `seconds`, randomly changed by up to a quarter, so that processes that start together do not query together."""
    return seconds * random.uniform(0.75, 1.25)  # noqa: S311  (spreads load, guards nothing)


@dataclass(frozen=True, slots=True)
class Mailboxes:
    """A mailbox per actor. Implements ports.signals.Signals by posting to them.

    Storage sends this process's signals directly after every commit. Signals from other processes arrive through the
    listener, as notifications on `channels`.
    """

    mailer: Mailbox = field(default_factory=Mailbox)
    webhook_dispatcher: Mailbox = field(default_factory=Mailbox)
    logout_notifier: Mailbox = field(default_factory=Mailbox)
    siem_forwarder: Mailbox = field(default_factory=Mailbox)
    key_reader: Mailbox = field(default_factory=Mailbox)
    metrics_refresher: Mailbox = field(default_factory=Mailbox)
    invitation_sweeper: TimedMailbox = field(default_factory=TimedMailbox)
    subscription_sweeper: TimedMailbox = field(default_factory=TimedMailbox)
    billing_reconciler: TimedMailbox = field(default_factory=TimedMailbox)

    @property
    def channels(self) -> Mapping[str, Mailbox | TimedMailbox]:
        """Return the mailboxes for the database channels that other processes notify.

        Expiring invitations and subscriptions have no channel: they fall due long after they are written, and every
        sweep reads the next time from the database. Figures have no channel, because every commit with a notification
        takes a lock on the whole database server. Other processes refresh their gauges every 30 seconds anyway.
        """
        return {
            "mails": self.mailer,
            "webhooks": self.webhook_dispatcher,
            "logout_notices": self.logout_notifier,
            "siem": self.siem_forwarder,
            "signing_keys": self.key_reader,
            "subscriptions_in_doubt": self.billing_reconciler,
        }

    def send(self, signal: Signal, at: datetime | None = None) -> None:
        mailboxes: Mapping[Signal, Mailbox | TimedMailbox] = {
            Signal.EMAIL_DUE: self.mailer,
            Signal.DELIVERIES_DUE: self.webhook_dispatcher,
            Signal.SIEM_ENTRIES_DUE: self.siem_forwarder,
            Signal.SIGNING_KEYS_ROTATED: self.key_reader,
            Signal.INVITATION_DUE: self.invitation_sweeper,
            Signal.SUBSCRIPTION_DUE: self.subscription_sweeper,
            Signal.SUBSCRIPTION_IN_DOUBT: self.billing_reconciler,
            Signal.FIGURES_CHANGED: self.metrics_refresher,
            Signal.USER_SIGNED_UP: self.metrics_refresher,
        }
        mailboxes[signal].post(at or NOW)
