"""The mail server of an organization: entities, errors and validation."""

import ipaddress
import re
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final
from uuid import UUID

from core.kernel.errors import Invalid, NotFound, refuse
from core.kernel.values import DomainInvalid, Email, is_host_name, to_a_labels

IMPLICIT_TLS: Final = 465
DEFAULT_PORT: Final = 587
# Below 1024, only the ports of mail servers are allowed. The others belong to other services.
_LOW_PORTS: Final = frozenset({25, IMPLICIT_TLS, DEFAULT_PORT})

_PRINTABLE: Final = re.compile(r"[\x20-\x7e]+")


class MailServerNotSet(NotFound):
    """This organization has not set up a mail server. Set one up first."""


class MailHostInvalid(Invalid):
    """The host must be a name, such as mail.example.com, or an IP address."""


class MailPortInvalid(Invalid):
    """The port must be 25, 465, 587, or between 1024 and 65535."""


class MailCredentialsIncomplete(Invalid):
    """Enter both username and password, or neither. The stored password is never used again."""


class MailUsernameInvalid(Invalid):
    """The username may contain only printable ASCII characters. Mail servers accept no others."""


class MailPasswordInvalid(Invalid):
    """The password may contain only printable ASCII characters. Mail servers accept no others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SmtpSettings:
    """The mail server settings of an organization, without the password.

    With `tls`, nothing is sent unencrypted: port 465 uses TLS from the first byte, other ports use
    STARTTLS. Without `tls`, nothing is encrypted.
    """

    org_id: UUID
    host: str
    port: int
    username: str | None
    from_email: Email
    from_name: str | None
    tls: bool

    @property
    def has_password(self) -> bool:
        """Return whether a password is stored. A username and a password always come together."""
        return self.username is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class MailServer(SmtpSettings):
    """The mail server settings with the password, which a connection needs."""

    password: str | None = field(repr=False)


class MailServerCheck(StrEnum):
    """The result of a test of a mail server. It reveals nothing else about the host (security W-7)."""

    GOOD = "The mail server works. It accepted an email to your address."
    NO_ADDRESS = "The host has no public address. Use another host, or ask the operator of Gatehouse to allow this one."
    NOT_REACHED = "No mail server answers at this host and port. Check both, and the firewall of the mail server."
    NOT_ENCRYPTED = "The connection could not be encrypted: the server does not offer TLS, or its certificate is not valid for the host."
    NOT_SIGNED_IN = "The mail server does not accept the username and password. Check them, and enter the password again."
    NOT_ACCEPTED = "The mail server does not accept an email from this sender's address to yours. Check that it may send for this address."
    BUSY = "Another test of this mail server is still running. Wait until it ends."


def validate(server: MailServer) -> MailServer:
    """Return the server with its host in canonical form.

    Raises: MailHostInvalid, MailPortInvalid, MailCredentialsIncomplete, MailUsernameInvalid, MailPasswordInvalid.
    """
    if server.port not in _LOW_PORTS and not 1024 <= server.port <= 65535:
        raise MailPortInvalid
    if (server.username is None) != (server.password is None):
        raise MailCredentialsIncomplete
    if server.username is not None and not _PRINTABLE.fullmatch(server.username):
        raise MailUsernameInvalid
    if server.password is not None and not _PRINTABLE.fullmatch(server.password):
        raise MailPasswordInvalid
    return replace(server, host=parse_host(server.host))


def parse_host(text: str) -> str:
    """Return the host in canonical form. Raises: MailHostInvalid. Whether its address is allowed is checked at each connection."""
    host = text.strip(" ").lower()
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        try:
            name = to_a_labels(host)
        except DomainInvalid:
            raise MailHostInvalid from None
        return name if is_host_name(name) else refuse(MailHostInvalid)
    if "%" in host:  # the zone of an IPv6 address, which names a network interface of this machine
        raise MailHostInvalid
    return str(address)
