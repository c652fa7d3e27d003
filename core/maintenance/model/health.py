"""An installation's state, as platform owners see it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

LATE: Final = timedelta(minutes=30)  # after waiting so long, work that is due is a problem
MANY: Final = 20  # waiting pieces; a smaller number may fail for hours because of a wrong address
OLD_KEY: Final = timedelta(days=366)  # at this age, a signing key is a problem


class ActorStatus(StrEnum):
    """Whether an actor works now."""

    RUNNING = "running"
    RESTARTING = "restarting"  # it failed, and waits for its restart


@dataclass(frozen=True, slots=True)
class ActorState:
    """An actor in a process. Times are UTC."""

    name: str
    status: ActorStatus
    since: datetime
    restarts: int
    last_failure_at: datetime | None
    last_failure: str | None  # `failure`, or `outage` if the database or another server was down


@dataclass(frozen=True, slots=True)
class QueueState:
    """Work that is due, up to 100,000 pieces, and how long the oldest piece has waited."""

    name: str
    depth: int
    age: timedelta


@dataclass(frozen=True, slots=True)
class ConnectionCounts:
    """A process's database connections."""

    total: int
    idle: int
    maximum: int


@dataclass(frozen=True, slots=True)
class KeyState:
    """A signing key without its secret part. Times are UTC."""

    kid: str
    created_at: datetime
    retires_at: datetime | None
    signs: bool
    age: timedelta
    signs_at: datetime | None = None  # only for a key that waits


class CheckResult(StrEnum):
    """What a check says."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """What a `gatehouse doctor` check found, with what to do about a problem."""

    subject: str
    result: CheckResult
    text: str


class SettingSource(StrEnum):
    """Where a setting's value comes from."""

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
    meaning: str


@dataclass(frozen=True, slots=True)
class InstallationHealth:
    """How a process is doing, and the queues and keys that all processes share."""

    version: str
    process_id: int
    actors: Sequence[ActorState]
    queues: Sequence[QueueState]
    connections: ConnectionCounts
    has_mail_server: bool
    signing_keys: Sequence[KeyState]

    def find_problems(self) -> list[str]:
        """Return the problems that an operator must solve: for every problem, a sentence about it and a sentence about its solution."""
        problems = [
            f"The actor {actor.name} failed, and restarts. Look for its errors in the log of process {self.process_id}."
            for actor in self.actors
            if actor.status is not ActorStatus.RUNNING
        ]
        problems += [
            f"{queue.depth:,} {queue.name.replace('_', ' ')} wait, the oldest for {queue.age // timedelta(minutes=1)} minutes. "
            "Check that the actors run, and run the checks."
            for queue in self.queues
            if queue.depth > MANY and queue.age >= LATE
        ]
        if self.connections.total >= self.connections.maximum and not self.connections.idle:
            problems.append(f"All {self.connections.maximum} database connections are in use. If this lasts, raise SSO_DB_POOL_SIZE.")
        problems += [
            f"The signing key is {key.age.days} days old. Replace it with: gatehouse keys rotate"
            for key in self.signing_keys
            if key.signs and key.age >= OLD_KEY
        ]
        return problems
