"""Values and refusals of sign-outs that an application requests (OpenID Connect RP-Initiated Logout 1.0)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from core.applications.model import services
from core.kernel.errors import Invalid

END_SESSION_PATH: Final = "/auth/end-session"
_PARAMETERS: Final = ("id_token_hint", "client_id", "post_logout_redirect_uri", "state")


class PostLogoutClientMissing(Invalid):
    """This post_logout_redirect_uri has no application. Send id_token_hint or client_id with it."""


class PostLogoutRedirectUriNotRegistered(services.UriNotRegistered):
    """This post_logout_redirect_uri is not registered for the application, so the user is not sent there. Send a registered one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndSessionRequest:
    """A logout request as the application sent it (RP-Initiated Logout section 2). `logout_hint` and `ui_locales` have no effect here."""

    id_token_hint: str | None = None
    client_id: str | None = None
    post_logout_redirect_uri: str | None = None
    state: str | None = None

    @classmethod
    def from_fields(cls, fields: Mapping[str, str]) -> EndSessionRequest:
        """Return the request in these parameters. Empty ones count as missing."""
        return cls(**{name: fields[name] for name in _PARAMETERS if fields.get(name)})

    @property
    def path(self) -> str:
        """The path and query of this request."""
        fields = {name: value for name in _PARAMETERS if (value := getattr(self, name)) is not None}
        return f"{END_SESSION_PATH}?{urlencode(fields)}" if fields else END_SESSION_PATH


@dataclass(frozen=True, slots=True, kw_only=True)
class LogoutRequestFacts:
    """A checked logout request.

    `service` is the application that sent it, or None if that is unknown or our own frontend.
    `return_url` is the registered post_logout_redirect_uri with the state. It is None if the request
    has none, if it is not registered, or if its application is unknown because the key of the hint is deleted.
    """

    request: EndSessionRequest
    service: services.Service | None
    return_url: str | None
    has_hint: bool  # the request has an ID token of the application, of any session
    is_proven: bool  # the hint names a session that was authorized in this browser
    refusal: PostLogoutRedirectUriNotRegistered | None = None

    @property
    def cannot_return(self) -> bool:
        """Whether the request has a post_logout_redirect_uri that the browser must not follow."""
        return self.request.post_logout_redirect_uri is not None and self.return_url is None

    @property
    def path_after(self) -> str | None:
        """Our path that leads back to the application when the user is signed out everywhere, if any."""
        if self.return_url is None or self.service is None:
            return None
        request, client_id = self.request, self.service.client_name
        return EndSessionRequest(client_id=client_id, post_logout_redirect_uri=request.post_logout_redirect_uri, state=request.state).path


@dataclass(frozen=True, slots=True)
class ApplicationReturn:
    """The way back to an application after a sign-out."""

    service_name: str
    url: str
