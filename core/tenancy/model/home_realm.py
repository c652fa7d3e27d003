"""Home realm routes: entities and errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.kernel.errors import Invalid

if TYPE_CHECKING:
    from core.kernel.providers import Provider
    from core.kernel.values import Domain


class DuplicateDomain(Invalid):
    """A domain appears twice. Send each domain once, with one provider."""

    def __init__(self, domain: Domain) -> None:
        super().__init__(f"The domain {domain} appears twice. Send each domain once, with one provider.")


@dataclass(frozen=True, slots=True)
class HomeRealmRoute:
    """The identity provider for email addresses at exactly this domain.

    The route is used only if `verified`: the organization has verified the domain or a parent
    domain, and no other organization has verified a closer one.
    """

    domain: Domain
    provider: Provider
    verified: bool


@dataclass(frozen=True, slots=True)
class HomeRealmMatch:
    """The organization and the identity provider through which a user signs in."""

    org_slug: str
    provider: Provider
