"""An acme member who lost their factors."""

import pytest
from quart_trio import QuartTrio

from tests.authentication.api.recovery.lost import LostUser, add_lost_user
from tests.fakes.outside import FakeMailTransport
from tests.support.browser import FakeBrowser
from tests.support.tenants import Tenant


@pytest.fixture
async def ada(app: QuartTrio, acme: Tenant, sent: FakeMailTransport) -> LostUser:
    return await add_lost_user(acme, FakeBrowser(app), sent)
