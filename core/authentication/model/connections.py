"""The identity providers of the platform, as pages and the API show them."""

from dataclasses import dataclass

from core.kernel.connections import ConnectionSlug


@dataclass(frozen=True, slots=True)
class NamedConnection:
    """An identity provider with the operator's name for it, and its uploaded logo."""

    slug: ConnectionSlug
    name: str
    logo_url: str | None
