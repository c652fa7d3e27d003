"""Keeping a long-running task alive: restarts, with patience that ends."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import structlog
import trio

from actors.mailbox import jittered
from core.kernel.errors import Outage

log = structlog.get_logger("supervisor")


class ActorEnded(Exception):
    """The actor returned, which none may."""


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """How a failing actor is treated; times are seconds.

    Each wait before a restart is twice the one before, from `first_delay` to `longest_delay`. A run of `healthy_after` clears the
    record. The failure that follows `restarts` of them is let through: with these figures after a minute of failing at once.
    """

    first_delay: float = 0.5
    longest_delay: float = 30.0
    longest_outage_delay: float = 5.0  # shorter: the other side may be back at any moment, and looking costs nothing
    healthy_after: float = 60.0
    restarts: int = 7


PATIENCE: Final = RestartPolicy()


async def supervise(name: str, run: Callable[[], Awaitable[Any]], patience: RestartPolicy = PATIENCE) -> NoReturn:
    """Run an actor for ever, starting it again when it fails.

    An Outage says nothing about the actor, so any number of them is survived. After too many other failures in too short a time
    the last one is let through: it ends the process, which is then replaced. Half a service would live on unnoticed.
    """
    failures = outages = 0
    while True:
        started = trio.current_time()
        try:
            await run()
            raise ActorEnded(name)
        except Exception as error:
            if trio.current_time() - started >= patience.healthy_after:
                failures = outages = 0
            if _is_outage(error):
                outages += 1
                delay = min(patience.first_delay * 2 ** min(outages - 1, 30), patience.longest_outage_delay)
                log.warning("actor_met_outage", actor=name, outage=said(error), restart_in=delay)
            elif failures >= patience.restarts:
                log.critical("actor_given_up", actor=name, failures=failures + 1)
                raise
            else:
                outages = 0
                failures += 1
                delay = min(patience.first_delay * 2 ** (failures - 1), patience.longest_delay)
                log.exception("actor_failed", actor=name, failures=failures, restart_in=delay)
        except BaseExceptionGroup as group:
            # It was cancelled, and a part of it failed on the way out. The cancellation has to arrive where it came from. The failure is
            # told here and goes no further: nobody is left to restart anything, and a process that was asked to stop should stop in peace.
            stopped, errors = group.split(_is_no_error)
            if errors is not None:
                log.exception("actor_failed_while_stopping", actor=name, exc_info=errors)
            raise stopped or group from None
        await trio.sleep(jittered(delay))


def _is_outage(error: Exception) -> bool:
    """Also a group of outages alone: nurseries wrap what their tasks raise."""
    if isinstance(error, ExceptionGroup):
        return error.split(Outage)[1] is None
    return isinstance(error, Outage)


def _is_no_error(error: BaseException) -> bool:
    return not isinstance(error, Exception | BaseExceptionGroup)


def said(error: BaseException) -> str:
    """An error in one line, with what caused it; of a group, each error once."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(dict.fromkeys(said(each) for each in error.exceptions))
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    cause = f" ({said(error.__cause__)})" if error.__cause__ is not None else ""
    return f"{text}{cause}".replace("\n", " ").strip()
