"""Signing people in for applications: OAuth with authorization codes and PKCE (identity.md section 4.9; decisions, points 86 to 94;
security.md section 12; RFC 6749, RFC 7636, RFC 8252, RFC 9207).

An application sends the browser to us with a request. Whoever is signed in in the browser goes back with a code, which the application
exchanges for tokens: these never travel in an address.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from core import uris
from core.access import OrganizationNotFound, OrganizationStatus
from core.errors import Invalid, OrganizationNotActive, refuse
from core.services import ServiceNotFound
from core.values import parse_id

if TYPE_CHECKING:
    from core.access import ServiceContext
    from core.services import Service
    from ports import Ports
    from ports.storage import Reading

# The client id of the platform's own application, which is public and signs people in to the platform itself (decisions, point 88).
FRONTEND: Final = "frontend"
AUTHORIZE: Final = "/auth/authorize"
_CHALLENGE: Final = re.compile(r"[A-Za-z0-9_-]{43}")  # of S256 (RFC 7636 section 4.2)
STATE_LENGTH: Final = 1024


class ServiceHalfNamed(Invalid):
    """To sign in to a service, send both org and service; to sign in to your account, neither."""


class ClientNotThatService(Invalid):
    """The client_id is not that of the service which org and service name. Send the client_id alone, or org and service alone."""


class RedirectUriMissing(Invalid):
    """Send redirect_uri: only an application that has registered exactly one may leave it out."""


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
    """What an application asks for, as it came; `org` and `service` are slugs, None for the platform itself. Clients of OAuth that know
    nothing of these say the `client_id` instead."""

    org: str | None = None
    service: str | None = None
    redirect_uri: str | None = None
    state: str | None = None
    code_challenge: str | None = None
    code_challenge_method: str | None = None
    client_id: str | None = None

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


async def judge(ports: Ports, wanted: Wanted) -> Authorization:
    """The request, if it is sound. Of one that is not, nobody but the person in the browser may hear: never the address that it names.

    Raises ServiceHalfNamed, OrganizationNotFound, OrganizationNotActive, ServiceNotFound, ClientNotThatService, RedirectUriMissing,
    RedirectUriUnknown, ChallengeMissing, ChallengeInvalid, StateInvalid.
    """
    if (wanted.org is None) != (wanted.service is None):
        raise ServiceHalfNamed
    if wanted.state is not None and len(wanted.state) > STATE_LENGTH:
        raise StateInvalid
    async with ports.storage.reading() as read:
        found = await application(read, wanted)
    if found is None:
        callback = None if ports.policy.frontend_url is None else f"{ports.policy.frontend_url}/auth/callback"
        if wanted.redirect_uri not in (None, callback):
            raise RedirectUriUnknown
        if callback is not None:
            check_challenge(None, wanted.code_challenge, wanted.code_challenge_method)
        return Authorization(wanted, None, None, callback)
    service, context = found
    redirect_uri = choose_redirect_uri(service, wanted.redirect_uri)
    check_challenge(context, wanted.code_challenge, wanted.code_challenge_method)
    return Authorization(wanted, service, context, redirect_uri)


async def application(read: Reading, wanted: Wanted) -> tuple[Service, ServiceContext] | None:
    """The service that is wanted, which can be signed in to; None for the platform itself.

    Raises OrganizationNotFound, OrganizationNotActive, ServiceNotFound, ClientNotThatService.
    """
    if wanted.org is not None and wanted.service is not None:
        found = await read.services.named(wanted.org, wanted.service)
        status = found[1].status if found else await read.organizations.status(wanted.org) or refuse(OrganizationNotFound)
    elif wanted.client_id in (None, FRONTEND):
        return None
    else:
        client_id = parse_id(wanted.client_id or "") or refuse(ServiceNotFound)
        found = await read.services.of_client(client_id) or refuse(ServiceNotFound)
        status = found[1].status
    if status is not OrganizationStatus.ACTIVE:
        raise OrganizationNotActive
    service, context = found or refuse(ServiceNotFound)
    if wanted.client_id not in (None, str(service.client_id)):
        raise ClientNotThatService
    return service, context


def choose_redirect_uri(service: Service, asked: str | None) -> str:
    """Where a code goes: to what was asked for, if it is registered, character by character (security.md O-2).

    Only the port of the loopback interface is left to those who run there. Raises RedirectUriMissing, RedirectUriUnknown.
    """
    if asked is None:
        if len(service.redirect_uris) != 1:
            raise RedirectUriMissing
        return service.redirect_uris[0]
    if asked in service.redirect_uris:
        return asked
    if service.service_type.is_public and any(uris.is_same_but_for_port(registered, asked) for registered in service.redirect_uris):
        return asked
    raise RedirectUriUnknown


def check_challenge(service: ServiceContext | None, challenge: str | None, method: str | None) -> None:
    """Whoever can keep no secret needs a challenge; None is the platform's frontend. Raises ChallengeMissing, ChallengeInvalid."""
    if challenge is None and method is None:
        if service is None or service.is_public:
            raise ChallengeMissing
    elif method != "S256" or challenge is None or not _CHALLENGE.fullmatch(challenge):
        raise ChallengeInvalid  # without a method it would be `plain` (RFC 7636 section 4.3)


def challenge_of(verifier: str) -> str:
    """The S256 challenge that belongs to a verifier (RFC 7636 section 4.6)."""
    return urlsafe_b64encode(sha256(verifier.encode("utf-8", "surrogatepass")).digest()).rstrip(b"=").decode()


def failure(authorization: Authorization, error: str, base_url: str) -> str:
    """Where the browser goes when nothing comes of a request that has a redirect URI; `error` is a code of RFC 6749 section 4.1.2.1."""
    return _back(authorization, base_url, error=error)


def _back(authorization: Authorization, base_url: str, **answer: str) -> str:
    """The redirect URI with the answer, the state as it came, and who says so (RFC 6749 section 4.1.2, RFC 9207)."""
    assert authorization.redirect_uri is not None, "the hosted pages have none"
    if authorization.wanted.state is not None:
        answer["state"] = authorization.wanted.state
    separator = "&" if "?" in authorization.redirect_uri else "?"
    return f"{authorization.redirect_uri}{separator}{urlencode({**answer, 'iss': base_url})}"
