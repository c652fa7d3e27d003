"""The states of a process's actors."""

from dataclasses import replace

from core.maintenance.model.health import ActorState, ActorStatus
from ports.observe import Clock


class ActorStates:
    """The state of every actor since its first start. The supervisor writes it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._states: dict[str, ActorState] = {}

    def record_start(self, name: str) -> None:
        """Record that the actor starts, for the first time or again."""
        now, state = self._clock.now(), self._states.get(name)
        if state is None:
            state = ActorState(name, ActorStatus.RUNNING, now, restarts=0, last_failure_at=None, last_failure=None)
        self._states[name] = replace(state, status=ActorStatus.RUNNING, since=now)

    def record_failure(self, name: str, reason: str) -> None:
        """Record that the actor failed and will be restarted. `reason` is `failure` or `outage`."""
        now, state = self._clock.now(), self._states[name]
        self._states[name] = replace(
            state, status=ActorStatus.RESTARTING, since=now, restarts=state.restarts + 1, last_failure_at=now, last_failure=reason
        )

    def list_all(self) -> list[ActorState]:
        """Return the states, sorted by name."""
        return [self._states[name] for name in sorted(self._states)]
