"""A user with an authenticator."""

import pytest

from core.accounts.model.accounts import Account
from ports import Ports
from tests.support.builders import Api, sign_in
from tests.support.passkeys.users import PasskeyUser


@pytest.fixture
async def ada(api: Api, ports: Ports, user: Account) -> PasskeyUser:
    """A fresh session of `user`."""
    return PasskeyUser(api, (await sign_in(ports, user)).access_token)
