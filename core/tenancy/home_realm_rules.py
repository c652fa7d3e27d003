"""Entities, refusals and pure rules of `core.tenancy.home_realm`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.kernel.errors import Invalid

if TYPE_CHECKING:
    from core.kernel.providers import Provider
    from core.kernel.values import Domain


class DomainTwice(Invalid):
    """A domain is there twice."""

    def __init__(self, domain: Domain) -> None:
        super().__init__(f"The domain {domain} is there twice. Give it once, with one provider.")


@dataclass(frozen=True, slots=True)
class Route:
    """Where those sign in whose addresses are in this very domain.

    Nothing follows from it unless `verified`: the organization has proved the domain or one above it, and nobody else a nearer one.
    """

    domain: Domain
    provider: Provider
    verified: bool


@dataclass(frozen=True, slots=True)
class Realm:
    """Where somebody is to sign in."""

    org_slug: str
    provider: Provider
