"""Floods of clients that register themselves. All that they do counts per address (security N-2)."""

import pytest

from entrypoints.http.app import Edge
from tests.federation.api.external.conftest import client, open_client, registered, server
from tests.federation.api.external.external import ExternalParty
from tests.federation.attacks.world import unchanged
from tests.support.builders import make_edge

__all__ = ["client", "open_client", "registered", "server"]  # the fixtures


@pytest.fixture
def edge() -> Edge:
    """The documented limits."""
    return make_edge(rate_limit_factor=1.0)


async def test_a_flood_of_registrations_from_one_address_is_stopped_and_leaves_nothing(registered: ExternalParty) -> None:
    async with unchanged(registered.tenant.pool):
        answers = [await registered.register(client_name=f"Assistant {number}") for number in range(25)]
    statuses = [answer.status for answer in answers]
    assert set(statuses) == {201, 429}
    assert statuses == sorted(statuses)
    assert int(answers[-1].headers["Retry-After"]) > 0
    assert len({answer.json["client_id"] for answer in answers if answer.status == 201}) == statuses.count(201)


async def test_one_person_brings_ten_new_clients(open_client: ExternalParty) -> None:
    """A consent stores a client, so limits beside the address limit count, too."""
    await open_client.set_policy(registration=True)
    statuses = []
    for number in range(11):
        await open_client.become_registered(client_name=f"Assistant {number}")
        pages = [(await open_client.open()).status for _ in range(2)]
        assert pages[0] == pages[1]
        statuses.append(pages[0])
    assert statuses == [200] * 10 + [429]


async def test_many_clients_share_the_limit_of_their_address(registered: ExternalParty) -> None:
    """A client that costs nothing has no limit of its own."""
    tokens, first = await registered.tokens(), registered.address
    await registered.become_registered()
    answers = [await registered.refresh({"refresh_token": f"unknown {number}"}) for number in range(22)]
    assert {answer.status for answer in answers} == {400, 429}
    registered.address = first
    assert (await registered.refresh(tokens)).status == 429
    assert (await registered.api.get("/auth/userinfo", token=tokens["access_token"])).status == 429
