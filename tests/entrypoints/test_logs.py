"""Logs: both formats, masked secrets, and complete lines."""

import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from entrypoints import logs
from entrypoints.http.base.request_record import RequestRecord
from tests import ROOT

CONTROLS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202e]")
RFC_3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")

Written = Callable[[], str]


pytestmark = pytest.mark.usefixtures("restored_logging")


@pytest.fixture
def output(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path / "log", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    yield descriptor
    os.close(descriptor)


@pytest.fixture
def written(tmp_path: Path) -> Written:
    """Return all logged lines."""
    return lambda: (tmp_path / "log").read_text(encoding="utf-8")


def records(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def a_request() -> RequestRecord:
    record = RequestRecord("req-7", "POST", "/api/organizations/acme/members", "203.0.113.7")
    record.route, record.status, record.duration = "/api/organizations/<org_slug>/members", 404, 0.01234
    record.caller, record.organization, record.error_code = "person:7", "acme", "NOT_FOUND"
    record.impersonator = "person:9"
    return record


class Unreadable:
    def __str__(self) -> str:
        return "sign \u202e here\x9b"


def test_a_line_is_one_json_object(output: int, written: Written) -> None:
    logs.configure("json", "info", output)
    structlog.get_logger("mailer").warning("mail was refused", attempt=3, recipient=UUID(int=7), kept=None, slow=True)
    (record,) = records(written())
    assert RFC_3339.fullmatch(record.pop("timestamp"))
    assert record == {
        "level": "warning",
        "logger": "mailer",
        "event": "mail was refused",
        "attempt": 3,
        "recipient": str(UUID(int=7)),
        "kept": None,
        "slow": True,
    }


def test_values_bound_to_a_request_are_in_its_lines(output: int, written: Written) -> None:
    logs.configure("json", "info", output)
    with structlog.contextvars.bound_contextvars(request_id="req-7", organization="acme"):
        structlog.get_logger("main").info("inside")
    structlog.get_logger("main").info("outside")
    inside, outside = records(written())
    assert (inside["request_id"], inside["organization"]) == ("req-7", "acme")
    assert "request_id" not in outside


def test_only_lines_at_or_above_the_level_are_logged(output: int, written: Written) -> None:
    logs.configure("json", "warning", output)
    log = structlog.get_logger("main")
    log.debug("no")
    log.info("no")
    log.warning("yes")
    log.error("yes")
    logging.getLogger("quart.app").info("no")
    logging.getLogger("quart.app").error("yes")
    assert [record["event"] for record in records(written())] == ["yes", "yes", "yes"]


def test_loggers_made_before_the_configuration_follow_it(output: int, written: Written) -> None:
    early = structlog.get_logger("early")
    logs.configure("json", "error", output)
    early.info("no")
    logs.configure("json", "info", output)
    early.info("yes")
    assert [record["event"] for record in records(written())] == ["yes"]


def test_lines_of_libraries_that_use_logging_appear_once(output: int, written: Written) -> None:
    logs.configure("json", "info", output)
    logs.configure("json", "info", output)
    logging.getLogger("hypercorn.error").warning("%d of %s", 3, "five")
    logging.getLogger("odd").log(35, "between the levels")
    logging.getLogger("odd").critical("above them all")
    try:
        raise RuntimeError("broken")
    except RuntimeError:
        logging.getLogger("quart.app").exception("failed")
    first, second, third, fourth = records(written())
    assert (first["event"], first["logger"], first["level"]) == ("3 of five", "hypercorn.error", "warning")
    assert (second["level"], third["level"], fourth["level"]) == ("warning", "critical", "error")
    assert "RuntimeError: broken" in fourth["exception"]


def test_the_http_client_does_not_log_urls(output: int, written: Written) -> None:
    logs.configure("json", "debug", output)
    logging.getLogger("httpx").info("HTTP Request: POST https://hooks.example.com/secret-path?token=x")
    logging.getLogger("httpcore.http11").debug("send_request_headers.started headers=...")
    assert written() == ""


@pytest.mark.parametrize(
    "name",
    [
        "password", "new_password", "token", "access_token", "refreshToken", "tokens", "code", "mfa_code", "backup_codes", "key",
        "api_key", "X-Api-Key", "apikey", "encryption_keys", "Authorization", "cookie", "Set-Cookie", "set_cookies", "client_secret",
        "SECRET", "credentials", "totp", "token_hash", "passphrase",
    ],
)  # fmt: skip
def test_fields_named_like_a_secret_are_masked_at_any_depth(name: str, output: int, written: Written) -> None:
    logs.configure("json", "info", output)
    log = structlog.get_logger("main")
    log.info("flat", **{name: "open sesame"})
    log.info("deep", details={"list": [{name: ["open sesame"]}, ({name: {"x": "open sesame"}},)]})
    logs.configure("console", "info", output)
    log.info("text", **{name: "open sesame"})
    assert written().count("[masked]") == 4
    assert "sesame" not in written()


@pytest.mark.parametrize(
    "name",
    ["error_code", "status_code", "key_id", "kid", "token_type", "token_use", "api_key_ids", "code_count", "organization", "reason", "job"],
)
def test_other_fields_are_not_masked(name: str, output: int, written: Written) -> None:
    logs.configure("json", "info", output)
    structlog.get_logger("main").info("fact", **{name: "value"})
    assert records(written())[0][name] == "value"


def test_tracebacks_contain_no_local_variables(output: int, written: Written) -> None:
    def sign_in(password: str) -> None:
        raise RuntimeError(f"no account for a password of length {len(password)}")

    for log_format in ("json", "console"):
        logs.configure(log_format, "info", output)
        try:
            sign_in("open " + "sesame")
        except RuntimeError:
            structlog.get_logger("main").exception("login failed")
    assert written().count("RuntimeError: no account for a password of length 11") == 2
    assert "open sesame" not in written()


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_values_cannot_forge_lines_or_control_a_terminal(log_format: Any, output: int, written: Written) -> None:
    evil = "x\r\n2026-01-01T00:00:00Z [info] forged\x1b[2J\x00\x7f\x9b\u2028\u202e\ud800"
    logs.configure(log_format, "info", output)
    log = structlog.get_logger("main")
    log.info(evil)
    log.info("event", value=evil, nested={"list": [evil], evil: 1}, other=Unreadable())
    exchange = a_request()
    exchange.path = exchange.request_id = evil
    logs.access(exchange)
    lines = written().split("\n")
    assert len(lines) == 3 + 1
    assert not CONTROLS.search(written())

    try:
        raise RuntimeError(evil)
    except RuntimeError:
        log.exception("failed")
    assert not CONTROLS.search(written())


@given(st.text(), st.text(max_size=3000))
def test_any_text_survives_json(event: str, value: str) -> None:
    readable, writable = os.pipe()
    with os.fdopen(readable, "rb") as reader:
        logs.configure("json", "info", writable)
        structlog.get_logger("main").info(event, value=value)
        os.close(writable)
        parts = [json.loads(line) for line in reader.read().splitlines()]
    assert "".join(part["value"] for part in parts) == value
    assert all(part["event"] == event for part in parts)


def test_the_user_agent_is_shortened(output: int, written: Written) -> None:
    logs.configure("json", "info", output)
    structlog.get_logger("main").info("seen", agent="a" * 600, user_agent="b" * 600)
    (record,) = records(written())
    assert (record["agent"], record["user_agent"]) == ("a" * 512, "b" * 512)


def test_a_request_line_has_all_fields(output: int, written: Written) -> None:
    logs.configure("json", "info", output)
    logs.access(a_request())
    aborted = RequestRecord("req-8", "GET", "/health", "2001:db8::1")
    aborted.status, aborted.aborted = 499, True
    logs.access(aborted)
    first, second = records(written())
    assert RFC_3339.fullmatch(first.pop("timestamp"))
    assert first == {
        "level": "info",
        "logger": "access",
        "event": "request",
        "request_id": "req-7",
        "method": "POST",
        "path": "/api/organizations/acme/members",
        "route": "/api/organizations/<org_slug>/members",
        "status": 404,
        "duration_ms": 12.34,
        "address": "203.0.113.7",
        "caller": "person:7",
        "impersonator": "person:9",
        "organization": "acme",
        "error_code": "NOT_FOUND",
    }
    assert second["aborted"] is True
    assert not {"caller", "impersonator", "organization", "error_code"} & set(second)


def test_a_request_line_on_a_terminal_is_text(output: int, written: Written) -> None:
    logs.configure("console", "info", output)
    logs.access(a_request())
    line = written()
    assert line.count("\n") == 1
    for part in ("POST /api/organizations/acme/members", "status=404", "duration_ms=12.34", "request_id=req-7", "error_code=NOT_FOUND"):
        assert part in line
    assert "impersonator=person:9" in line


def test_an_exception_is_logged_with_its_request(output: int, written: Written) -> None:
    exchange = a_request()
    exchange.status = 500
    try:
        raise RuntimeError("broken")
    except RuntimeError as error:
        exchange.error = error
    logs.configure("json", "error", output)
    logs.access(exchange)
    line, failure = records(written())
    assert (line["level"], line["status"]) == ("error", 500)
    assert (failure["level"], failure["request_id"]) == ("error", "req-7")
    assert "RuntimeError: broken" in failure["exception"]


def test_a_response_with_status_501_is_not_logged_as_a_failure(output: int, written: Written) -> None:
    exchange = a_request()
    exchange.status = 501
    logs.configure("json", "info", output)
    logs.access(exchange)
    [line] = records(written())
    assert (line["level"], line["status"]) == ("info", 501)


def test_request_lines_below_the_level_are_not_logged(output: int, written: Written) -> None:
    logs.configure("json", "warning", output)
    logs.access(a_request())
    assert written() == ""


def test_auto_means_json_without_a_terminal(output: int, written: Written) -> None:
    logs.configure("auto", "info", output)
    structlog.get_logger("main").info("started")
    assert records(written())[0]["event"] == "started"


def test_auto_means_text_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    controller, terminal = os.openpty()
    logs.configure("auto", "info", terminal)
    structlog.get_logger("main").info("started", port=8080)
    shown = os.read(controller, 1000).decode()
    os.close(controller)
    os.close(terminal)
    assert re.fullmatch(RFC_3339.pattern + r" \[info +\] started +\[main\] port=8080\r\n", shown)


@pytest.mark.parametrize("value", ["x" * 10_000, "\u00e9" * 10_000, "\U0001f600" * 3000, "\x00" * 5000, '"\\' * 5000])
def test_a_long_value_is_shortened_and_the_line_stays_valid(value: str, output: int, written: Written) -> None:
    logs.configure("json", "info", output)
    structlog.get_logger("main").info("long", request_id="req-7", value=value, number=7, other="y" * 300)
    parts = records(written())
    assert all(len(line) + 1 <= 4096 for line in written().splitlines())
    assert "".join(part["value"] for part in parts) == value
    assert [part["part"] for part in parts] == [f"{number}/{len(parts)}" for number in range(1, len(parts) + 1)]
    assert {(part["event"], part["request_id"], part["number"]) for part in parts} == {("long", "req-7", 7)}
    assert all(150 < len(part["other"]) < 200 for part in parts)


def test_a_line_with_many_long_values_keeps_its_origin(output: int, written: Written) -> None:
    logs.configure("json", "info", output)
    structlog.get_logger("main").info("wide", request_id="req-7", **{f"value{number}": "x" * 5000 for number in range(40)})
    parts = records(written())
    assert all(len(line) + 1 <= 4096 for line in written().splitlines())
    assert {(part["event"], part["request_id"]) for part in parts} == {("wide", "req-7")}
    assert "".join(part["value0"] for part in parts) == "x" * 5000


def test_a_request_line_is_never_long(output: int, written: Written) -> None:
    exchange = a_request()
    exchange.path = "/" + "\U0001f600" * 5000
    logs.configure("json", "info", output)
    logs.access(exchange)
    (line,) = written().splitlines()
    assert len(line) + 1 <= 4096
    assert json.loads(line)["path"].startswith("/\U0001f600\U0001f600")


def test_a_long_traceback_loses_its_middle(output: int, written: Written) -> None:
    logs.configure("json", "info", output)
    try:
        raise RuntimeError("begin" + "x" * 100_000 + "end")
    except RuntimeError:
        structlog.get_logger("main").exception("failed")
    traceback = "".join(part["exception"] for part in records(written()))
    assert len(traceback) < 33_000
    assert traceback.startswith("Traceback")
    assert traceback.endswith("end")


def test_logging_survives_a_closed_reader() -> None:
    readable, writable = os.pipe()
    os.close(readable)
    logs.configure("json", "info", writable)
    structlog.get_logger("main").info("to a closed pipe")
    logs.access(a_request())
    os.close(writable)


WRITER = """
import sys, structlog
from entrypoints import logs
logs.configure("json", "info")
log = structlog.get_logger(sys.argv[1])
for number in range(150):
    log.info("short", number=number)
    log.info("long", number=number, value=f"{number} " * 2000)
"""


@pytest.mark.slow
def test_lines_of_several_processes_stay_intact_on_one_pipe() -> None:
    readable, writable = os.pipe()
    names = ("one", "two", "three")
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, name], cwd=ROOT, stdout=writable) for name in names]
    os.close(writable)
    with os.fdopen(readable, "rb") as reader:
        written = [json.loads(line) for line in reader]
    assert [writer.wait(timeout=60) for writer in writers] == [0, 0, 0]
    for name in names:
        own = [record for record in written if record["logger"] == name]
        assert [record["number"] for record in own if record["event"] == "short"] == list(range(150))
        text = "".join(record["value"] for record in own if record["event"] == "long")
        assert text == "".join(f"{number} " * 2000 for number in range(150))


def test_a_successful_request_on_a_terminal_is_a_short_line(output: int, written: Written) -> None:
    logs.configure("console", "info", output)
    exchange = a_request()
    exchange.status, exchange.error_code, exchange.impersonator = 200, None, None
    logs.access(exchange)
    line = written()
    assert ("status=200" in line, "request_id" in line, "caller" in line, len(line) < 140) == (True, False, False, True)
