"""Logs: JSON objects on standard output, one per line, or readable text on a terminal (security L-3).

`configure` is called once per process. Our code logs through structlog, libraries through logging. A request's access
line is formatted by hand, because every request writes it.
"""

import json
import logging
import os
import re
import select
import time
from functools import lru_cache
from http import HTTPStatus
from json.encoder import encode_basestring_ascii as quoted
from typing import TYPE_CHECKING, Any, Final, get_args

import structlog
from structlog.typing import EventDict, WrappedLogger

from entrypoints import setting_types

if TYPE_CHECKING:
    from collections.abc import Callable

    from entrypoints.http.base.request_record import RequestRecord

STANDARD_OUTPUT: Final = 1
# Lines from several processes on a shared pipe stay intact only up to this length (POSIX, write).
LONGEST_LINE: Final = max(select.PIPE_BUF, 4096)
LONGEST_AGENT: Final = 512
LONGEST_EXCEPTION: Final = 32_000
LONGEST_PATH: Final = 1024
MASK: Final = "[masked]"

_HEAD = ("timestamp", "level", "logger", "event", "request_id")
_DEPTH = 6

# A field is masked if a word in its name ends with an entry here. This is a second line of defense:
# code must not log secrets.
_SECRET_ENDINGS = (
    "password", "passwd", "passphrase", "secret", "token", "code", "key", "authorization", "cookie", "credential", "otp",
)  # fmt: skip
# A field with an entry here as the last word of its name contains a fact about a secret, and is not
# masked.
_FACT_ENDINGS = frozenset({"id", "ids", "type", "use", "count", "ttl", "at"})
# Fields with these names are not masked either.
_NO_SECRETS = frozenset({"error_code", "status_code", "exit_code", "country_code"})
_WORDS = re.compile(r"[^A-Za-z0-9]+|(?<=[a-z0-9])(?=[A-Z])")

# Characters that could start a new line or hide text on a terminal: C0 and C1 controls, line and
# paragraph separators, bidirectional controls. JSON escapes all non-ASCII characters, including
# these.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_UNSAFE_IN_TRACEBACK = re.compile(_UNSAFE.pattern.replace("\x00-\x1f", "\x00-\x08\x0b-\x1f"))

# Below the level warning, these libraries log full URLs, which can contain webhook secrets, and
# headers.
_VERBOSE_LIBRARIES = ("httpx", "httpcore")

_json = json.JSONEncoder(separators=(",", ":"), default=str).encode


def configure(log_format: setting_types.LogFormat, level: setting_types.LogLevel, descriptor: int = STANDARD_OUTPUT) -> None:
    """Configure format and lowest level of the logs. `auto` means text on a terminal, otherwise JSON. Can be called again."""
    global _access
    console = log_format == "console" or (log_format == "auto" and os.isatty(descriptor))
    threshold = logging.getLevelNamesMapping()[level.upper()]
    write = _Writer(descriptor)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.stdlib.add_logger_name,
            structlog.processors.add_log_level,
            _add_timestamp,
            structlog.processors.format_exc_info,  # without local variables, which can contain passwords
            _clean_event,
            *([_escape_event, _console(os.isatty(descriptor))] if console else [_to_json_lines]),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=lambda name="gatehouse": _Logger(write, name),
        cache_logger_on_first_use=False,  # loggers are created at import time, before this configuration
    )
    _access = _log_access if console else _AccessLines(write, threshold)

    root = logging.getLogger()
    for handler in root.handlers[:]:
        if isinstance(handler, _ToStructlog):
            root.removeHandler(handler)
    root.addHandler(_ToStructlog())
    root.setLevel(threshold)
    for name in _VERBOSE_LIBRARIES:
        logging.getLogger(name).setLevel(max(threshold, logging.WARNING))


def access(record: "RequestRecord") -> None:
    """Log a finished request, and its exception if the application did not handle it."""
    _access(record)
    if record.error is not None:
        log = structlog.get_logger("http")
        log.error("application_failed", request_id=record.request_id, exc_info=record.error)


# Access


class _AccessLines:
    """Access lines in JSON, formatted by hand at a sixth of structlog's cost."""

    def __init__(self, write: "_Writer", threshold: int) -> None:
        self._write = write
        self._from_status = 0 if threshold <= logging.INFO else 500

    def __call__(self, record: "RequestRecord") -> None:
        status = record.status
        if status < self._from_status:
            return
        path = quoted(record.path)
        if len(path) > LONGEST_PATH:
            path = quoted(_fit(record.path, LONGEST_PATH))
        rest = ""
        if record.caller is not None:
            rest += f',"caller":{quoted(record.caller)}'
        if record.impersonator is not None:
            rest += f',"impersonator":{quoted(record.impersonator)}'
        if record.organization is not None:
            rest += f',"organization":{quoted(record.organization)}'
        if record.error_code is not None:
            rest += f',"error_code":{quoted(record.error_code)}'
        if record.evaluations is not None:
            rest += f',"evaluations":{json.dumps(record.evaluations)}'
        if record.aborted:
            rest += ',"aborted":true'
        self._write(
            f'{{"timestamp":"{_timestamp()}","level":"{_access_level(status)}","logger":"access","event":"request",'
            f'"request_id":{quoted(record.request_id)},"method":{quoted(record.method)},"path":{path},'
            f'"route":{quoted(record.route)},"status":{status},"duration_ms":{record.duration * 1000:.2f},'
            f'"address":{quoted(record.address)}{rest}}}\n'
        )


def _log_access(record: "RequestRecord") -> None:
    """Log the access line through structlog: for terminals, and before `configure`.

    A success has few fields, so that its line fits a terminal. A failure has all fields, to be looked up.
    """
    log = structlog.get_logger("access")
    is_failure = record.status >= HTTPStatus.BAD_REQUEST or record.aborted
    names = ("address", "request_id", "caller", "impersonator", "organization", "error_code") if is_failure else ("impersonator",)
    log.log(
        logging.ERROR if _is_server_error(record.status) else logging.INFO,
        f"{record.method} {record.path}",
        status=record.status,
        duration_ms=round(record.duration * 1000, 2),
        **{name: value for name in names if (value := getattr(record, name)) is not None},
        **({"aborted": True} if record.aborted else {}),
    )


def _access_level(status: int) -> str:
    return "error" if _is_server_error(status) else "info"


def _is_server_error(status: int) -> bool:
    """Return whether a status means that the server failed. 501 does not: the client requested an unsupported feature."""
    return status >= 500 and status != 501


_access: "Callable[[RequestRecord], None]" = _log_access


# Processors


def _add_timestamp(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    event["timestamp"] = _timestamp()
    return event


def _clean_event(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Mask fields with secret names, and cut long values that clients control."""
    return {name: value if name in _HEAD else _clean_value(name, value, _DEPTH) for name, value in event.items()}


def _clean_value(name: str, value: Any, depth: int) -> Any:
    if _is_secret(name) and not (isinstance(value, int) and name.endswith("s")):  # "one_time_tokens": 3 is a count
        return MASK
    if isinstance(value, str):
        if name == "exception" and len(value) > LONGEST_EXCEPTION:
            half = LONGEST_EXCEPTION // 2
            return f"{value[:half]}\n...\n{value[-half:]}"
        return value[:LONGEST_AGENT] if name in ("agent", "user_agent") else value
    if isinstance(value, dict):
        return {str(key): _clean_value(str(key), item, depth - 1) for key, item in value.items()} if depth else "..."
    if isinstance(value, list | tuple | set | frozenset):
        return [_clean_value("", item, depth - 1) for item in value] if depth else "..."
    return value


@lru_cache(maxsize=1024)
def _is_secret(name: str) -> bool:
    if name in _NO_SECRETS:
        return False
    words = [word.lower() for word in _WORDS.split(name) if word]
    return bool(words) and words[-1] not in _FACT_ENDINGS and any(word.removesuffix("s").endswith(_SECRET_ENDINGS) for word in words)


def _escape_event(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    return {name: _escape_value(value, _UNSAFE_IN_TRACEBACK if name == "exception" else _UNSAFE) for name, value in event.items()}


def _escape_value(value: Any, unsafe: re.Pattern[str] = _UNSAFE) -> Any:
    """Return the value with control characters escaped, such as `\\n`. Values that are not text become JSON, which escapes them too."""
    if isinstance(value, bool | int | float | None):
        return value
    text = value if isinstance(value, str) else _json(value)
    return unsafe.sub(lambda found: found.group().encode("unicode_escape").decode("ascii"), text)


def _console(is_terminal: bool) -> structlog.dev.ConsoleRenderer:
    # If the package rich is installed, structlog's default formatter shows local variables.
    return structlog.dev.ConsoleRenderer(
        colors=is_terminal and "NO_COLOR" not in os.environ, sort_keys=False, exception_formatter=structlog.dev.plain_traceback
    )


def _to_json_lines(logger: WrappedLogger, method: str, event: EventDict) -> str:
    """Return the event as a line of JSON, or as several lines if one line would be too long for a pipe."""
    record = {name: event.pop(name) for name in _HEAD if name in event}
    record.update(event)
    line = _json(record)
    return line if len(line) < LONGEST_LINE else "\n".join(_json(part) for part in _split_record(record))


def _split_record(record: dict[str, Any]) -> list[dict[str, Any]]:
    """Split the longest value over several records. Every record contains all other values, shortened."""
    texts = {name: value if isinstance(value, str) else _json(value) for name, value in record.items()}
    longest = max(texts, key=lambda name: len(texts[name]))
    beside = {name: record[name] if len(text) <= 30 else _fit(text, 200) for name, text in texts.items() if name != longest}
    if len(_json(beside)) > LONGEST_LINE // 2:
        beside = {name: value for name, value in beside.items() if name in _HEAD}
    limit = LONGEST_LINE - len(_json(beside)) - len(quoted(longest)) - len(',"part":"100000/100000":,\n')
    pieces, rest = [], texts[longest]
    while rest:
        pieces.append(_fit(rest, limit))
        rest = rest[len(pieces[-1]) :]
    return [{**beside, "part": f"{number}/{len(pieces)}", longest: piece} for number, piece in enumerate(pieces, 1)]


def _fit(text: str, limit: int) -> str:
    """Return the longest prefix that fits into `limit` characters as a JSON string. A single character can become twelve."""
    piece = text[:limit]
    while (size := len(quoted(piece))) > limit:
        piece = piece[: max(1, len(piece) * limit // size - 1)]
    return piece


# Output

_cached_second: tuple[int, str] = (0, "")


def _timestamp() -> str:
    """Return the current time in RFC 3339's format, in UTC with milliseconds. The second is cached."""
    global _cached_second
    now = time.time()
    whole, text = _cached_second
    if int(now) != whole:
        whole = int(now)
        text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole))
        _cached_second = (whole, text)
    return f"{text}.{int((now - whole) * 1000):03d}Z"


class _Writer:
    """Writes a text with a single system call. Buffers in several processes would mix their lines."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __call__(self, text: str) -> None:
        rest = text.encode("utf-8", "backslashreplace")
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:  # the pipe is non-blocking; wait until it is writable
                select.select([], [self._descriptor], [])
            except OSError:
                return  # the reader is gone or the disk is full: this must not fail a request


class _Logger:
    """The final structlog logger, which writes the rendered text. Processors read `name`."""

    def __init__(self, write: _Writer, name: str) -> None:
        self._write = write
        self.name = name

    def msg(self, text: str) -> None:
        for line in text.split("\n"):
            self._write(line + "\n")

    debug = info = warning = error = critical = msg


class _ToStructlog(logging.Handler):
    """A handler that forwards `logging` records to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            level = next((known for known in _KNOWN_LEVELS if record.levelno >= known), logging.DEBUG)
            structlog.get_logger(record.name).log(level, record.getMessage(), exc_info=record.exc_info)
        except Exception:
            self.handleError(record)


_KNOWN_LEVELS = (
    logging.CRITICAL,
    *sorted((logging.getLevelNamesMapping()[name.upper()] for name in get_args(setting_types.LogLevel)), reverse=True),
)
