"""The log of SCIM requests, which is written after the response so that directories do not wait for it."""

from collections import deque
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from uuid import UUID

import structlog
import trio

from core.kernel.errors import Outage
from core.provisioning import tokens
from core.provisioning.model import directories
from ports import Ports

log = structlog.get_logger("directory_log")

WRITTEN_WITHIN: Final = 5.0  # seconds for a statement


@dataclass(slots=True)
class DirectoryCall:
    """What the log needs from a request that is still being handled."""

    org_id: UUID
    token_id: UUID
    at: datetime
    path: str
    attributes: list[str] = field(default_factory=list)
    scim_type: str | None = None
    error: str | None = None

    def ended(self, method: str, status: int) -> directories.ScimRequest:
        """Return the log entry."""
        return directories.ScimRequest(
            at=self.at,
            token_id=self.token_id,
            method=method,
            path=self.path,
            attributes=self.attributes,
            status=status,
            scim_type=self.scim_type,
            error=self.error,
        )


class DirectoryLog:
    """The requests that this process has not stored yet, by organization.

    An organization has a single statement at a time, which stores all its requests that have ended since the last
    statement. So many requests cannot occupy the connections to the database.
    """

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._unwritten: dict[UUID, deque[directories.ScimRequest]] = {}
        # Set by the running server. Without it, `write` returns once the request is stored. Otherwise the next request
        # on the same connection would wait.
        self.background: trio.Nursery | None = None

    async def write(self, org_id: UUID, entry: directories.ScimRequest) -> None:
        """Store a request, or leave it to the task that already stores the organization's requests. A database outage loses it."""
        if org_id in self._unwritten:
            self._unwritten[org_id].append(entry)
            return
        self._unwritten[org_id] = deque([entry], directories.MAX_ENTRIES)
        if self.background is None:
            await self._write_all(org_id)
        else:
            self.background.start_soon(self._write_all, org_id)

    async def _write_all(self, org_id: UUID) -> None:
        waiting = self._unwritten[org_id]
        try:
            while waiting:
                batch = list(waiting)
                waiting.clear()
                with trio.fail_after(WRITTEN_WITHIN, shield=True):
                    await tokens.write_requests(self._ports, org_id, batch)
        except (Outage, trio.TooSlowError) as error:
            log.warning("scim_requests_not_logged", kind=type(error).__name__)
        finally:
            del self._unwritten[org_id]
