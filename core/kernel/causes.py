"""Who or what causes a change: HTTP clients without credentials, and the service itself. All callers derive from `Caller`."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who or what causes a change. `transaction(by=...)` writes it into audit entries."""

    address: str | None = None
    agent: str | None = None
    request_id: str | None = field(default=None, compare=False)  # the HTTP request's id


@dataclass(frozen=True, slots=True, kw_only=True)
class Anonymous(Caller):
    """An HTTP client without credentials."""


@dataclass(frozen=True, slots=True, kw_only=True)
class System(Caller):
    """The service itself: an actor, or a command that the operator runs."""


SYSTEM = System()
