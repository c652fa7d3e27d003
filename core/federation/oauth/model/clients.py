"""Values and rules of OAuth clients at the endpoints for programs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from core.authentication.model.sessions import Presenter
from core.kernel.principals import FRONTEND_CLIENT_ID

if TYPE_CHECKING:
    from uuid import UUID

    from core.applications.model.services import Service
    from core.kernel.principals import ServiceContext

TOKEN_PATH: Final = "/auth/token"  # noqa: S105  (a path)


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """The credentials of the client in a request. At most one of `secrets` and `assertion` is present."""

    client_id: str | None
    # The client secret as sent, and form-decoded: some clients encode it and others do not.
    secrets: tuple[str, ...] = field(default=(), repr=False)
    assertion: str | None = field(default=None, repr=False)  # a JWT (RFC 7523)

    @property
    def are_proof(self) -> bool:
        """Return whether the credentials claim to prove who the client is."""
        return bool(self.secrets) or self.assertion is not None


@dataclass(frozen=True, slots=True)
class OAuthClient:
    """The client of a token request: a service, or the platform's frontend (`service` is None).

    `authenticated` is true if the client sent valid credentials or needs none. `relies_on_pkce` is true
    if it sent none. `wait` is the number of seconds until the client may send a request, or None if
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

    @property
    def is_bound_only(self) -> bool:
        """Whether all tokens of the client are bound to a key (RFC 9449 section 5.2)."""
        return self.context is not None and self.context.dpop_bound_access_tokens


def client_id_text(client: OAuthClient) -> str:
    """Return the client id as in requests: that of the service, or of the platform's frontend."""
    return FRONTEND_CLIENT_ID if client.client_id is None else str(client.client_id)
