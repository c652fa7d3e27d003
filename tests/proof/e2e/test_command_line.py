"""The command line, with and without a running service."""

import base64
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click
import psycopg
import pytest
from click.testing import CliRunner

from adapters.crypto import generate_key
from entrypoints.cli import main
from tests.proof.e2e.conftest import Start
from tests.proof.e2e.docs.forms import FormBrowser
from tests.proof.e2e.process import Service, gatehouse, gatehouse_in_new_interpreter
from tests.proof.e2e.sink import MailSink
from tests.support import database
from tests.support.openapi import description
from tests.support.waiting import until

pytestmark = pytest.mark.slow

EMAIL: Final = "ada@example.com"
PASSWORD: Final = "correct horse battery staple"


def commands(group: click.Group, *path: str) -> Iterator[tuple[str, ...]]:
    """Return every visible command, as words."""
    for name, command in group.commands.items():
        if not command.hidden:
            yield (*path, name)
            if isinstance(command, click.Group):
                yield from commands(command, *path, name)


def test_the_help_of_every_command_ends_with_an_example() -> None:
    findings = []
    for words in [(), *commands(main)]:
        result = CliRunner().invoke(main, [*words, "--help"], prog_name="gatehouse")
        # In a single line, so that it can be copied, and for this command.
        last = result.stdout.rstrip().rpartition("\n")[2].strip()
        command = " ".join(("gatehouse", *words))
        good = result.stdout.startswith(f"Usage: {command} ") and last.startswith("Example: ") and command in last
        if result.exit_code != 0 or not good:
            findings.append((words, result))
    assert findings == []


def test_the_commands_are_the_documented_ones() -> None:
    promised = {("serve",), ("migrate",), ("owner", "create"), ("keys", "rotate"), ("doctor",), ("openapi",)}
    assert promised <= set(commands(main))


def test_an_unknown_command_is_reported_in_a_sentence(home: Path) -> None:
    result = gatehouse_in_new_interpreter(home, "servve")
    assert result.returncode == 2
    assert "No such command 'servve'" in result.stderr


@pytest.fixture
def blank() -> Iterator[dict[str, str]]:
    """Settings for a database without tables."""
    with database.Database(os.environ[database.SERVER_VARIABLE], template="template1") as fresh:
        yield {"SSO_DATABASE_URL": fresh.conninfo, "SSO_ENCRYPTION_KEYS": generate_key()}


def test_migrate_reports_the_migrations(blank: dict[str, str], home: Path) -> None:
    first = gatehouse(home, "migrate", **blank)
    assert (first.returncode, first.stderr) == (0, "")
    assert "0001_schema" in first.stdout
    second = gatehouse(home, "migrate", **blank)
    assert (second.returncode, second.stdout) == (0, "Nothing to do: the database is up to date.\n")


def test_the_first_owner_is_created_only_once(own_database: dict[str, str], service: Start, home: Path) -> None:
    result = gatehouse(home, "owner", "create", EMAIL, typed=f"{PASSWORD}\n", **own_database)
    assert (result.returncode, result.stdout) == (0, f"{EMAIL} is now the platform owner.\n"), result.stderr
    # An owner's password from before the rules for passwords must not prevent a start.
    refused = gatehouse(home, "owner", "create", "eve@example.com", typed="password1\n", **own_database)
    assert refused.returncode == 1
    assert refused.stderr.startswith("gatehouse: There already is a platform owner.")
    running = service(**own_database).start()
    tokens = running.login(EMAIL, PASSWORD)
    assert running.get("/api/user", token=tokens["access_token"]).json()["email"] == EMAIL
    assert running.post("/api/auth/login", {"email": "eve@example.com", "password": PASSWORD}).status_code == 401


def test_a_link_signs_the_first_owner_in_until_they_have_signed_in(own_database: dict[str, str], service: Start, home: Path) -> None:
    running = service(**own_database).start()
    settings = {**own_database, "SSO_BASE_URL": running.address}
    first, second = (gatehouse(home, "owner", "link", EMAIL, **each) for each in (settings, own_database))
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    for link, works in ((first.stdout.strip(), False), (second.stdout.strip(), True)):
        with FormBrowser(running.address) as browser:
            browser.open(link)
            assert bool(browser.forms) is works, browser.text
            if works:
                browser.submit(browser.forms[0])
                assert EMAIL in browser.text
    refused = gatehouse(home, "owner", "link", EMAIL, **settings)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("gatehouse: There already is a platform owner.")


def test_an_owner_is_recovered_by_a_link_while_the_service_runs(own_database: dict[str, str], service: Start, home: Path) -> None:
    running = service(**own_database).start()
    settings = {**own_database, "SSO_BASE_URL": running.address}
    assert gatehouse(home, "owner", "create", EMAIL, typed=f"{PASSWORD}\n", **settings).returncode == 0
    result = gatehouse(home, "owner", "recover", EMAIL.upper(), **settings)
    assert result.returncode == 0, result.stderr
    with FormBrowser(running.address) as browser:
        browser.open(result.stdout.strip())
        [form] = browser.forms
        browser.submit(form)
        assert EMAIL in browser.text
    reset = ("owner", "recover", EMAIL, "--reset-factors")
    refused = gatehouse(home, *reset, typed="eve@example.com\n", **settings)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "The addresses differ. Nothing was changed." in refused.stderr
    for more, typed in (((), f"{EMAIL.upper()}\n"), (("--yes",), "")):
        result = gatehouse(home, *reset, *more, typed=typed, **settings)
        assert (result.returncode, result.stdout.count("/auth/recover-owner?token=")) == (0, 1), result.stderr
    refused = gatehouse(home, "owner", "recover", "eve@example.com", **settings)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("gatehouse: No active account with this email address is a platform owner.")


def test_an_invalid_owner_is_refused_in_a_sentence(own_database: dict[str, str], home: Path) -> None:
    for email, password in (("no-address", PASSWORD), (EMAIL, "short"), (EMAIL, "")):
        refused = gatehouse(home, "owner", "create", email, typed=password, **own_database)
        assert refused.returncode == 1
        assert refused.stderr.startswith("gatehouse: ")
        assert refused.stderr.count("\n") == 1
    with psycopg.connect(own_database["SSO_DATABASE_URL"]) as connection:
        assert connection.execute("select count(*) from users").fetchone() == (0,)


def claims(token: str, part: int) -> dict[str, Any]:
    """Return a part from an access token, without checking it."""
    text = token.split(".")[part]
    fields: dict[str, Any] = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    return fields


def published(service: Service) -> set[str]:
    """Return the published keys' ids."""
    return {key["kid"] for key in service.get("/.well-known/jwks.json").json()["keys"]}


@pytest.mark.usefixtures("migrated_home")
def test_keys_are_rotated_beside_a_running_service(service: Start, sink: MailSink, home: Path) -> None:
    running = service("--workers", "2", SSO_SMTP_URL=sink.url).start()
    running.register(EMAIL, PASSWORD)
    assert running.follow(sink.wait_for(EMAIL).link).status_code == 200
    before = running.login(EMAIL, PASSWORD)
    old = claims(before["access_token"], 0)["kid"]
    assert published(running) == {old}

    # The command finds the embedded database by the data directory.
    rotated = gatehouse(home, "keys", "rotate")
    assert rotated.returncode == 0, rotated.stderr
    waiting = rotated.stdout.partition(" is published. It signs new tokens from ")[0]
    until(lambda: all(published(running) == {old, waiting} for _ in range(8)), "every process publishes both keys")
    assert claims(running.login(EMAIL, PASSWORD)["access_token"], 0)["kid"] == old
    again = gatehouse(home, "keys", "rotate")
    assert again.stdout.startswith(f"Nothing changed: {waiting} is published already, and signs from ")

    # Without a terminal and without --yes, nothing is removed.
    refused = gatehouse(home, "keys", "rotate", "--compromised")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "Browser sessions and refresh tokens stay" in refused.stderr
    assert published(running) == {old, waiting}
    replaced = gatehouse(home, "keys", "rotate", "--compromised", "--yes")
    assert replaced.returncode == 0, replaced.stderr
    [new] = re.findall(r"New tokens are signed with (\S+)\.\n", replaced.stdout)
    until(lambda: all(published(running) == {new} for _ in range(8)), "every process has removed the old keys")
    for _ in range(8):
        assert running.get("/api/user", token=before["access_token"]).status_code == 401
    renewed = running.post("/api/auth/refresh", {"refresh_token": before["refresh_token"]}).json()
    assert claims(renewed["access_token"], 0)["kid"] == new
    for _ in range(8):
        assert running.get("/api/user", token=renewed["access_token"]).status_code == 200


@pytest.mark.usefixtures("migrated_home")
def test_a_command_without_a_running_service_starts_and_stops_the_embedded_database(home: Path) -> None:
    rotated = gatehouse(home, "keys", "rotate")
    assert rotated.returncode == 0, rotated.stderr
    assert not (home / "var" / "postgres" / "postmaster.pid").exists()


def test_an_encryption_key_is_replaced_without_loss(service: Start, own_database: dict[str, str], home: Path) -> None:
    address = own_database["SSO_DATABASE_URL"]
    old = own_database["SSO_ENCRYPTION_KEYS"]
    running = service(**own_database)
    running.start()
    assert gatehouse(home, "owner", "create", EMAIL, typed=f"{PASSWORD}\n", **own_database).returncode == 0
    token = running.login(EMAIL, PASSWORD)["access_token"]
    assert running.stop() == 0

    generated = gatehouse(home, "keys", "generate")
    assert generated.returncode == 0
    new = generated.stdout.strip()
    both = {"SSO_DATABASE_URL": address, "SSO_ENCRYPTION_KEYS": f"{new},{old}"}
    first = gatehouse(home, "keys", "reencrypt", **both)
    assert first.returncode == 0, first.stderr
    assert int(first.stdout.split()[0]) >= 1
    assert gatehouse(home, "keys", "reencrypt", **both).stdout.split()[0] == "0"

    running.settings["SSO_ENCRYPTION_KEYS"] = new
    running.start()
    # The signing key is still the same.
    assert running.get("/api/user", token=token).status_code == 200


def test_the_printed_api_description_is_the_served_one(home: Path) -> None:
    printed = gatehouse(home, "openapi")
    assert (printed.returncode, printed.stderr) == (0, "")
    assert json.loads(printed.stdout) == description()  # which tests/edge/test_openapi.py compares with the served description


def test_doctor_finds_no_problems_in_a_good_installation(service: Start, own_database: dict[str, str], sink: MailSink, home: Path) -> None:
    settings = {**own_database, "SSO_SMTP_URL": sink.url, "SSO_BASE_URL": "https://id.example.com"}
    assert gatehouse(home, "migrate", **settings).returncode == 0
    examined = gatehouse(home, "doctor", **settings)
    assert examined.returncode == 0, examined.stdout + examined.stderr
    assert "FAIL" not in examined.stdout
    # Checking the mail server sends no email.
    assert sink.emails == []


def test_doctor_reports_problems(home: Path) -> None:
    settings = {
        "SSO_DATABASE_URL": f"host={home} user=app",
        "SSO_ENCRYPTION_KEYS": generate_key(),
        "SSO_SMTP_URL": "smtp://127.0.0.1:1",
    }
    examined = gatehouse(home, "doctor", **settings)
    assert examined.returncode == 1
    assert "Traceback" not in examined.stdout + examined.stderr
    failed = [line.split()[1] for line in examined.stdout.splitlines() if line.startswith("FAIL")]
    assert failed == ["mail", "database"]
