"""Entities, refusals and pure rules of `core.tenancy.mail_server`."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from core.kernel.errors import Invalid, NotFound
from core.kernel.values import is_host_name

if TYPE_CHECKING:
    from uuid import UUID

    from core.kernel.values import Email

IMPLICIT_TLS: Final = 465
DEFAULT_PORT: Final = 587
# Below 1024, only those that mail servers listen at: the others are of other services.
_LOW_PORTS: Final = frozenset({25, IMPLICIT_TLS, DEFAULT_PORT})

_PRINTABLE: Final = re.compile(r"[\x20-\x7e]+")


class MailServerNotSet(NotFound):
    """The organization has no mail server of its own."""


class MailHostInvalid(Invalid):
    """The host must be a name, such as mail.example.com, or an IP address."""


class MailPortInvalid(Invalid):
    """The port must be 25, 465, 587 or one from 1024 to 65535."""


class MailCredentialsIncomplete(Invalid):
    """Give both a user name and a password, or neither. A password that was given before is not kept."""


class MailCredentialsInvalid(Invalid):
    """The user name and the password must be of printable ASCII characters: others cannot be sent to mail servers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SmtpSettings:
    """How an organization's mails leave. With `tls` nothing is sent that is not encrypted: from the first byte at port 465, by STARTTLS at
    others; without it nothing is encrypted."""

    org_id: UUID
    host: str
    port: int
    username: str | None
    from_email: Email
    from_name: str | None
    tls: bool

    @property
    def has_password(self) -> bool:
        return self.username is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class MailServer(SmtpSettings):
    """The same with the password, for whoever connects."""

    password: str | None = field(repr=False)


class MailServerCheck(StrEnum):
    """How trying a server out ended: all that is told about it, so nothing of what is behind an address (security.md W-7)."""

    GOOD = "The mail server can be used."
    NO_ADDRESS = "The host has no public address."
    NOT_REACHED = "No mail server answers at this host and port."
    NOT_ENCRYPTED = "The connection could not be encrypted: the server offers no TLS, or its certificate is not valid for the host."
    NOT_SIGNED_IN = "The mail server does not take the user name and the password."
    BUSY = "Another test of this mail server is still running. Wait for it to end."


def parse_host(text: str) -> str:
    """The host in the form that it is stored in; where it is, is judged whenever it is connected to. Raises MailHostInvalid."""
    host = text.strip(" ").lower()
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        if not is_host_name(host):
            raise MailHostInvalid from None
        return host
    if "%" in host:  # which names an interface of this machine
        raise MailHostInvalid
    return str(address)


def new_server(
    org_id: UUID,
    *,
    host: str,
    port: int,
    username: str | None,
    password: str | None,
    from_email: Email,
    from_name: str | None,
    tls: bool,
) -> MailServer:
    """The server, if it can be one. Raises MailHostInvalid, MailPortInvalid, MailCredentialsIncomplete, MailCredentialsInvalid."""
    if port not in _LOW_PORTS and not 1024 <= port <= 65535:
        raise MailPortInvalid
    if (username is None) != (password is None):
        raise MailCredentialsIncomplete
    if not all(text is None or _PRINTABLE.fullmatch(text) for text in (username, password)):
        raise MailCredentialsInvalid
    return MailServer(
        org_id=org_id,
        host=parse_host(host),
        port=port,
        username=username,
        password=password,
        from_email=from_email,
        from_name=from_name,
        tls=tls,
    )
