"""A user with a second factor."""

import pytest

from ports import Ports
from tests.support.builders import add_account
from tests.support.mfa import Authenticator, add_mfa


@pytest.fixture
async def authenticator(ports: Ports) -> Authenticator:
    """Return the user's authenticator app."""
    return await add_mfa(ports, await add_account(ports))
