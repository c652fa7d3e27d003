"""A pipeline provider."""

from collections.abc import Iterator

import pytest
from quart_trio import QuartTrio

from ports import Ports
from tests.federation.api.client_authentication.pipelines import Issuer
from tests.support.builders import with_loopback_sender
from tests.support.direct import change_ports


@pytest.fixture
def issuer(app: QuartTrio, ports: Ports) -> Iterator[Issuer]:
    """A provider that the application can reach."""
    change_ports(app, issuer_keys=with_loopback_sender(ports).issuer_keys)
    with Issuer() as server:
        yield server
