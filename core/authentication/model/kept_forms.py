"""Forms that wait for a reauthentication."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from core.kernel.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

KEPT_FOR: Final = timedelta(minutes=15)
MAX_KEPT: Final = 5  # in one session


class KeptFormEnded(Invalid):
    """This form was already sent, or has expired. Open its page to check the result, and fill it in again if necessary."""


@dataclass(frozen=True, slots=True)
class KeptForm:
    """A form of our pages that was sent in a session, and is sent again after a reauthentication. Times are UTC."""

    id: UUID
    session_id: UUID
    path: str  # that it was sent to
    label: str  # what the form does
    fields: Mapping[str, str] = field(repr=False)
    created_at: datetime
    expires_at: datetime
