"""Values and rules of OAuth clients at the endpoints for programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.authentication.sessions_rules import Presenter

if TYPE_CHECKING:
    from uuid import UUID

    from core.applications.services_rules import Service
    from core.kernel.principals import ServiceContext


@dataclass(frozen=True, slots=True)
class OAuthClient:
    """The client of a token request: a service, or the platform's frontend (`service` is None).

    `authenticated` is true if the client sent its secret or needs none. `relies_on_pkce` is true if
    it sent no secret. `wait` is the number of seconds until the client may send a request, or None if
    the request was not counted against the client's own limit.
    """

    service: Service | None
    context: ServiceContext | None
    authenticated: bool
    relies_on_pkce: bool
    wait: float | None = None

    @property
    def service_id(self) -> UUID | None:
        return None if self.service is None else self.service.id

    @property
    def client_id(self) -> UUID | None:
        """The client id of the service, or None for the frontend, which uses FRONTEND_CLIENT_ID."""
        return None if self.service is None else self.service.client_id

    @property
    def presenter(self) -> Presenter:
        return Presenter(is_named=True, service_id=self.service_id, is_authenticated=self.authenticated)
