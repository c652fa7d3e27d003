"""The names of the claims or attributes that a connection reads."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from core.federation.connections.model.settings import require_claim_name


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimMapping:
    """The names of the claims or attributes that a connection reads. None: it reads none for this field."""

    email: str = "email"
    name: str | None = "name"
    given_name: str | None = "given_name"
    family_name: str | None = "family_name"
    groups: str | None = None
    picture: str | None = None  # of new accounts only, like the locale
    locale: str | None = None

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> Self:
        # A process of another release may have stored more fields, or fewer.
        return cls(**{each.name: stored[each.name] for each in fields(cls) if each.name in stored})

    @property
    def document(self) -> dict[str, str | None]:
        """The mapping as it is stored."""
        return asdict(self)

    def check(self) -> Self:
        """Return the valid mapping. Raises: ConnectionSettingInvalid."""
        for name, claim in self.document.items():
            if claim is not None:
                require_claim_name(claim, name)
        return self
