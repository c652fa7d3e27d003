"""Supervising actors and their states: failing actors are restarted, and the process ends if an actor keeps failing."""

from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, Final, NoReturn

import structlog
import trio

from actors.mailbox import jittered
from actors.turns import Turns
from core.kernel.errors import Outage
from core.maintenance.model import health
from ports.observe import Clock


class ActorStates:
    """The state of every actor since its first start. The supervisor writes it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._states: dict[str, health.ActorState] = {}

    def record_start(self, name: str) -> None:
        """Record that the actor starts, for the first time or again."""
        now, state = self._clock.now(), self._states.get(name)
        if state is None:
            state = health.ActorState(name, health.ActorStatus.RUNNING, now, restarts=0, last_failure_at=None, last_failure=None)
        self._states[name] = replace(state, status=health.ActorStatus.RUNNING, since=now)

    def record_failure(self, name: str, reason: str) -> None:
        """Record that the actor failed and will be restarted. `reason` is `failure` or `outage`."""
        now, state = self._clock.now(), self._states[name]
        self._states[name] = replace(
            state, status=health.ActorStatus.RESTARTING, since=now, restarts=state.restarts + 1, last_failure_at=now, last_failure=reason
        )

    def list_all(self) -> list[health.ActorState]:
        """Return the states, sorted by name."""
        return [self._states[name] for name in sorted(self._states)]


log = structlog.get_logger("supervisor")


class ActorEnded(Exception):
    """The actor returned. Actors must run forever."""


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """When a failing actor is restarted. Times are in seconds.

    The delay before a restart doubles every time, from `first_delay` to `longest_delay`. After a run that lasts at
    least `healthy_after`, counting starts again. After `restarts` restarts, the next failure ends the process. With
    these defaults, an actor that always fails immediately ends the process after about a minute.
    """

    first_delay: float = 0.5
    longest_delay: float = 30.0
    longest_outage_delay: float = 5.0  # shorter: the outage may end at any moment, and a restart is cheap
    healthy_after: float = 60.0
    restarts: int = 7


DEFAULT_POLICY: Final = RestartPolicy()


@dataclass(slots=True)
class _Restarts:
    """An actor's failures and outages since its last healthy run."""

    name: str
    policy: RestartPolicy
    failures: int = 0
    outages: int = 0

    def delay_after(self, error: Exception) -> float | None:
        """Count and log this error. Return the delay before the restart, or None if the actor is given up."""
        if _is_outage(error):
            self.outages += 1
            delay: float = min(self.policy.first_delay * 2 ** min(self.outages - 1, 30), self.policy.longest_outage_delay)
            log.warning("actor_met_outage", actor=self.name, outage=describe_error(error), restart_in=delay)
            return delay
        if self.failures >= self.policy.restarts:
            log.critical("actor_given_up", actor=self.name, failures=self.failures + 1)
            return None
        self.outages = 0
        self.failures += 1
        delay = min(self.policy.first_delay * 2 ** (self.failures - 1), self.policy.longest_delay)
        log.error("actor_failed", actor=self.name, failures=self.failures, restart_in=delay, exc_info=error)
        return delay


async def supervise(
    name: str,
    run: Callable[[], Awaitable[Any]],
    policy: RestartPolicy = DEFAULT_POLICY,
    count_restart: Callable[[str, str], None] | None = None,
    states: ActorStates | None = None,
    turns: Turns | None = None,
) -> NoReturn:
    """Run an actor forever and restart it when it fails. `count_restart` gets the actor's name, and `failure` or `outage`.

    `states` records starts and failures, and `turns` the actor's progress. An Outage is not the actor's fault, so
    outages are not counted. After too many real failures in a short time, the last error is raised. This error ends the
    process, and its parent or the operator's supervisor starts a new process. Otherwise the process would continue
    without this actor, and operators might not notice it.
    """
    restarts = _Restarts(name, policy)
    while True:
        started = trio.current_time()
        if states is not None:
            states.record_start(name)
        try:
            with nullcontext() if turns is None else turns.of_actor(name):
                await run()
            raise ActorEnded(name)
        except Exception as error:
            if trio.current_time() - started >= policy.healthy_after:
                restarts = _Restarts(name, policy)
            delay = restarts.delay_after(error)
            if delay is None:
                raise
            reason = "outage" if _is_outage(error) else "failure"
            if count_restart is not None:
                count_restart(name, reason)
            if states is not None:
                states.record_failure(name, reason)
        except BaseExceptionGroup as group:
            raise _log_and_drop_failures(name, group) from None
        await trio.sleep(jittered(delay))


def _log_and_drop_failures(name: str, group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return an actor's cancellation if a part of the actor failed during its cleanup.

    The canceling scope needs the cancellation. The failure is only logged: a process that was asked
    to stop should stop without an error.
    """
    stopped, errors = group.split(_is_stop)
    if errors is not None:
        log.error("actor_failed_while_stopping", actor=name, exc_info=errors)
    return stopped or group


def _is_outage(error: Exception) -> bool:
    """Return whether the error is an Outage or, as nurseries raise them, a group with outages only."""
    if isinstance(error, ExceptionGroup):
        return error.split(Outage)[1] is None
    return isinstance(error, Outage)


def _is_stop(error: BaseException) -> bool:
    """Return whether this is a cancellation, or an interrupt such as KeyboardInterrupt, and no failure."""
    return not isinstance(error, Exception | BaseExceptionGroup)


def describe_error(error: BaseException) -> str:
    """Return a line with an error and its causes. Equal errors in a group appear once."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(dict.fromkeys(describe_error(each) for each in error.exceptions))
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    cause = f" ({describe_error(error.__cause__)})" if error.__cause__ is not None else ""
    return f"{text}{cause}".replace("\n", " ").strip()
