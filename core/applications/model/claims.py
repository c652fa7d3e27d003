"""An application's claims document, as it is stored."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from core.kernel.errors import Conflict

CLAIM_MEMBERS: Final = ("names", "prefix", "fixed", "values", "groups", "access_token")  # the document's members


class ClaimsChanged(Conflict):
    """The claims of the application were changed by another request. Load them again, and repeat your change."""


@dataclass(frozen=True, slots=True)
class StoredClaims:
    """The document with its version. `changed_at` is UTC, and None if nothing was saved yet."""

    document: Mapping[str, Any]
    version: int = 0
    changed_at: datetime | None = None


NO_STORED_CLAIMS: Final = StoredClaims({})
