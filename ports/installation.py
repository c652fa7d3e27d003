"""The interface to the running process and its settings."""

from collections.abc import Sequence
from typing import Protocol

from core.maintenance.model.health import ActorState, CheckFinding, ConnectionCounts, SettingInForce


class Installation(Protocol):
    """This process, and the settings that all processes share."""

    @property
    def version(self) -> str: ...

    @property
    def process_id(self) -> int: ...

    @property
    def connections(self) -> ConnectionCounts:
        """The process's database connections now."""

    @property
    def has_mail_server(self) -> bool:
        """Whether the platform has a mail server. Without a mail server, emails are written to a folder."""

    def actors(self) -> Sequence[ActorState]:
        """Return the actors in this process, sorted by name."""

    async def run_checks(self) -> Sequence[CheckFinding]:
        """Return the findings from `gatehouse doctor`, at most a minute old. The checks contact servers, which can take half a minute."""

    def settings(self) -> Sequence[SettingInForce]:
        """Return all settings, in the order of the settings model. Secrets have no value (security L-3)."""
