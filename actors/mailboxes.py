"""The mailboxes of all actors of one process, and which signals and channels wake which actor."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from actors.mailbox import Mailbox, TimedMailbox
from core.kernel.deferred import Deferred


@dataclass(frozen=True, slots=True)
class Mailboxes:
    """One mailbox per actor. Implements ports.signals.Signals by posting to them.

    Storage sends the signals of this process directly after each commit. Signals of other processes
    arrive through the listener, as notifications on `channels`.
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
        """Return the mailbox for each database channel that other processes notify.

        Expiring invitations and subscriptions have no channel: they fall due long after they are
        written, and each sweep reads the next time from the database. Figures have no channel,
        because every commit with a notification takes a lock on the whole database server. The
        other processes refresh their gauges every 30 seconds anyway.
        """
        return {
            "mails": self.mailer,
            "webhooks": self.webhook_dispatcher,
            "logout_notices": self.logout_notifier,
            "siem": self.siem_forwarder,
            "signing_keys": self.key_reader,
            "subscriptions_in_doubt": self.billing_reconciler,
        }

    def mails_due(self, queued: Deferred[bool]) -> None:
        if queued.value:
            self.mailer.post()

    def deliveries_due(self) -> None:
        self.webhook_dispatcher.post()

    def siem_entries_due(self) -> None:
        self.siem_forwarder.post()

    def signing_keys_rotated(self) -> None:
        self.key_reader.post()

    def invitation_due(self, at: datetime) -> None:
        self.invitation_sweeper.post(at)

    def subscription_due(self, at: datetime) -> None:
        self.subscription_sweeper.post(at)

    def subscription_in_doubt(self, at: datetime) -> None:
        self.billing_reconciler.post(at)

    def figures_changed(self) -> None:
        self.metrics_refresher.post()

    def user_signed_up(self) -> None:
        self.metrics_refresher.post()
