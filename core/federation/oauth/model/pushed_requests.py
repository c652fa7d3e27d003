"""Values and rules of pushed authorization requests (RFC 9126)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import parse_qsl, urlencode
from uuid import UUID

from core.federation.oauth.model.authorization import AuthorizationRefused, AuthorizationRequest
from core.kernel.callers import ServiceContext
from core.kernel.claims import FRONTEND_CLIENT_ID
from core.kernel.errors import Invalid, refuse
from core.kernel.values import digest, parse_id

PAR_PATH: Final = "/auth/par"
PREFIX: Final = "urn:ietf:params:oauth:request_uri:"
PRESENTED_WITHIN: Final = timedelta(seconds=60)


class RequestUriInvalid(Invalid):
    """This request_uri is unknown, expired or used, or belongs to another client or browser. Start again at the application."""

    oauth_error = "invalid_request_uri"


class RequestUriPushed(Invalid):
    """A pushed request cannot contain a request_uri. Push the parameters themselves (RFC 9126 section 2.1)."""


class PushedRedirectUriMissing(Invalid):
    """Send redirect_uri. A pushed request needs it, even if the application has only one (FAPI 2.0 section 5.3.2.2)."""


class PushRefused(Invalid):
    """Service accounts and API resources sign no users in. Push the request with the credentials of an application."""

    oauth_error = "unauthorized_client"


class PushedRequestRequired(AuthorizationRefused):
    """This application must push its authorization requests, and send the browser with the request_uri (RFC 9126)."""


@dataclass(frozen=True, slots=True)
class PushedRequest(AuthorizationRequest):
    """An authorization request that its client has pushed. `request_uri` is ours.

    The URL in the browser contains only the client id and the request_uri.
    """

    @property
    def query(self) -> str:
        fields_in_url = {"client_id": self.client_id, "request_uri": self.request_uri}
        return urlencode({name: value for name, value in fields_in_url.items() if value is not None})

    @property
    def parameters(self) -> str:
        """The parameters that the client has pushed, as a query string."""
        pushed = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "request_uri"}
        return urlencode({name: value for name, value in pushed.items() if value is not None})

    @classmethod
    def from_parameters(cls, parameters: str, request_uri: str) -> PushedRequest:
        """Return the request with these stored parameters."""
        return cls.from_fields({**dict(parse_qsl(parameters)), "request_uri": request_uri})

    @property
    def hash(self) -> bytes:
        """The hash by which the request is stored."""
        return hash_of(self.request_uri or "")


@dataclass(frozen=True, slots=True)
class StoredRequest:
    """A pushed request to store. Times are UTC."""

    request_hash: bytes
    service: ServiceContext | None  # None for the platform's frontend
    parameters: str
    created_at: datetime
    expires_at: datetime


def is_pushed(request_uri: str | None) -> bool:
    """Return whether the request_uri has the form of ours."""
    return request_uri is not None and request_uri.startswith(PREFIX)


def hash_of(request_uri: str) -> bytes:
    """Return the hash by which a request is stored."""
    return digest(request_uri.removeprefix(PREFIX))


def parse_client_id(client_id: str | None) -> UUID | None:
    """Return the client id of a request that names a pushed request. None: the platform's frontend."""
    return None if client_id == FRONTEND_CLIENT_ID else parse_id(client_id or "") or refuse(RequestUriInvalid)
