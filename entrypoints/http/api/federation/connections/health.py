"""Connections' health in the API."""

from typing import Self

from pydantic import Field

from core.federation.connections.model.health import ConnectionHealth, HealthState
from entrypoints.http.edge.bodies import ResponseModel, Timestamp


class ConnectionHealthResponse(ResponseModel):
    """A connection's last refresh, and its result. An active connection is refreshed once a day, and soon after a failure or a change."""

    health: HealthState = Field(
        description="`failing`: users cannot sign in. `unknown`: the connection is not active, or was not refreshed yet."
    )
    problem: str | None = Field(description="The kind of the problem, or null.", examples=["certificate_expires"])
    message: str | None = Field(description="The problem, and what to do.")
    refreshed_at: Timestamp | None = Field(description="When the metadata and the keys of the identity provider were last read.")
    certificate_end: Timestamp | None = Field(
        description="When the first certificate that users need expires: the identity provider's last active certificate, or ours."
    )

    @classmethod
    def of_last_refresh(cls, health: ConnectionHealth | None) -> Self:
        """Return a connection's health. None: it is not active, or was not refreshed yet."""
        if health is not None:
            return cls.of(health)
        return cls(health=HealthState.UNKNOWN, problem=None, message=None, refreshed_at=None, certificate_end=None)
