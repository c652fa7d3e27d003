"""Connection slugs in the API description."""

from enum import StrEnum
from typing import TYPE_CHECKING

from core.kernel.connections import PLATFORM_CONNECTIONS, ConnectionSlug

if TYPE_CHECKING:
    ProviderSlug = ConnectionSlug
else:  # the API description names the type, with its values
    ProviderSlug = StrEnum("Provider", {slug.upper(): slug for slug in PLATFORM_CONNECTIONS}, module=__name__)
    ProviderSlug.__doc__ = "An external identity provider."
