"""The repositories on one database connection, and the signals of an open transaction."""

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial

from adapters.postgres.engine.driver import Connection
from core.kernel.deferred import Deferred
from ports.crypto import Vault
from ports.signals import Signal, Signals


class Scope:
    """A database connection with everything that its repositories need."""

    def __init__(self, connection: Connection, vault: Vault, signals: Signals, webhook_delay: timedelta = timedelta()) -> None:
        self.connection = connection
        self.vault = vault
        self.signals = signals
        self.webhook_delay = webhook_delay  # between an event and its first delivery


class PendingSignals:
    """The signals of an open transaction, kept until it is committed. Implements ports.signals.Signals."""

    __slots__ = ("_pending", "_signals")

    def __init__(self, signals: Signals) -> None:
        self._signals = signals
        self._pending: list[Callable[[], None]] = []

    def send(self, signal: Signal, at: datetime | None = None, *, queued: Deferred[bool] | None = None) -> None:
        self._pending.append(partial(self._signals.send, signal, at, queued=queued))

    def flush(self) -> None:
        """Send the signals to the actors. Call this after the commit."""
        for send in self._pending:
            send()
