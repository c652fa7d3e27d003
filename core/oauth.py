"""Signing people in for applications: OAuth with authorization codes and PKCE (identity.md section 4.9; decisions, points 86 to 94;
security.md section 12; RFC 6749, RFC 7636, RFC 8252, RFC 9207).

An application sends the browser to us with a request. Whoever is signed in in the browser goes back with a code, which the application
exchanges for tokens: these never travel in an address.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from core.errors import Invalid

if TYPE_CHECKING:
    from core.access import ServiceContext
    from core.services import Service

AUTHORIZE: Final = "/auth/authorize"
_CHALLENGE: Final = re.compile(r"[A-Za-z0-9_-]{43}")  # of S256 (RFC 7636 section 4.2)
STATE_LENGTH: Final = 1024


class ServiceHalfNamed(Invalid):
    """To sign in to a service, send both org and service; to sign in to your account, neither."""


class RedirectUriUnknown(Invalid):
    """This redirect URI is not one that the application has registered. Nobody was sent there."""


class ChallengeMissing(Invalid):
    """This application has to send code_challenge, with code_challenge_method S256 (PKCE, RFC 7636)."""


class ChallengeInvalid(Invalid):
    """The code_challenge must be 43 characters of base64url, and code_challenge_method S256 (PKCE, RFC 7636)."""


class StateInvalid(Invalid):
    """The state is too long: 1024 characters at most."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an application asks for, as it came; `org` and `service` are slugs, None for the platform itself."""

    org: str | None = None
    service: str | None = None
    redirect_uri: str | None = None
    state: str | None = None
    code_challenge: str | None = None
    code_challenge_method: str | None = None

    @property
    def path(self) -> str:
        """The address, on our own pages, at which this is asked for."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return f"{AUTHORIZE}?{urlencode({name: value for name, value in fields.items() if value is not None})}"


@dataclass(frozen=True, slots=True)
class Authorization:
    """A request that is sound: where a code goes, and for whom. `redirect_uri` is the one that counts, chosen or the only one there is;
    `service` and `context` are None for the platform's own frontend."""

    wanted: Wanted
    service: Service | None
    context: ServiceContext | None
    redirect_uri: str | None  # None: on the hosted pages, for the platform without a frontend
