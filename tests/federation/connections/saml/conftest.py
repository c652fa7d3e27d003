"""An identity provider, and the verifier for its responses."""

import pytest

from adapters.saml.documents import XmlProviders
from ports.saml import SamlProviders
from tests.fakes.outside import FakeMetrics
from tests.support.saml.identity_provider import IdentityProvider, new_identity_provider


@pytest.fixture
async def provider() -> IdentityProvider:
    return await new_identity_provider()


@pytest.fixture
def verifier(metrics: FakeMetrics) -> SamlProviders:
    return XmlProviders(metrics)
