"""A browser without a session, at the service's base URL."""

import pytest
from quart_trio import QuartTrio

from entrypoints.http.app import Edge
from tests.support.browser import FakeBrowser


@pytest.fixture
def browser(app: QuartTrio, edge: Edge) -> FakeBrowser:
    return FakeBrowser(app, edge.base_url)
