"""SMTP client: the operator's server URL, a server session in a worker thread, and error messages."""

import re
import smtplib
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.message import EmailMessage as MimeMessage
from enum import StrEnum
from functools import cache
from typing import IO, Final, Self
from urllib.parse import parse_qsl, unquote, urlsplit

import trio

from core.kernel.values import is_printable

CONNECT_TIMEOUT: Final = 10.0  # for every address that the server has
REPLY_TIMEOUT: Final = 45.0  # for a reply: some servers check for spam before they accept an email
QUIT_TIMEOUT: Final = 2.0  # the server has accepted the email by then, so a slow reply to QUIT must not fail the delivery
MAX_SESSION_SIZE: Final = 64 * 1024  # bytes in all replies; a tenant can enter any server
MAX_QUOTE_LENGTH: Final = 120  # characters quoted from a reply in an error message


@dataclass(frozen=True, slots=True)
class SmtpServer:
    """An SMTP server and the account on it.

    With `tls`, the connection is encrypted from the first byte. With `starttls`, nothing is sent unless STARTTLS succeeds.
    """

    host: str
    port: int
    tls: bool
    starttls: bool
    username: str | None
    password: str | None = field(repr=False)

    def __str__(self) -> str:
        return f"{self.host} port {self.port}"

    @classmethod
    def parse(cls, url: str) -> Self:
        """Parse `smtp://user:password@host:port`, `smtps://...` or `smtp://...?starttls=1`.

        Raises: ValueError. The error's text is a clause that continues the setting's name. The text never contains the
        URL, which has a password in it.
        """
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:  # its text quotes a part of the URL
            raise ValueError("has a host or port that cannot be read; in a password, / ? # [ ] and @ must be percent-encoded") from None
        if parts.scheme not in ("smtp", "smtps"):
            raise ValueError("must begin with smtp:// or smtps://")
        if not host or not _is_host(host):
            raise ValueError("must name a host, as in smtp://mail.example.com:587")
        if parts.path not in ("", "/") or parts.fragment:
            raise ValueError("must end after the port or ?starttls=1; in a password, / ? # [ ] and @ must be percent-encoded")
        if port == 0:
            raise ValueError("has the port 0")
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        if not options.keys() <= {"starttls"} or options.get("starttls", "0") not in ("0", "1"):
            raise ValueError("knows one option, starttls, which is 1 or 0")
        starttls = options.get("starttls") == "1"
        tls = parts.scheme == "smtps"
        if tls and starttls:
            raise ValueError("cannot have both smtps:// and starttls=1: the first is encrypted from the start")
        if bool(parts.username) != bool(parts.password):
            raise ValueError("must have both a user name and a password, or neither")
        username, password = (unquote(part) if part else None for part in (parts.username, parts.password))
        if not all(part is None or (part.isascii() and is_printable(part)) for part in (username, password)):
            raise ValueError("must have a user name and a password of printable ASCII characters")
        return cls(
            host=host,
            port=port or (465 if tls else 587 if starttls else 25),
            tls=tls,
            starttls=starttls,
            username=username,
            password=password,
        )


def _is_host(host: str) -> bool:
    try:
        return is_printable(host) and " " not in host and bool(host.encode("idna"))
    except UnicodeError:
        return False


class SmtpStage(StrEnum):
    """A session's stage. The value describes a failure in this stage."""

    CONNECTING = "it was not reached"
    GREETING = "it did not accept the connection"
    ENCRYPTING = "the connection could not be encrypted"
    AUTHENTICATING = "it did not accept the user name and the password"
    SENDING = "it did not accept the email"


class SmtpFailed(Exception):
    """A session with an organization's server failed. The text has the stage and the reply code, but quotes nothing from the server.

    `refusal` quotes the reply that refused a command, for the admin who tests the server. It is None without such a reply.
    Servers echo commands, so it has only the code if the command had the password.
    """

    def __init__(self, stage: SmtpStage, error: Exception) -> None:
        code, reply = _reply(error)
        super().__init__(f"{stage.value}: {code}" if 200 <= code <= 599 else stage.value)
        self.stage = stage
        quoted = b"" if stage is SmtpStage.AUTHENTICATING else reply
        # Before the greeting, the code is the library's own.
        is_refusal = 400 <= code <= 599 and stage is not SmtpStage.CONNECTING
        self.refusal = _quote(code, quoted, "") if is_refusal else None


def _reply(error: Exception) -> tuple[int, bytes | str]:
    """Return the code and the text of the server's reply. The code is -1 if the error has none."""
    match error:
        case smtplib.SMTPRecipientsRefused():
            return next(iter(error.recipients.values()))
        case smtplib.SMTPResponseException():
            return error.smtp_code, error.smtp_error
    return -1, b""


@cache
def system_authorities() -> ssl.SSLContext:
    """Return a context with the system's certificate authorities.

    Certificate authorities need megabytes, so they are loaded on first use.
    """
    return ssl.create_default_context()


class SmtpClient(smtplib.SMTP):
    """A session with an SMTP server. A session runs in a worker thread, and another thread can end it with `abort`."""

    def __init__(self, server: SmtpServer, tls: ssl.SSLContext | None, addresses: Sequence[str], own_name: str) -> None:
        """`tls` replaces the system's certificate authorities.

        The client tries `addresses` in order. Certificates are compared with the host in `server`, not with the address.
        `own_name` is the host name in EHLO.
        """
        super().__init__(local_hostname=own_name, timeout=CONNECT_TIMEOUT)
        # STARTTLS compares the certificate with this name. The library sets this name only if the
        # constructor connects.
        self._host = server.host
        self._server = server
        self._tls = tls
        self._addresses = addresses
        self._aborted = False
        self._refusal: tuple[int, bytes] | None = None  # the last reply, if it refused a command
        self.stage = SmtpStage.CONNECTING

    def deliver(self, message: MimeMessage, recipient: str) -> None:
        """Connect, authenticate and send a message."""
        with self._session():
            self.stage = SmtpStage.SENDING
            self.send_message(message, to_addrs=[recipient])
            self._quit()

    def authenticate_only(self) -> None:
        """Connect and authenticate, but send nothing."""
        with self._session():
            self._quit()

    def abort(self) -> None:
        """End a session that still waits for the server. The session's worker thread then ends too."""
        self._aborted = True
        sock = self.sock  # read once, because the worker thread can close it at any time
        if sock is not None:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def getreply(self) -> tuple[int, bytes]:
        if self.file is None and self.sock is not None:
            self.file = _LimitedReplies(self.sock.makefile("rb"))
        code, text = super().getreply()
        self._refusal = (code, text) if code >= 400 else None
        return code, text

    @contextmanager
    def _session(self) -> Iterator[None]:
        """Connect and authenticate, and close the connection at the end."""
        try:
            self._begin()
            yield
        except smtplib.SMTPServerDisconnected:
            # After a refusal such as 421, servers close the connection, and the library fails at its
            # next command. The refusal is the reason.
            if self._refusal is None:
                raise
            kind = smtplib.SMTPAuthenticationError if self.stage is SmtpStage.AUTHENTICATING else smtplib.SMTPResponseException
            raise kind(*self._refusal) from None
        finally:
            self.close()

    def _begin(self) -> None:
        code, greeting = self.connect(self._server.host, self._server.port)
        if 200 <= code <= 599:
            self.stage = SmtpStage.GREETING
        if code != 220:
            raise smtplib.SMTPConnectError(code, greeting)
        self.ehlo_or_helo_if_needed()
        if self._server.starttls:
            self.stage = SmtpStage.ENCRYPTING
            self.starttls(context=self._tls or system_authorities())
            self.stage = SmtpStage.GREETING
            self.ehlo_or_helo_if_needed()
        if self._server.username is not None and self._server.password is not None:
            self.stage = SmtpStage.AUTHENTICATING
            self.login(self._server.username, self._server.password)

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        self.sock = self._connect_to_address(port, timeout)
        self.sock.settimeout(REPLY_TIMEOUT)
        if self._aborted:
            raise TimeoutError
        if self._server.tls:
            self.stage = SmtpStage.ENCRYPTING
            self.sock = (self._tls or system_authorities()).wrap_socket(self.sock, server_hostname=host, do_handshake_on_connect=False)
            self.sock.do_handshake()
            self.stage = SmtpStage.CONNECTING  # until the server's greeting arrives
        return self.sock

    def _connect_to_address(self, port: int, timeout: float) -> socket.socket:
        failure: OSError = TimeoutError()
        for address in self._addresses:
            if self._aborted:
                break
            try:
                return socket.create_connection((address, port), timeout)
            except OSError as error:
                failure = error
        raise failure

    def _quit(self) -> None:
        try:
            if self.sock is not None:
                self.sock.settimeout(QUIT_TIMEOUT)
                self.docmd("QUIT")
        except OSError:
            pass


# A session's work, which blocks its thread.
SmtpSession = Callable[[SmtpClient], None]


async def run_session(client: SmtpClient, session: SmtpSession, threads: trio.CapacityLimiter) -> None:
    """Run a session in a thread. Cancellation ends it."""
    try:
        await trio.to_thread.run_sync(session, client, abandon_on_cancel=True, limiter=threads)
    finally:
        client.abort()


class _LimitedReplies:
    """A server's replies, up to a total size. The library reads a reply to its end, no matter how long it is."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._remaining = MAX_SESSION_SIZE

    def readline(self, limit: int) -> bytes:
        line = self._file.readline(limit)
        self._remaining -= len(line)
        if self._remaining < 0:
            raise OSError("its replies are too long")
        return line

    def close(self) -> None:
        self._file.close()


def describe_smtp_error(error: Exception, recipient: str) -> str:
    """Return why a session failed, for the operator, without secrets. Logs must not contain recipients, so none is named."""
    match error:
        case smtplib.SMTPRecipientsRefused():
            code, text = next(iter(error.recipients.values()))
            return f"refused the recipient: {_quote(code, text, recipient)}"
        case smtplib.SMTPAuthenticationError():
            return f"refused the user name or password: {error.smtp_code}"  # servers echo commands, and this command had the password
        case smtplib.SMTPResponseException():
            return f"refused: {_quote(error.smtp_code, error.smtp_error, recipient)}"
        case smtplib.SMTPException():
            return str(error)  # a library constant, for example if STARTTLS is not offered
        case ssl.SSLCertVerificationError():
            return f"the certificate is not accepted: {error.verify_message}"
        case ssl.SSLError():
            return f"TLS failed: {error.reason}"
        case TimeoutError():
            return "no answer in time"
        case socket.gaierror():
            return f"the name was not resolved: {error.strerror}"
        case OSError():
            return error.strerror or type(error).__name__
    return type(error).__name__


def _quote(code: int, reply: bytes | str, recipient: str) -> str:
    text = reply.decode("ascii", "replace") if isinstance(reply, bytes) else reply
    text = "".join(character if character.isprintable() else " " for character in text)
    if recipient:
        text = re.sub(re.escape(recipient), "(the recipient)", text, flags=re.IGNORECASE)
    return f"{code} {text[:MAX_QUOTE_LENGTH]}".strip()
