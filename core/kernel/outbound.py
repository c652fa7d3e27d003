"""Calls to addresses that a tenant chose: the allowed URLs, and the reasons for a failure (security W-1, W-2, W-3, W-4)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from core.kernel import uris
from core.kernel.errors import Invalid

LONGEST_URL: Final = 2048
MAX_REPLY_SIZE: Final = 64 * 1024  # body bytes, unless the caller needs more; the rest is not read
NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


class TargetInvalid(Invalid):
    """The URL is not allowed as a target. Send the http or https URL of a public host, without a user name and a fragment."""


class KeyPortNotAllowed(Invalid):
    """Public keys are fetched at port 443 only, or at ports that the operator of Gatehouse allows with SSO_OUTBOUND_PORTS."""


class SendFailure(StrEnum):
    """The reason why a call got no response. The tenant sees only the reason, so that it cannot explore the operator's network."""

    NOT_RESOLVED = "the host name was not resolved"
    NOT_ALLOWED = "the host is at an address that is not allowed"
    NOT_CONNECTED = "no connection could be made"
    TLS_FAILED = "the host's certificate was not accepted, or no encryption was agreed on"
    TIMED_OUT = "there was no complete answer in time"
    BROKEN = "the connection ended before a complete answer, or the answer was not HTTP"


class SendFailed(Exception):
    """A call got no response. `reason` is all that a tenant may learn about it."""

    def __init__(self, reason: SendFailure) -> None:
        super().__init__(reason.value)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Reply:
    """A target's response. A redirect is a response too, and is never followed. `body` is the first part of the raw body.

    The `headers` have names in lower case. If several headers have the same name, the first counts.
    """

    status: int
    body: bytes = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300


def parse_target(url: str) -> str:
    """Return `url` in canonical form if it is allowed as a target."""
    target = uris.canonicalize(url)
    flaw = uris.target_flaw(target) if len(target) <= LONGEST_URL else f"it has more than {LONGEST_URL} characters."
    if flaw:
        raise TargetInvalid(f"The URL is not allowed as a target: {flaw}")
    return target
