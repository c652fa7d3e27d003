"""Delivering emails: to the platform's SMTP server, to an organization's SMTP server, or into a folder."""

import os
import re
import ssl
from datetime import UTC
from email.headerregistry import Address
from email.message import EmailMessage as MimeMessage
from pathlib import Path
from types import MappingProxyType
from typing import Final
from uuid import UUID

import trio

from adapters.email import smtp
from adapters.email.mime import parse_sender, to_mime
from adapters.email.smtp import describe_smtp_error
from adapters.http.guard import Guard, TargetRefused
from core.tenancy.model import settings
from ports import outside

# `send` must return within 60 s (ports.outside.MailTransport), because the lease on a queued email
# depends on it.
SESSION_DEADLINE: Final = 50.0
CHECK_DEADLINE: Final = 10.0  # an admin waits for the result
MAX_CHECKS: Final = 100  # concurrent checks; an organization has at most one check

_CHECK_RESULTS: Final = MappingProxyType(
    {
        smtp.SmtpStage.CONNECTING: settings.MailServerCheck.NOT_REACHED,
        smtp.SmtpStage.GREETING: settings.MailServerCheck.REFUSED,
        smtp.SmtpStage.ENCRYPTING: settings.MailServerCheck.NOT_ENCRYPTED,
        smtp.SmtpStage.AUTHENTICATING: settings.MailServerCheck.NOT_SIGNED_IN,
        smtp.SmtpStage.SENDING: settings.MailServerCheck.NOT_ACCEPTED,
    }
)


class SmtpTransport:
    """The platform's SMTP server. Every email has its own connection."""

    def __init__(
        self,
        url: str,
        mail_from: str,
        *,
        own_name: str | None = None,
        connections: int = 10,
        session_deadline: float = SESSION_DEADLINE,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`connections` limits concurrent connections. `tls` replaces the system's certificate authorities.

        `own_name` is the host name in EHLO, by default the domain in `mail_from`.

        Raises: the errors of `SmtpServer.parse` and `parse_sender`.
        """
        self._server = smtp.SmtpServer.parse(url)
        self._sender = parse_sender(mail_from)
        self._own_name = own_name or self._sender.domain
        self._tls = tls
        self._session_deadline = session_deadline
        # A separate thread pool: a slow mail server must not block unrelated work (security P-7).
        self._threads = trio.CapacityLimiter(connections)

    async def send(self, message: outside.EmailMessage) -> None:
        """Send an email. Raises: MailRefused."""
        mime = to_mime(message, self._sender)
        await self._run(lambda client: client.deliver(mime, message.to), message.to)

    async def check(self) -> None:
        """Connect and authenticate, but send nothing. Raises: MailRefused."""
        await self._run(smtp.SmtpClient.authenticate_only, "")

    async def _run(self, session: smtp.SmtpSession, recipient: str) -> None:
        client = smtp.SmtpClient(self._server, self._tls, [self._server.host], self._own_name)
        try:
            with trio.fail_after(self._session_deadline):
                await smtp.run_session(client, session, self._threads)
        except trio.TooSlowError:
            raise outside.MailRefused(f"{self._server}: not finished within {self._session_deadline:g} s") from None
        except (OSError, ValueError) as error:  # smtplib's errors are OSErrors
            # The cause is dropped, because it can contain the sent data.
            raise outside.MailRefused(f"{self._server}: {describe_smtp_error(error, recipient)}") from None


class OrganizationSmtp:
    """The organizations' SMTP servers.

    A tenant can enter any host. So the guard checks the addresses, and only the result of a test quotes what a server sent.
    """

    def __init__(
        self,
        guard: Guard,
        *,
        own_name: str | None = None,
        connections: int = 32,
        session_deadline: float = SESSION_DEADLINE,
        check_deadline: float = CHECK_DEADLINE,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`own_name` is the host name in EHLO, by default the domain of the sender."""
        self._guard = guard
        self._own_name = own_name
        self._tls = tls
        self._session_deadline = session_deadline
        self._check_deadline = check_deadline
        self._threads = trio.CapacityLimiter(connections)
        self._check_threads = trio.CapacityLimiter(MAX_CHECKS)  # checks must not use up the threads for emails
        self._checked_orgs: set[UUID] = set()

    async def send(self, message: outside.EmailMessage, server: settings.MailServer) -> None:
        """Send an email. Raises: MailRefused."""
        mime = _to_mime(message, server)
        try:
            with trio.fail_after(self._session_deadline):
                await self._run(server, lambda client: client.deliver(mime, message.to), self._threads)
        except (TargetRefused, smtp.SmtpFailed) as failure:
            raise outside.MailRefused(f"the organization's server: {failure}") from None
        except trio.TooSlowError:
            raise outside.MailRefused(f"the organization's server: not finished within {self._session_deadline:g} s") from None

    async def check_server(self, server: settings.MailServer, message: outside.EmailMessage) -> settings.MailServerTest:
        """Send an email to test the server. Return the result."""
        mime = _to_mime(message, server)
        # An organization has one check at a time: otherwise it could use all threads for checks.
        if server.org_id in self._checked_orgs:
            return settings.MailServerTest(settings.MailServerCheck.BUSY)
        self._checked_orgs.add(server.org_id)
        try:
            with trio.fail_after(self._check_deadline):
                await self._run(server, lambda client: client.deliver(mime, message.to), self._check_threads)
        except TargetRefused:
            # The same answer for all reasons: tenants must not learn whether a name exists in our
            # network.
            return settings.MailServerTest(settings.MailServerCheck.NO_ADDRESS)
        except smtp.SmtpFailed as failure:
            return settings.MailServerTest(_CHECK_RESULTS[failure.stage], failure.refusal)
        except trio.TooSlowError:
            return settings.MailServerTest(settings.MailServerCheck.NOT_REACHED)
        finally:
            self._checked_orgs.remove(server.org_id)
        return settings.MailServerTest(settings.MailServerCheck.GOOD)

    async def _run(self, server: settings.MailServer, session: smtp.SmtpSession, threads: trio.CapacityLimiter) -> None:
        """Run a session at the server's checked addresses. Raises: TargetRefused, SmtpFailed."""
        addresses = await self._guard.addresses(server.host, server.port)
        is_implicit = server.port == settings.IMPLICIT_TLS
        smtp_server = smtp.SmtpServer(
            host=server.host,
            port=server.port,
            tls=server.tls and is_implicit,
            starttls=server.tls and not is_implicit,
            username=server.username,
            password=server.password,
        )
        client = smtp.SmtpClient(smtp_server, self._tls, addresses, self._own_name or server.from_email.domain)
        try:
            await smtp.run_session(client, session, threads)
        except (OSError, ValueError) as error:
            raise smtp.SmtpFailed(client.stage, error) from None


def _to_mime(message: outside.EmailMessage, server: settings.MailServer) -> MimeMessage:
    return to_mime(message, Address(display_name=server.from_name or "", addr_spec=server.from_email))


class FolderTransport:
    """An email folder for installations without a mail server. Operators read the files.

    The file names sort by time. An email that is sent again overwrites its file.
    """

    def __init__(self, directory: Path, mail_from: str) -> None:
        """Create the directory if necessary. Raises: the errors of `parse_sender`."""
        self._directory = directory
        self._sender = parse_sender(mail_from)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    async def send(self, message: outside.EmailMessage) -> None:
        """Write an email to a file. Raises: MailRefused."""
        mime = to_mime(message, self._sender)
        mail_id = re.sub(r"[^A-Za-z0-9.-]", "_", message.message_id.strip("<>").partition("@")[0])
        name = f"{message.date.astimezone(UTC):%Y%m%dT%H%M%S.%fZ}-{mail_id}.eml"
        try:
            await trio.to_thread.run_sync(self._write, name, mime.as_bytes())
        except OSError as error:
            raise outside.MailRefused(f"{self._directory}: {error.strerror or type(error).__name__}") from None

    def _write(self, name: str, content: bytes) -> None:
        # The file appears complete or not at all, and is on the disk before the email is recorded
        # as sent. Emails contain one-time links, so only the owner may read the file.
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


class MailRouter:
    """Implements `ports.outside.MailTransport` with the platform's transport and the organizations' servers."""

    def __init__(self, platform: SmtpTransport | FolderTransport, organizations: OrganizationSmtp) -> None:
        self._platform = platform
        self._organizations = organizations

    async def send(self, message: outside.EmailMessage, server: settings.MailServer | None = None) -> None:
        await (self._platform.send(message) if server is None else self._organizations.send(message, server))

    async def check_server(self, server: settings.MailServer, message: outside.EmailMessage) -> settings.MailServerTest:
        return await self._organizations.check_server(server, message)
