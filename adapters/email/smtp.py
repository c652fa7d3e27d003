"""Mail leaves the house: by SMTP from worker threads, or, where no server is set, as files in a folder; that of an organization with a
server of its own through that one."""

import os
import re
import smtplib
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC
from email import policy
from email.errors import HeaderParseError
from email.headerregistry import Address
from email.message import EmailMessage as MimeMessage
from email.parser import HeaderParser
from enum import StrEnum
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any, Final, Self
from urllib.parse import parse_qsl, unquote, urlsplit

import trio

from adapters.http.guard import Guard, TargetRefused
from core.kernel.values import is_printable
from core.tenancy.mail_server_rules import IMPLICIT_TLS, MailServer, MailServerCheck
from ports.outside import EmailMessage, MailRefused

if TYPE_CHECKING:
    from uuid import UUID

# `send` ends within 60 s whatever happens (ports.outside.MailTransport); the lease on a mail is built on that.
EXCHANGE_DEADLINE: Final = 50.0
CONNECT_TIMEOUT: Final = 10.0  # for each of the server's addresses
ANSWER_TIMEOUT: Final = 45.0  # for one answer: some servers look for spam before they accept
# The letter is the server's by then, and a server that is slow to say good-bye must not turn that into a failure.
GOODBYE_TIMEOUT: Final = 2.0
# Whoever tries a server out waits for it.
TRIAL_DEADLINE: Final = 10.0
TRIALS: Final = 16  # at once
MAX_CONVERSATION_SIZE: Final = 64 * 1024  # bytes that a server may say in one conversation; it may be anybody's
LONGEST_LINE: Final = 998  # RFC 5322 section 2.1.1
QUOTED: Final = 120  # characters of a server's answer that are worth keeping

_POLICY: Final = policy.SMTP.clone(cte_type="7bit")  # a server need not announce 8BITMIME


# -- how to reach the server -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SmtpServer:
    """What `SSO_SMTP_URL` says. `tls` from the first byte, or `starttls`, without which nothing is then sent."""

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
        """Read `smtp://user:password@host:port`, `smtps://...` or `smtp://...?starttls=1`.

        Raises ValueError, whose text is a clause to follow the setting's name, and never repeats the URL, since that holds a password.
        """
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:  # its own text quotes what it could not read
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


def parse_sender(text: str) -> Address:
    """Read `SSO_MAIL_FROM`, such as `Gatehouse <gatehouse@example.com>`. Raises ValueError as SmtpServer.parse does."""
    if not is_printable(text):
        raise ValueError("must not hold control characters")
    try:
        parsed: Any = HeaderParser(policy=_POLICY).parsestr(f"From: {text}\n\n")["from"]
        addresses: tuple[Address, ...] = parsed.addresses
        defects = parsed.defects
    except (HeaderParseError, IndexError, ValueError):
        addresses, defects = (), ()
    if len(addresses) != 1 or defects or not addresses[0].domain or not addresses[0].addr_spec.isascii():
        raise ValueError("must be one address, such as Gatehouse <gatehouse@example.com>")
    return addresses[0]


# -- the message -------------------------------------------------------------------------------------------------------


def to_mime(letter: EmailMessage, sender: Address) -> MimeMessage:
    """The letter as a message of RFC 5322 with a text and an HTML part. Raises MailRefused for control characters (security.md E-4)."""
    if not all(is_printable(header) for header in (letter.message_id, letter.to, letter.subject)):
        raise MailRefused("a header of the letter holds a control character")
    if "\0" in letter.text or "\0" in letter.html:
        raise MailRefused("the letter holds a NUL")
    message = MimeMessage(policy=_POLICY)
    try:
        message["From"] = sender
        message["To"] = Address(addr_spec=letter.to)
        # The library decodes what looks like an encoded word (RFC 2047) when a header is set, and some versions of it then write the line
        # breaks that were in there: a name such as "=?utf-8?q?x=0D=0ABcc:...?=" would add headers (E-4).
        message["Subject"] = letter.subject.replace("=?", "= ?")
        message["Date"] = letter.date.astimezone(UTC)
        message["Message-ID"] = letter.message_id
        # RFC 3834 section 5: nobody's holiday notice should answer this.
        message["Auto-Submitted"] = "auto-generated"
        message.set_content(letter.text, cte=_encoding(letter.text))
        message.add_alternative(letter.html, subtype="html", cte=_encoding(letter.html))
    except (ValueError, HeaderParseError) as error:
        raise MailRefused(f"the letter cannot be written as a message: {type(error).__name__}") from None
    return message


def _encoding(body: str) -> str:
    # The library would encode every line over 78 characters; a link in a file of the outbox should stay as it is for who copies it.
    plain = body.isascii() and all(len(line) <= LONGEST_LINE for line in body.splitlines())
    return "7bit" if plain else "quoted-printable"


# -- by SMTP -----------------------------------------------------------------------------------------------------------


class SmtpTransport:
    """The platform's server, with a connection for each letter."""

    def __init__(
        self,
        url: str,
        mail_from: str,
        *,
        connections: int = 10,
        exchange_deadline: float = EXCHANGE_DEADLINE,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """At most `connections` at once; `tls` replaces the system's certificate authorities. Raises ValueError as the parsers above do."""
        self._server = SmtpServer.parse(url)
        self._sender = parse_sender(mail_from)
        self._tls = tls
        self._exchange_deadline = exchange_deadline
        # Threads of its own: a slow mail server takes none from anybody else (security.md P-7).
        self._threads = trio.CapacityLimiter(connections)

    async def send(self, letter: EmailMessage) -> None:
        """As ports.outside.MailTransport."""
        message = to_mime(letter, self._sender)
        await self._converse(lambda client: client.deliver(message, letter.to), letter.to)

    async def check(self) -> None:
        """Connect and sign in, but send nothing. Raises MailRefused."""
        await self._converse(_Client.visit, "")

    async def _converse(self, talk: "Talk", recipient: str) -> None:
        client = _Client(self._server, self._tls, [self._server.host])
        try:
            with trio.fail_after(self._exchange_deadline):
                await _hold(client, talk, self._threads)
        except trio.TooSlowError:
            raise MailRefused(f"{self._server}: not finished within {self._exchange_deadline:g} s") from None
        except (OSError, ValueError) as error:  # smtplib's own errors are OSErrors
            # Without its cause, which may show what was sent.
            raise MailRefused(f"{self._server}: {_reason(error, recipient)}") from None


class OrganizationSmtp:
    """The servers of organizations. They may be anybody's: they are reached through the guard, and what they say is repeated to nobody."""

    def __init__(
        self,
        guard: Guard,
        *,
        connections: int = 10,
        exchange_deadline: float = EXCHANGE_DEADLINE,
        trial_deadline: float = TRIAL_DEADLINE,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._guard = guard
        self._tls = tls
        self._exchange_deadline = exchange_deadline
        self._trial_deadline = trial_deadline
        self._threads = trio.CapacityLimiter(connections)
        self._trial_threads = trio.CapacityLimiter(TRIALS)  # no trial takes the thread of a letter
        self._being_tried: set[UUID] = set()

    async def send(self, letter: EmailMessage, server: MailServer) -> None:
        """As ports.outside.MailTransport."""
        message = to_mime(letter, Address(display_name=server.from_name or "", addr_spec=server.from_email))
        try:
            with trio.fail_after(self._exchange_deadline):
                await self._converse(server, lambda client: client.deliver(message, letter.to), self._threads)
        except (TargetRefused, _Failed) as failure:
            raise MailRefused(f"the organization's server: {failure}") from None
        except trio.TooSlowError:
            raise MailRefused(f"the organization's server: not finished within {self._exchange_deadline:g} s") from None

    async def try_out(self, server: MailServer) -> MailServerCheck:
        """As ports.outside.MailTransport."""
        # One at a time, or a single organization could keep all others from trying theirs.
        if server.org_id in self._being_tried:
            return MailServerCheck.BUSY
        self._being_tried.add(server.org_id)
        try:
            with trio.fail_after(self._trial_deadline):
                await self._converse(server, _Client.visit, self._trial_threads)
        except TargetRefused:
            # Whether there is such a name is not told: it may be one that only we can see.
            return MailServerCheck.NO_ADDRESS
        except _Failed as failure:
            return _TRIALS[failure.stage]
        except trio.TooSlowError:
            return MailServerCheck.NOT_REACHED
        finally:
            self._being_tried.remove(server.org_id)
        return MailServerCheck.GOOD

    async def _converse(self, server: MailServer, talk: "Talk", threads: trio.CapacityLimiter) -> None:
        """Raises TargetRefused, _Failed."""
        addresses = await self._guard.addresses(server.host, server.port)
        client = _Client(_to_server(server), self._tls, addresses)
        try:
            await _hold(client, talk, threads)
        except (OSError, ValueError) as error:
            raise _Failed(client.stage, error) from None


def _to_server(server: MailServer) -> SmtpServer:
    return SmtpServer(
        host=server.host,
        port=server.port,
        tls=server.tls and server.port == IMPLICIT_TLS,
        starttls=server.tls and server.port != IMPLICIT_TLS,
        username=server.username,
        password=server.password,
    )


class MailRouter:
    """ports.outside.MailTransport: each letter the way that it is to go."""

    def __init__(self, platform: "SmtpTransport | FolderTransport", own_servers: OrganizationSmtp) -> None:
        self._platform = platform
        self._own_servers = own_servers

    async def send(self, letter: EmailMessage, server: MailServer | None = None) -> None:
        await (self._platform.send(letter) if server is None else self._own_servers.send(letter, server))

    async def try_out(self, server: MailServer) -> MailServerCheck:
        return await self._own_servers.try_out(server)


class _Stage(StrEnum):
    """How far a conversation has come; what it is called when it comes no further."""

    CONNECTING = "it was not reached"
    ENCRYPTING = "the connection could not be encrypted"
    SIGNING_IN = "it did not take the user name and the password"
    SENDING = "it did not take the letter"


_TRIALS: Final = MappingProxyType(
    {
        _Stage.CONNECTING: MailServerCheck.NOT_REACHED,
        _Stage.ENCRYPTING: MailServerCheck.NOT_ENCRYPTED,
        _Stage.SIGNING_IN: MailServerCheck.NOT_SIGNED_IN,
    }
)


class _Failed(Exception):
    """A conversation with the server of an organization came no further than that."""

    def __init__(self, stage: _Stage, error: Exception) -> None:
        code = _code(error)
        super().__init__(stage.value if code is None else f"{stage.value}: {code}")
        self.stage = stage


def _code(error: Exception) -> int | None:
    """The number that the server answered with, if it did."""
    code = -1  # what the library makes of an answer that begins with none
    match error:
        case smtplib.SMTPRecipientsRefused():
            code = next(iter(error.recipients.values()))[0]
        case smtplib.SMTPResponseException():
            code = error.smtp_code
    return code if 200 <= code <= 599 else None


async def _hold(client: "_Client", talk: "Talk", threads: trio.CapacityLimiter) -> None:
    """The conversation, in a thread."""
    try:
        await trio.to_thread.run_sync(talk, client, abandon_on_cancel=True, limiter=threads)
    finally:
        client.abort()


@cache
def authorities() -> ssl.SSLContext:
    """What the system believes of certificates: megabytes, read when they are needed first."""
    return ssl.create_default_context()


class _Client(smtplib.SMTP):
    """One conversation with the server. It is held in a worker thread, and `abort` ends it from another one."""

    def __init__(self, server: SmtpServer, tls: ssl.SSLContext | None, addresses: Sequence[str]) -> None:
        """`tls` replaces the system's certificate authorities. `addresses` are where to connect, in turn; certificates are compared with
        the server's host all the same."""
        own_name = socket.gethostname()
        # Without a name of its own the library asks the DNS for one, which can take longer than all the rest.
        super().__init__(local_hostname=own_name if "." in own_name else "[127.0.0.1]", timeout=CONNECT_TIMEOUT)
        self._host = server.host  # what STARTTLS compares the certificate with; the library sets it only when it connects at once
        self._server = server
        self._tls = tls
        self._addresses = addresses
        self._aborted = False
        self.stage = _Stage.CONNECTING

    def deliver(self, message: MimeMessage, recipient: str) -> None:
        try:
            self._be_let_in()
            self.stage = _Stage.SENDING
            self.send_message(message, to_addrs=[recipient])
            self._say_goodbye()
        finally:
            self.close()

    def visit(self) -> None:
        """Go as far as one can without sending anything."""
        try:
            self._be_let_in()
            self._say_goodbye()
        finally:
            self.close()

    def _be_let_in(self) -> None:
        code, greeting = self.connect(self._server.host, self._server.port)
        if code != 220:
            raise smtplib.SMTPConnectError(code, greeting)
        self.ehlo_or_helo_if_needed()
        if self._server.starttls:
            self.stage = _Stage.ENCRYPTING
            self.starttls(context=self._tls or authorities())
            self.ehlo_or_helo_if_needed()
        if self._server.username is not None and self._server.password is not None:
            self.stage = _Stage.SIGNING_IN
            self.login(self._server.username, self._server.password)

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        self.sock = self._connected(port, timeout)
        self.sock.settimeout(ANSWER_TIMEOUT)
        if self._aborted:
            raise TimeoutError
        if self._server.tls:
            self.stage = _Stage.ENCRYPTING
            self.sock = (self._tls or authorities()).wrap_socket(self.sock, server_hostname=host, do_handshake_on_connect=False)
            self.sock.do_handshake()
            self.stage = _Stage.CONNECTING  # still: a mail server has something to say first
        return self.sock

    def _connected(self, port: int, timeout: float) -> socket.socket:
        failure: OSError = TimeoutError()
        for address in self._addresses:
            if self._aborted:
                break
            try:
                return socket.create_connection((address, port), timeout)
            except OSError as error:
                failure = error
        raise failure

    def getreply(self) -> tuple[int, bytes]:
        if self.file is None and self.sock is not None:
            self.file = _Answers(self.sock.makefile("rb"))
        return super().getreply()

    def _say_goodbye(self) -> None:
        try:
            if self.sock is not None:
                self.sock.settimeout(GOODBYE_TIMEOUT)
                self.docmd("QUIT")
        except OSError:
            pass

    def abort(self) -> None:
        """Wake the worker thread if it still waits for the server; it then ends."""
        self._aborted = True
        sock = self.sock  # read once: the other thread may close it at any moment
        if sock is not None:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)


# What is done in a thread with a client.
Talk = Callable[[_Client], None]


class _Answers:
    """What a server says, as long as it is not more than any server would: the library reads an answer to its end, however long it is."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._left = MAX_CONVERSATION_SIZE

    def readline(self, limit: int) -> bytes:
        line = self._file.readline(limit)
        self._left -= len(line)
        if self._left < 0:
            raise OSError("it said too much")
        return line

    def close(self) -> None:
        self._file.close()


def _reason(error: Exception, recipient: str) -> str:
    """Why it failed, for the operator: without secrets, and without the recipient, whom logs are not to name."""
    match error:
        case smtplib.SMTPRecipientsRefused():
            code, text = next(iter(error.recipients.values()))
            return f"refused the recipient: {_quoted(code, text, recipient)}"
        case smtplib.SMTPAuthenticationError():
            return f"refused the user name or password: {error.smtp_code}"  # servers echo commands, and this one held the password
        case smtplib.SMTPResponseException():
            return f"refused: {_quoted(error.smtp_code, error.smtp_error, recipient)}"
        case smtplib.SMTPException():
            return str(error)  # a constant of the library, such as that STARTTLS is not offered
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


def _quoted(code: int, text: bytes | str, recipient: str) -> str:
    told = text.decode("ascii", "replace") if isinstance(text, bytes) else text
    told = "".join(character if character.isprintable() else " " for character in told)
    if recipient:
        told = re.sub(re.escape(recipient), "(the recipient)", told, flags=re.IGNORECASE)
    return f"{code} {told[:QUOTED]}".strip()


# -- into a folder -----------------------------------------------------------------------------------------------------


class FolderTransport:
    """Files, for a house without a mail server: operators read them (decisions, point 30).

    The names sort by time. A letter that is sent again overwrites itself.
    """

    def __init__(self, directory: Path, mail_from: str) -> None:
        """Makes the directory. Raises ValueError as parse_sender does."""
        self._directory = directory
        self._sender = parse_sender(mail_from)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    async def send(self, letter: EmailMessage) -> None:
        """As ports.outside.MailTransport."""
        message = to_mime(letter, self._sender)
        identity = re.sub(r"[^A-Za-z0-9.-]", "_", letter.message_id.strip("<>").partition("@")[0])
        name = f"{letter.date.astimezone(UTC):%Y%m%dT%H%M%S.%fZ}-{identity}.eml"
        try:
            await trio.to_thread.run_sync(self._write, name, message.as_bytes())
        except OSError as error:
            raise MailRefused(f"{self._directory}: {error.strerror or type(error).__name__}") from None

    def _write(self, name: str, content: bytes) -> None:
        # Whole or not at all, and on the disk before the mail is recorded as sent. Letters hold one-time links, hence the mode.
        unfinished = self._directory / f".{name}.new"
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(self._directory / name)
        directory = os.open(self._directory, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
