"""The log of SCIM requests, which is written after the response so that directories do not wait for it."""

from collections import deque
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import structlog
import trio
from quart import g, request

from core.kernel.callers import ScimClient
from core.kernel.errors import Outage
from core.kernel.values import parse_id
from core.provisioning import request_log
from core.provisioning import tokens as scim_tokens
from core.provisioning.model.directories import MAX_ENTRIES, ScimRequest, ScimTokenRecord, attributes_of_filter
from entrypoints.http.edge.context import agent, app_context, request_record
from entrypoints.http.edge.middleware import RequestRecord
from ports import Ports

log = structlog.get_logger("directory_log")

WRITTEN_WITHIN: Final = 5.0  # seconds for one statement


@dataclass(slots=True)
class DirectoryCall:
    """What the log needs of a request that is still being handled."""

    org_id: UUID
    token_id: UUID
    at: datetime
    path: str
    attributes: list[str] = field(default_factory=list)
    scim_type: str | None = None
    error: str | None = None

    def ended(self, method: str, status: int) -> ScimRequest:
        """Return the entry of the log."""
        return ScimRequest(
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

    An organization has one statement at a time, which stores all its requests that have ended since the last one.
    So many requests cannot occupy the connections to the database.
    """

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._unwritten: dict[UUID, deque[ScimRequest]] = {}
        # Of the running server. Without it, `write` returns once the request is stored. Otherwise the
        # next request on the same connection would wait.
        self.background: trio.Nursery | None = None

    async def write(self, org_id: UUID, entry: ScimRequest) -> None:
        """Store a request, or leave it to the task that stores requests of the organization already. An outage of the database loses it."""
        if org_id in self._unwritten:
            self._unwritten[org_id].append(entry)
            return
        self._unwritten[org_id] = deque([entry], MAX_ENTRIES)
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
                    await request_log.write(self._ports, org_id, batch)
        except (Outage, trio.TooSlowError) as error:
            log.warning("scim_requests_not_logged", kind=type(error).__name__)
        finally:
            del self._unwritten[org_id]


async def authenticate_directory(secret: str) -> ScimClient:
    """Return the directory with this SCIM token, and have the request logged, also if it is refused.

    Raises: the errors of `scim_tokens.find` and `scim_tokens.authenticate`.
    """
    token = await scim_tokens.load_record(app_context().ports, secret)
    _log_call(token)
    return scim_tokens.authenticate(token, address=request_record().address, agent=agent())


def _log_call(token: ScimTokenRecord) -> None:
    """Have the current request logged after its response, with the organization of this token, which may be expired."""
    record, context = request_record(), app_context()
    call = DirectoryCall(token.org_id, token.token_id, context.ports.clock.now(), _path_of(record.route, request.view_args or {}))
    if request.query_string and (text := request.args.get("filter")) is not None:
        call.attributes = attributes_of_filter(text)
    g.directory_call = call

    async def write(ended: RequestRecord) -> None:
        await context.directory_log.write(call.org_id, call.ended(ended.method, ended.status))

    record.after_response = write


def _path_of(route: str, arguments: dict[str, Any]) -> str:
    """Return the path of a route, with arguments that are ids. Others could be names of users."""
    for name, value in arguments.items():
        route = route.replace(f"<{name}>", str(value) if parse_id(str(value)) is not None else f"{{{name}}}")
    return route
