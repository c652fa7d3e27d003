"""The repositories on a database connection, and an open transaction's signals."""

from collections.abc import Awaitable
from datetime import datetime, timedelta

from adapters.postgres.engine.driver import Connection
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
    """An open transaction's signals, kept until it is committed. Implements ports.signals.Signals."""

    __slots__ = ("_pending", "_signals")

    def __init__(self, signals: Signals) -> None:
        self._signals = signals
        self._pending: list[tuple[Signal, datetime | None, Awaitable[bool] | None]] = []

    def send(self, signal: Signal, at: datetime | None = None) -> None:
        self._pending.append((signal, at, None))

    def send_if(self, is_due: Awaitable[bool], signal: Signal) -> None:
        """Report work that is due at once, if this is true after the commit."""
        self._pending.append((signal, None, is_due))

    async def flush(self) -> None:
        """Send the signals to the actors. Call this after the commit."""
        for signal, at, is_due in self._pending:
            if is_due is None or await is_due:
                self._signals.send(signal, at)
