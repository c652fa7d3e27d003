"""An organization's mail server, from outside.

It is unreachable until the operator allows it, and then used for invitations.
"""

from typing import Any

import pytest

from core.tenancy.model.settings import MailServerCheck
from tests.proof.e2e.conftest import Start
from tests.proof.e2e.process import Service
from tests.proof.e2e.sink import MailSink

pytestmark = pytest.mark.slow

OWNER, OWNERS_PASSWORD, INVITED = "grace@example.com", "nine lions at the river", "newcomer@example.com"


def started(service: Start, own_database: dict[str, str], **settings: str) -> tuple[Service, str]:
    """A running service that stores the platform's emails as files, and its owner's token."""
    running = service(
        SSO_PLATFORM_OWNER_EMAIL=OWNER,
        SSO_PLATFORM_OWNER_PASSWORD=OWNERS_PASSWORD,
        SSO_AUTO_APPROVE_ORGANIZATIONS="true",
        **settings,
        **own_database,
    ).start()
    return running, running.login(OWNER, OWNERS_PASSWORD)["access_token"]


def try_out(running: Service, token: str) -> dict[str, Any]:
    tried: dict[str, Any] = running.post("/api/organizations/acme/smtp/test", token=token).json()
    return tried


def test_invitations_use_it_as_soon_as_the_operator_allows_it(service: Start, sink: MailSink, own_database: dict[str, str]) -> None:
    port = int(sink.url.rpartition(":")[2])
    closed, token = started(service, own_database)
    assert "SSO_OUTBOUND_ALLOW" not in closed.output
    assert closed.post("/api/organizations", {"slug": "acme", "name": "Acme"}, token=token).status_code == 200
    settings = {"host": "127.0.0.1", "port": port, "from_email": "post@acme.example", "from_name": "Acme Post", "tls": False}
    answer = closed.post("/api/organizations/acme/smtp", settings, token=token)
    assert answer.json() == {**settings, "username": None, "has_password": False}
    assert try_out(closed, token) == {"success": False, "message": MailServerCheck.NO_ADDRESS}
    assert closed.stop() == 0

    opened, token = started(service, own_database, SSO_OUTBOUND_ALLOW=f"127.0.0.1/32:{port}")
    assert "outbound_calls_to_private_addresses_allowed" in opened.output
    assert try_out(opened, token) == {"success": True, "message": MailServerCheck.GOOD}
    assert sink.wait_for(OWNER).sender == "post@acme.example"
    answer = opened.post("/api/organizations/acme/invitations", {"email": INVITED, "role": "member"}, token=token)
    received = sink.wait_for(INVITED)
    assert (received.sender, received.token) == ("post@acme.example", answer.json()["token"])
    assert str(received.message["From"]) == "Acme Post <post@acme.example>"
    assert len(sink.emails) == 2
