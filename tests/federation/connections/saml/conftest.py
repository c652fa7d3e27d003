"""An identity provider, and the verifier of its responses."""

import pytest

from adapters.saml.documents import XmlResponses
from ports.saml import SamlResponses
from tests.support.saml.identity_provider import IdentityProvider, new_identity_provider


@pytest.fixture
async def provider() -> IdentityProvider:
    return await new_identity_provider()


@pytest.fixture
def verifier() -> SamlResponses:
    return XmlResponses()
