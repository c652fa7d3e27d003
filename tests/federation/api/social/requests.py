"""The values in a request that starts a sign-in, and the test providers."""

from typing import Final

import pytest

from core.kernel.connections import CODEHOST, PLATFORM_CONNECTIONS, WEBSUITE

CHALLENGE: Final = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
REDIRECT_URI: Final = "https://shop.example.com/callback"
SHOP: Final = {"org": "acme", "service": "shop"}
every_provider = pytest.mark.parametrize("provider", list(PLATFORM_CONNECTIONS), indirect=True)
verifying_providers = pytest.mark.parametrize("provider", [CODEHOST, WEBSUITE], indirect=True)
