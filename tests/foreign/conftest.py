"""Fixtures for third-party OpenID Connect clients: Gatehouse with an organization and a user, and browsers."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.fakes.client_documents import ClientServer
from tests.foreign.gatehouse import EMAIL, PASSWORD, Client, Gatehouse
from tests.foreign.programs import Program
from tests.proof.e2e.conftest import browser, chromium, home, launcher_ends, own_database, service_home, settings_of_own_database
from tests.proof.e2e.docs.forms import FormBrowser
from tests.proof.e2e.process import Service

__all__ = ["browser", "chromium", "home", "launcher_ends", "own_database"]

SETTINGS: Final = {
    "SSO_PLATFORM_OWNER_EMAIL": EMAIL,
    "SSO_PLATFORM_OWNER_PASSWORD": PASSWORD,
    "SSO_AUTO_APPROVE_ORGANIZATIONS": "true",
    "SSO_CLIENT_REGISTRATION": "true",
}


@pytest.fixture(scope="session")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientServer]:
    """The server on which clients that are not registered publish their metadata. Gatehouse trusts its certificate."""
    with ClientServer(tmp_path_factory.mktemp("documents")) as server:
        yield server


@pytest.fixture(scope="session")
def gatehouse(documents: ClientServer) -> Iterator[Gatehouse]:
    """A running Gatehouse for all tests in a worker. A test registers its own client, or publishes its metadata."""
    with ExitStack() as stack:
        home = stack.enter_context(service_home())
        trust = {"SSO_OUTBOUND_CA_FILE": str(documents.certificate)}
        service = Service(home, **stack.enter_context(settings_of_own_database()), **SETTINGS, **trust)
        stack.callback(service.clean_up)
        yield Gatehouse(service.start())


@pytest.fixture
def forms(gatehouse: Gatehouse) -> Iterator[Callable[[str], FormBrowser]]:
    """Return a function that opens a browser without scripts, for Gatehouse and this application."""
    with ExitStack() as stack:
        yield lambda application: stack.enter_context(FormBrowser(gatehouse.address, application))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    """Return a function that starts a test's own program in a folder, with these variables."""
    programs: list[Program] = []

    def start_program(command: str, port: int, folder: Path = tmp_path, **variables: str) -> Program:
        programs.append(Program(command, port, folder, variables))
        return programs[-1].wait_until_it_listens()

    yield start_program
    for program in programs:
        program.stop()


Start = Callable[..., Program]
Register = Callable[..., Client]
