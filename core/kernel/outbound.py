"""Calls to targets that a tenant chose: which addresses may be given, and what can go wrong, in words of ours (security.md W-1 to W-4)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from core.kernel import uris
from core.kernel.errors import Invalid

LONGEST_URL: Final = 2048


class TargetInvalid(Invalid):
    """The URL is nothing that we may be asked to send something to."""

    def __init__(self) -> None:
        super().__init__(
            "The URL must begin with http:// or https:// and name a host, without a user name or a fragment; a port is 80, 443, or above "
            f"1023. It consists of ASCII characters that URLs can have, {LONGEST_URL} at most, without spaces and asterisks; all others, "
            "and a percent sign itself, are percent-encoded. The host is an IP address, or a name without a dot at its end, in the xn-- "
            "form if it is international."
        )


class Trouble(StrEnum):
    """Why no answer came. Whoever chose the target is told this and nothing else, so that they learn nothing of where we are."""

    NOT_RESOLVED = "the host name was not resolved"
    NOT_ALLOWED = "the host is at an address that is not allowed"
    NOT_CONNECTED = "no connection could be made"
    TLS_FAILED = "the host's certificate was not accepted, or no encryption was agreed on"
    TIMED_OUT = "there was no complete answer in time"
    BROKEN = "the connection ended before a complete answer, or the answer was not HTTP"


class SendFailed(Exception):
    """No answer came; `trouble` is all that may be told of why."""

    def __init__(self, trouble: Trouble) -> None:
        super().__init__(trouble.value)
        self.trouble = trouble


@dataclass(frozen=True, slots=True)
class Reply:
    """What a target answered, a redirect included: nobody follows one. `body` is as much of it as was read, as it came."""

    status: int
    body: bytes = field(repr=False)

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300


def target(url: str) -> str:
    """The address, if we may be asked to send something there. Raises TargetInvalid."""
    if len(url) > LONGEST_URL or not uris.is_target(url):
        raise TargetInvalid
    return url
