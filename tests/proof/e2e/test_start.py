"""The service's start: what the operator sees after a success, and a sentence per failure."""

import base64
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psycopg
import pytest

from adapters.crypto import generate_key
from adapters.prometheus import ACTORS
from tests.proof.e2e.conftest import Start
from tests.proof.e2e.process import Port, Service, family
from tests.support.waiting import until

pytestmark = pytest.mark.slow

OWNER: Final = {"SSO_PLATFORM_OWNER_EMAIL": "owner@example.com", "SSO_PLATFORM_OWNER_PASSWORD": "all the keys of the house"}


def sentence(service: Service) -> str:
    """Return the error from a service that ends at once.

    It is a text for the operator, not a traceback.
    """
    assert service.wait() != 0
    output = "".join(line for line in service.output.splitlines(keepends=True) if not line.startswith("{"))
    assert "Traceback" not in output
    assert output.startswith("gatehouse: "), output
    assert output.rstrip().endswith("."), output
    assert output.count("\n") == 1, output
    return output


def test_a_port_in_use_is_reported(service: Start) -> None:
    with Port() as taken:
        taken.listen()
        message = sentence(service(SSO_BIND=f"127.0.0.1:{taken.number}").launch())
        assert f"127.0.0.1:{taken.number} is already in use" in message


INVALID: Final = (
    ("SSO_WORKERS", "several"),
    ("SSO_WORKERS", "0"),
    ("SSO_BIND", "nowhere"),
    ("SSO_BIND", "192.0.2.1:8080"),
    ("SSO_BASE_URL", "id.example.com"),
    ("SSO_RATE_LIMITS", "sometimes"),
    ("SSO_TRUSTED_PROXIES", "10.0.0.0/8,proxy.example.com"),
    ("SSO_ARGON2_MEMORY_KIB", "1"),
    ("SSO_LOG_FORMAT", "xml"),
    ("SSO_TIERS", '[{"name": "gold"]'),
    ("SSO_PLATFORM_OWNER_EMAIL", "owner"),
    ("SSO_SMTP_URL", "mail.example.com"),
    ("SSO_OUTBOUND_ALLOW", "10.0.0.0/8,localhost"),
    ("SSO_MAIL_FROM", "postmaster"),
    ("SSO_COMMON_PASSWORDS_FILE", "/nonexistent/passwords.txt"),
    ("SSO_TLS_KEY", "/nonexistent/key.pem"),
    ("SSO_TLS_REDIRECT_BIND", "localhost:8081"),
    ("SSO_ENCRYPTION_KEYS", "first:tooshort"),
    ("SSO_DATABASE_URL", "mysql://localhost/gatehouse"),
    ("SSO_DATA_DIR", "/proc/gatehouse"),
)
INVALID_SECRETS: Final = (
    ("SSO_ENCRYPTION_KEYS", "one:" + base64.b64encode(b"S3cretS3cretS3cret").decode()),
    ("SSO_SMTP_URL", "smtp://robot:S3cretS3cret@mail.example.com/path"),
    ("SSO_DATABASE_URL", "postgres://gatehouse:S3cretS3cret@[db/gatehouse"),
    ("SSO_DATABASE_URL", "postgres:gatehouse:S3cretS3cret"),
)


def refusal(service: Start, home: Path, name: str, value: str) -> str:
    """Return the error from a service with this setting."""
    needed = {"SSO_ENCRYPTION_KEYS": generate_key()} if name == "SSO_DATABASE_URL" else {}
    refused = service(**{**needed, name: value})
    refused.output_file = home / f"{name}-{len(list(home.iterdir()))}.output"
    return sentence(refused.launch())


def test_an_invalid_setting_is_reported_by_its_name(service: Start, home: Path) -> None:
    messages = {(name, value): refusal(service, home, name, value) for name, value in INVALID}
    assert [setting for setting, message in messages.items() if setting[0] not in message] == []


def test_an_invalid_secret_is_not_repeated(service: Start, home: Path) -> None:
    for name, value in INVALID_SECRETS:
        message = refusal(service, home, name, value)
        assert name in message
        assert "S3cret" not in message
        assert value.partition(":")[2] not in message


def test_several_mistakes_are_reported_together(service: Start) -> None:
    running = service(SSO_WORKERS="several", SSO_BIND="nowhere").launch()
    assert running.wait() != 0
    assert "SSO_WORKERS" in running.output
    assert "SSO_BIND" in running.output
    assert "Traceback" not in running.output


def test_an_unusual_base_url_is_refused_until_it_is_in_use(service: Start, own_database: dict[str, str]) -> None:
    """So is a misspelled setting named, without its value."""
    running = service(**own_database, SSO_BASE_URL="https://Id.Example.com:443", SSO_LOG_LEVLE="S3cret")
    assert "Set it to https://id.example.com." in sentence(running.launch())
    problems = [line["problem"] for line in running.log if line["event"] == "unknown_setting"]
    assert problems == ["SSO_LOG_LEVLE is not a setting of this release. Do you mean SSO_LOG_LEVEL?"]
    assert "S3cret" not in running.output
    with psycopg.connect(own_database["SSO_DATABASE_URL"]) as connection:
        connection.execute("insert into issuer (url) values (%s)", (running.settings["SSO_BASE_URL"],))
    running.output_file.unlink()
    running.start()
    assert "unusual_base_url" in {line["event"] for line in running.log}
    running.settings["SSO_WORKERS"] = "several"
    assert running.stop() == 0
    running.output_file.unlink()
    assert running.launch().wait() != 0
    assert "Do you mean SSO_LOG_LEVEL?" in running.output, "with the settings that are not valid"


def test_an_external_database_needs_encryption_keys(service: Start, own_database: dict[str, str]) -> None:
    message = sentence(service(SSO_DATABASE_URL=own_database["SSO_DATABASE_URL"]).launch())
    assert "SSO_ENCRYPTION_KEYS" in message
    assert "gatehouse keys generate" in message


def test_a_wrong_encryption_key_is_reported(service: Start, own_database: dict[str, str]) -> None:
    first = service(**own_database).start()
    assert first.stop() == 0
    key_id, _, _ = own_database["SSO_ENCRYPTION_KEYS"].partition(":")
    for keys in (generate_key(), f"{key_id}:{generate_key().partition(':')[2]}"):
        other = service(SSO_DATABASE_URL=own_database["SSO_DATABASE_URL"], SSO_ENCRYPTION_KEYS=keys)
        other.output_file.unlink()
        assert key_id in sentence(other.launch())


def test_a_too_short_password_of_the_owner_is_reported(service: Start, own_database: dict[str, str]) -> None:
    message = sentence(service(**own_database, SSO_PLATFORM_OWNER_EMAIL="owner@example.com", SSO_PLATFORM_OWNER_PASSWORD="S3cret").launch())
    assert "SSO_PLATFORM_OWNER_PASSWORD" in message
    assert "8" in message
    assert "S3cret" not in message


@pytest.mark.usefixtures("migrated_home")
def test_a_second_service_on_one_data_directory_is_refused(service: Start, home: Path) -> None:
    first = service().start()
    second = service()
    second.output_file = home / "second.output"
    # Refused by the data directory, not by the address, which differs: the start would take away
    # the first service's database.
    message = sentence(second.launch())
    assert str(first.process.pid) in message
    assert first.get("/health/ready").status_code == 200


GOLD: Final = {"name": "gold", "display_name": "Gold", "default_max_services": 50, "default_max_users": 500}


@pytest.mark.parametrize(("workers", "shows_password"), [("1", True), ("2", False)])
def test_each_start_shows_the_addresses_and_saves_the_tiers_and_only_the_first_shows_the_owner(
    service: Start, workers: str, shows_password: bool, home: Path, request: pytest.FixtureRequest
) -> None:
    """The password is shown only if ./run has generated it, and never if the operator has set it (security L-3)."""
    if workers == "2":
        request.getfixturevalue("migrated_home")
    running = service("--welcome", *["--show-password"] * shows_password, "--workers", workers, **OWNER)
    tiers = []
    for is_first, price in ((True, 4900), (False, 5900)):
        if running.output_file.exists():
            running.output_file.unlink()
        running.settings["SSO_TIERS"] = json.dumps([{**GOLD, "price_cents": price}])
        running.in_new_interpreter(is_first and workers == "1").start()
        until(lambda: "Ctrl-C" in running.output, "the welcome is complete")
        welcome = "\n".join(line for line in running.output.splitlines() if not line.startswith("{"))
        assert running.address in welcome
        assert f"{running.address}/docs" in welcome
        assert str(home / "var" / "mail") in welcome
        assert (OWNER["SSO_PLATFORM_OWNER_EMAIL"] in welcome) is is_first
        assert (OWNER["SSO_PLATFORM_OWNER_PASSWORD"] in welcome) is (is_first and shows_password)
        assert ("the one in SSO_PLATFORM_OWNER_PASSWORD" in welcome) is (is_first and not shows_password)
        # It is printed for the operator and not logged, because logs are kept.
        assert OWNER["SSO_PLATFORM_OWNER_PASSWORD"] not in "\n".join(str(line) for line in running.log)
        link = f"{running.address}/auth/recover-owner?token="
        assert (link in welcome) is (is_first and shows_password), "only before the first sign-in"
        assert "recover-owner" not in "\n".join(str(line) for line in running.log)
        token = running.login(OWNER["SSO_PLATFORM_OWNER_EMAIL"], OWNER["SSO_PLATFORM_OWNER_PASSWORD"])["access_token"]
        assert running.get("/api/user", token=token).json()["email"] == OWNER["SSO_PLATFORM_OWNER_EMAIL"]
        *others, tier = running.get("/api/platform/tiers", token=token).json()
        assert [other["name"] for other in others] == ["free", "professional"]
        assert tier == {**GOLD, "price_cents": price, "id": tier["id"]}
        tiers.append(tier["id"])
        if is_first:
            check_platform_pages(running, token)
            check_files(home)
        assert running.stop() == 0
        assert list((home / "tmp").iterdir()) == [], "no temporary files are left"
    assert tiers[0] == tiers[1]


def check_platform_pages(running: Service, token: str) -> None:
    """Check that platform owners see the running actors, the doctor's findings and the settings, and no secrets."""
    health, checks, settings = [running.get(f"/api/platform/{path}", token=token) for path in ("health", "health/checks", "settings")]
    assert {actor["name"]: actor["status"] for actor in health.json()["actors"]} == dict.fromkeys(ACTORS, "running")
    assert [key["signs"] for key in health.json()["signing_keys"]] == [True]
    findings = {finding["subject"]: finding["result"] for finding in checks.json()["findings"]}
    assert (findings["database"], findings["migrations"], findings["encryption"], findings["mail"]) == ("ok", "ok", "ok", "warning")
    listed = {setting["variable"]: setting for setting in settings.json()["settings"]}
    assert (listed["SSO_PLATFORM_OWNER_EMAIL"]["value"], listed["SSO_PLATFORM_OWNER_EMAIL"]["source"]) == (
        OWNER["SSO_PLATFORM_OWNER_EMAIL"],
        "environment",
    )
    assert (listed["SSO_BASE_URL"]["value"], listed["SSO_BASE_URL"]["source"]) == (running.address, "start")
    for response in (health, checks, settings):
        assert OWNER["SSO_PLATFORM_OWNER_PASSWORD"] not in response.text


def check_files(home: Path) -> None:
    """Check that only the service's user can read its secrets."""
    for secret in (home / "var" / "encryption-keys", home / "var" / "mail"):
        assert secret.stat().st_mode & 0o077 == 0, secret


def test_logs_on_a_terminal_are_readable(service: Start, own_database: dict[str, str], home: Path) -> None:
    leader, follower = os.openpty()
    try:
        running = service(**own_database, SSO_LOG_FORMAT="auto", NO_COLOR="1")
        running.start(output=follower)
        until(lambda: running.get("/api/user", **{"X-Request-Id": "trace-0815"}).status_code == 401, "it answers")
        output = b""
        while b"trace-0815" not in output:
            output += os.read(leader, 65536)
        [line] = [line for line in output.decode().splitlines() if "trace-0815" in line]
        assert "GET /api/user" in line
        assert "status=401" in line
        assert not line.startswith("{")
    finally:
        os.close(follower)
        os.close(leader)


@pytest.fixture
def waiting(service: Start, home: Path) -> Iterator[Service]:
    """A service that waits for a database that never starts."""
    settings = {"SSO_DATABASE_URL": f"host={home} user=app", "SSO_ENCRYPTION_KEYS": generate_key()}
    running = service(**settings).launch()
    until(lambda: [line for line in running.log if line["event"].startswith("waiting")], "it waits")
    yield running
    assert family(home) == {}
    assert "Traceback" not in running.output


def test_ctrl_c_ends_a_service_that_waits_for_its_database(waiting: Service) -> None:
    waiting.interrupt()
    assert waiting.wait() in (0, 1, 130)


def test_sigterm_ends_a_service_that_waits_for_its_database(waiting: Service) -> None:
    os.kill(waiting.process.pid, signal.SIGTERM)
    assert waiting.wait() in (0, -signal.SIGTERM, 128 + signal.SIGTERM)


def test_an_xmlsec_that_does_not_match_lxml_is_reported(service: Start, home: Path) -> None:
    # The error by xmlsec if it finds a libxml2 that differs from its build's.
    (home / "xmlsec.py").write_text('raise ImportError("lxml & xmlsec libxml2 library version mismatch")')
    message = sentence(service(PYTHONPATH=str(home)).in_new_interpreter().launch())
    assert "version mismatch" in message
    assert "lock file" in message
