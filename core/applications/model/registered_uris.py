"""URIs in an application's request that are not registered for the application."""

from dataclasses import dataclass

from core.applications.model.services import Service
from core.kernel import uris
from core.kernel.errors import Invalid

REDIRECT_URIS = "redirect_uris"
POST_LOGOUT_REDIRECT_URIS = "post_logout_redirect_uris"


@dataclass(frozen=True, slots=True)
class UnregisteredUri:
    """A URI as a request sent it, which can be any text, and the application's setting that does not list it."""

    uri: str
    setting: str  # REDIRECT_URIS or POST_LOGOUT_REDIRECT_URIS
    service: Service

    @property
    def flaw(self) -> str | None:
        """Return why the URI cannot be registered, as the rest of a sentence with the subject "it", or None if it can be."""
        uri = uris.to_ascii(self.uri)
        return uris.native_flaw(uri) if self.service.service_type.is_native else uris.web_flaw(uri)

    @property
    def new_host(self) -> str | None:
        """Return the URI's host in A-labels, or its scheme if it has no host, unless the application uses it already."""
        start = _host_or_scheme(self.uri)
        return None if start in {None, *map(_host_or_scheme, self.service.own_uris)} else start


def _host_or_scheme(uri: str) -> str | None:
    return uris.host_of(uri) or uris.start_of(uri)


class UriNotRegistered(Invalid):
    """A URI of the request is not registered for the application."""

    def __init__(self, unregistered: UnregisteredUri | None = None) -> None:
        """`unregistered` is None for the platform's frontend, which its operator configures."""
        super().__init__()
        self.unregistered = unregistered
