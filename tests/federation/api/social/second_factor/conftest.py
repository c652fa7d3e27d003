"""A sign-in that waits for the user's second factor."""

import pytest

from core.accounts.model.accounts import Account
from ports import Ports
from tests.federation.api.social.second_factor.pending import STRANGER, sign_in_until_code
from tests.federation.provider_sign_in import ProviderSignIn
from tests.support.builders import sign_in
from tests.support.mfa import Authenticator


@pytest.fixture
async def token(ports: Ports, user: Account) -> str:
    """The user's access token."""
    return (await sign_in(ports, user, second_factor=True)).access_token


@pytest.fixture
async def pending_sign_in(provider_sign_in: ProviderSignIn, factor: Authenticator) -> ProviderSignIn:
    """A browser after the sign-in at the provider. The sign-in must enter the user's code."""
    provider_sign_in.provider.person = STRANGER
    await sign_in_until_code(provider_sign_in)
    return provider_sign_in
