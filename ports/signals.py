"""Signals to the actors of this process that a committed transaction has left work for them.

A signal is a hint. The work itself is a row in the database, and every actor also looks for it by
itself, so a lost signal costs latency and never work.

No use case sends a signal. The repository that writes such a row reports it, and the transaction
passes all reports on after its commit. So no caller can forget a signal or send it too early.
"""

from datetime import datetime
from typing import Protocol

from core.kernel.deferred import Deferred


class Signals(Protocol):
    """The receivers of signals. No method waits or fails."""

    def mails_due(self, queued: Deferred[bool]) -> None:
        """Report that an email was queued. After the commit, `queued` has a value if the email is due now, and None if it is due later."""

    def deliveries_due(self) -> None:
        """Report that deliveries to webhooks were queued, or that a webhook became active."""

    def siem_entries_due(self) -> None:
        """Report that audit log entries were queued for a SIEM."""

    def signing_keys_rotated(self) -> None:
        """Report that another signing key is in use."""

    def invitation_due(self, at: datetime) -> None:
        """Report that an invitation expires at this time."""

    def subscription_due(self, at: datetime) -> None:
        """Report that the period of a subscription ends at this time."""

    def subscription_in_doubt(self, at: datetime) -> None:
        """Report that the payment provider is to be asked about a subscription or a checkout at this time.

        A subscription that has to be canceled at the provider counts too.
        """

    def figures_changed(self) -> None:
        """Report that the number of accounts, organizations or accounts with a second factor changed."""

    def user_signed_up(self) -> None:
        """Report that a user signed up, or that an API key created one: the internal event UserSignupSuccess."""


class NoSignals:
    """The signals of a process that runs no actors, such as a command."""

    def mails_due(self, queued: Deferred[bool]) -> None: ...
    def deliveries_due(self) -> None: ...
    def siem_entries_due(self) -> None: ...
    def signing_keys_rotated(self) -> None: ...
    def invitation_due(self, at: datetime) -> None: ...
    def subscription_due(self, at: datetime) -> None: ...
    def subscription_in_doubt(self, at: datetime) -> None: ...
    def figures_changed(self) -> None: ...
    def user_signed_up(self) -> None: ...
