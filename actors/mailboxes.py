"""The mailboxes for all actors in a process, and which signals and channels wake which actor."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from actors.mailbox import NOW, Mailbox, TimedMailbox
from ports.signals import Signal


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
