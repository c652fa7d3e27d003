"""The repositories on one database connection, and the signals of an open transaction."""

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Generic, Self, TypeVar, overload

from adapters.postgres.engine.driver import Connection
from core.kernel.deferred import Deferred
from ports.crypto import Vault
from ports.signals import Signal, Signals

R_co = TypeVar("R_co", covariant=True)


class Scope:
    """A database connection with everything that its repositories need.

    Each area has a subclass that declares its repositories; `adapters.postgres.storage` joins them.
    """

    def __init__(self, connection: Connection, vault: Vault, signals: Signals) -> None:
        self.connection = connection
        self.vault = vault
        self.signals = signals


class repository(Generic[R_co]):  # noqa: N801 (reads as a declaration: `members = repository(Members)`)
    """The declaration of a repository in a scope. The repository is created at its first use, and then kept.

    A request uses two or three of more than forty repositories, so creating all of them for each
    request would cost more than the queries' own Python code.
    """

    def __init__(self, kind: Callable[[Scope], R_co]) -> None:
        self._kind = kind
        self._name = ""

    def __set_name__(self, owner: type[Scope], name: str) -> None:
        self._name = name

    @overload
    def __get__(self, scope: None, owner: type[Scope]) -> Self: ...
    @overload
    def __get__(self, scope: Scope, owner: type[Scope]) -> R_co: ...
    def __get__(self, scope: Scope | None, owner: type[Scope]) -> Self | R_co:
        if scope is None:
            return self
        # From now on the instance's own attribute hides this descriptor, because the descriptor has
        # no __set__.
        created = scope.__dict__[self._name] = self._kind(scope)
        return created


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
