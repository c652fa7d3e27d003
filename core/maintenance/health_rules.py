"""The state of an installation, as platform owners see it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta


class ActorStatus(StrEnum):
    """Whether an actor works now."""

    RUNNING = "running"
    RESTARTING = "restarting"  # it failed, and waits for its restart


@dataclass(frozen=True, slots=True)
class ActorState:
    """An actor of one process. Times are UTC."""

    name: str
    status: ActorStatus
    since: datetime
    restarts: int
    last_failure_at: datetime | None
    last_failure: str | None  # `failure`, or `outage` if the database or another server was down


@dataclass(frozen=True, slots=True)
class QueueState:
    """Work that is due, up to 100,000 pieces, and the time that the oldest of them has waited."""

    name: str
    depth: int
    age: timedelta


@dataclass(frozen=True, slots=True)
class ConnectionCounts:
    """The database connections of one process."""

    total: int
    idle: int
    maximum: int


@dataclass(frozen=True, slots=True)
class KeyState:
    """A signing key without its secret part. The newest one signs. Times are UTC."""

    kid: str
    created_at: datetime
    retires_at: datetime | None


class CheckResult(StrEnum):
    """The result of a check."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """What a check of `gatehouse doctor` found, with what to do about a problem."""

    subject: str
    result: CheckResult
    text: str


class SettingSource(StrEnum):
    """Where the value of a setting comes from."""

    ENVIRONMENT = "environment"
    DEFAULT = "default"
    START = "start"  # chosen when the service started, such as a generated key


@dataclass(frozen=True, slots=True)
class SettingInForce:
    """A setting with its value as text. `value` is None for a secret, and if the setting is unset."""

    variable: str
    value: str | None
    source: SettingSource
    is_secret: bool
    is_set: bool


@dataclass(frozen=True, slots=True)
class InstallationHealth:
    """The state of one process, and of the queues and keys that all processes share."""

    version: str
    process_id: int
    actors: Sequence[ActorState]
    queues: Sequence[QueueState]
    connections: ConnectionCounts
    has_mail_server: bool
    signing_keys: Sequence[KeyState]
