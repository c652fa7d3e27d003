"""The repositories on one database connection, and the signals of their statements."""

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
        self.signals = PendingSignals(signals)
        self.webhook_delay = webhook_delay  # between an event and its first delivery


class PendingSignals:
    """The signals of a block, kept until its statements are committed."""

    __slots__ = ("_signals", "pending")

    def __init__(self, signals: Signals) -> None:
        self._signals = signals
        self.pending: list[tuple[Signal, datetime | None, Awaitable[bool] | None]] = []

    def send(self, signal: Signal, at: datetime | None = None, *, queued: Awaitable[bool] | None = None) -> None:
        """Report work, which falls due at this time. With `queued`, report it only if that is true after the commit."""
        self.pending.append((signal, at, queued))

    async def flush(self) -> None:
        """Send the signals to the actors. Call this after the commit."""
        for signal, at, queued in self.pending:
            if queued is None or await queued:
                self._signals.send(signal, at)
