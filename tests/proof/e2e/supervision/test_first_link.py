"""The first sign-in at a service with its own PostgreSQL: a link in a terminal, and in logs the command that prints a link."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Final

import pytest

from tests.proof.e2e.conftest import Start
from tests.proof.e2e.docs.forms import FormBrowser
from tests.proof.e2e.process import Service, gatehouse
from tests.support.waiting import until

pytestmark = pytest.mark.slow

EMAIL: Final = "ada@example.com"
COMMAND: Final = "docker exec CONTAINER gatehouse"
NEXT_STEP: Final = f"{COMMAND} owner link you@example.com"


@contextmanager
def in_terminal(service: Service) -> Iterator[None]:
    """Start the service in a terminal, copy its output to its file, and stop it when the block ends."""
    ours, theirs = os.openpty()
    service.output_file.unlink(missing_ok=True)

    def copy() -> None:
        with service.output_file.open("ab") as file:
            try:
                while text := os.read(ours, 4096):
                    file.write(text)
                    file.flush()
            except OSError:  # the last process that has the terminal has ended
                pass

    reader = Thread(target=copy)
    reader.start()
    try:
        service.start(theirs)
        until(lambda: "Ctrl-C" in service.output, "the welcome is complete")
        yield
        assert service.stop() == 0
    finally:
        service.clean_up()
        os.close(theirs)
        reader.join()
        os.close(ours)


def links(service: Service) -> list[str]:
    return re.findall(rf"{service.address}/auth/recover-owner\?token=\S+", service.output)


def sign_in(service: Service, link: str) -> bool:
    """Use the link, and return whether it works."""
    with FormBrowser(service.address) as browser:
        browser.open(link)
        if browser.forms:
            browser.submit(browser.forms[0])
            assert EMAIL in browser.text
        return EMAIL in browser.text


def test_a_start_in_a_terminal_prints_a_link_until_the_owner_has_signed_in(service: Start, own_database: dict[str, str]) -> None:
    running = service("--workers", "2", **own_database, SSO_PLATFORM_OWNER_EMAIL=EMAIL, GATEHOUSE_COMMAND=COMMAND)
    with in_terminal(running):
        [earlier] = links(running)
        assert "Create an organization there" in running.output
        assert "quickstart" not in running.output, "it writes files, which a container does not keep"
    running.arguments[1] = "1"
    with in_terminal(running):
        [link] = links(running)
        assert "recover-owner" not in "\n".join(str(line) for line in running.log), "it is printed, and not logged"
        assert not sign_in(running, earlier), "the later start has replaced it"
        assert sign_in(running, link)
        assert not sign_in(running, link), "it works once"
    with in_terminal(running):
        assert links(running) == []
        assert NEXT_STEP not in running.output


def test_a_start_in_a_terminal_without_an_address_prints_the_command(service: Start, own_database: dict[str, str]) -> None:
    running = service(**own_database, GATEHOUSE_COMMAND=COMMAND)
    with in_terminal(running):
        assert f"No platform owner has signed in yet. Print a link that signs the first one in:\n  {NEXT_STEP}" in running.output


def test_logs_have_the_command_and_no_link_until_the_owner_has_signed_in(service: Start, own_database: dict[str, str], home: Path) -> None:
    settings = {**own_database, "SSO_PLATFORM_OWNER_EMAIL": EMAIL}
    running = service(**settings, GATEHOUSE_COMMAND=COMMAND)
    other = service(**settings, SSO_BASE_URL=running.address, SSO_DATA_DIR=str(home / "tmp"))
    other.output_file = home / "other.output"
    running.settings["SSO_BASE_URL"] = running.address
    for each in (running.launch(), other.launch()):  # at once, as an installation's pods start
        until(lambda each=each: each.logged("platform_owner_missing"), "the log has the next step")  # type: ignore[misc]
    assert [len(each.logged("platform_owner_created")) for each in (running, other)] in ([0, 1], [1, 0])
    [line] = running.logged("platform_owner_missing")
    assert line["next_step"].endswith(NEXT_STEP)
    assert "recover-owner" not in running.output + other.output
    for each in (running, other):  # a service that starts ends by SIGTERM itself
        until(lambda each=each: each.get("/health/ready").status_code == 200, "the service is ready")  # type: ignore[misc]
    assert other.stop() == 0
    link = gatehouse(home, "owner", "link", EMAIL, **settings, SSO_BASE_URL=running.address).stdout.strip()
    assert sign_in(running, link)
    assert running.stop() == 0
    running.output_file.unlink()
    running.start()
    assert running.logged("platform_owner_missing") == []


def test_no_next_step_is_logged_if_the_operator_knows_the_password(service: Start, own_database: dict[str, str]) -> None:
    running = service(**own_database, SSO_PLATFORM_OWNER_EMAIL=EMAIL, SSO_PLATFORM_OWNER_PASSWORD="all the keys of the house").start()
    assert running.logged("platform_owner_created")
    assert running.logged("platform_owner_missing") == []
