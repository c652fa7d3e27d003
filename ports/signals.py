"""Signals to this process's actors: a committed transaction has left work for them.

A signal is a hint. The work itself is a row in the database, and every actor also looks for it by
itself, so a lost signal costs latency and never work.

No use case sends a signal. The repository that writes such a row reports it, and the transaction
passes all reports on after its commit. So no caller can forget a signal or send it too early.
"""

from datetime import datetime
from enum import Enum, auto
from typing import Protocol


class Signal(Enum):
    """A kind of work. The work falls due at the signal's time, if it has one."""

    EMAIL_DUE = auto()
    DELIVERIES_DUE = auto()  # deliveries to webhooks were queued, or a webhook became active
    SIEM_ENTRIES_DUE = auto()  # audit log entries were queued for a SIEM
    SIGNING_KEYS_ROTATED = auto()  # another signing key is in use
    INVITATION_DUE = auto()  # an invitation expires at a time
    SUBSCRIPTION_DUE = auto()  # a subscription's period ends at a time
    # The payment provider is to be asked about a subscription or a checkout at a time. A subscription
    # that has to be canceled at the provider counts too.
    SUBSCRIPTION_IN_DOUBT = auto()
    FIGURES_CHANGED = auto()  # how many accounts, organizations or accounts with a second factor exist
    USER_SIGNED_UP = auto()  # or an API key created an account: the internal event UserSignupSuccess


class Signals(Protocol):
    """The receiver of signals."""

    def send(self, signal: Signal, at: datetime | None = None) -> None:
        """Report work, which falls due at this time. Return at once, and never fail."""


class NoSignals:
    """Signals in a process that runs no actors, such as a command."""

    def send(self, signal: Signal, at: datetime | None = None) -> None: ...
