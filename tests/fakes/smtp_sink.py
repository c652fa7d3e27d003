"""A mail server in a thread: aiosmtpd on a free port."""

import asyncio
import ssl
from email import policy
from email.message import EmailMessage
from email.parser import BytesParser
from types import TracebackType
from typing import Any, Self

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session


class _Controller(Controller):
    """A controller that does not connect to port 0 when it starts."""

    def _trigger_server(self) -> None:
        assert isinstance(self.server, asyncio.Server)
        self.port = self.server.sockets[0].getsockname()[1]
        super()._trigger_server()  # type: ignore[no-untyped-call]


class SmtpSink:
    """A mail server that accepts every email unless a test changes that.

    A context manager; `url` is the setting for it.
    """

    def __init__(
        self,
        *,
        tls: ssl.SSLContext | None = None,
        starttls: ssl.SSLContext | None = None,
        login: tuple[str, str] | None = None,
        port: int = 0,
    ) -> None:
        self.messages: list[EmailMessage] = []
        self.envelopes: list[Envelope] = []
        self.recipient_answer = "250 OK"  # the answers to RCPT
        self.data_answer = "250 OK"  # the answers to DATA; all but 250 refuse the email
        self.logins = 0  # credentials that clients sent
        self.helo_names: list[str] = []  # in EHLO
        self.helo_answer: str | None = None  # a refusal of EHLO and HELO
        self._login = login
        self._scheme = "smtps" if tls else "smtp"
        options: dict[str, Any] = {}
        if login is not None:
            options |= {"authenticator": self._authenticate, "auth_require_tls": starttls is not None}
        if starttls is not None:
            options |= {"tls_context": starttls, "require_starttls": True}
        self._controller = _Controller(self, hostname="127.0.0.1", port=port, ssl_context=tls, **options)

    @property
    def port(self) -> int:
        return int(self._controller.port)

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._controller.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._controller.stop()

    # aiosmtpd calls these in its thread

    async def handle_EHLO(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope, hostname: str, responses: list[str]
    ) -> list[str]:
        session.host_name = hostname
        self.helo_names.append(hostname)
        return responses if self.helo_answer is None else [self.helo_answer]

    async def handle_HELO(self, server: SMTP, session: Session, envelope: Envelope, hostname: str) -> str:  # noqa: N802
        return self.helo_answer or f"250 {server.hostname}"

    async def handle_MAIL(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if self._login is not None and not session.authenticated:
            return "530 5.7.0 Authentication required"
        envelope.mail_from = address
        envelope.mail_options.extend(options)
        return "250 OK"

    async def handle_RCPT(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if self.recipient_answer.startswith("250"):
            envelope.rcpt_tos.append(address)
        return self.recipient_answer

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        if self.data_answer.startswith("250"):
            content = envelope.content
            assert isinstance(content, bytes)
            self.envelopes.append(envelope)
            self.messages.append(BytesParser(EmailMessage, policy=policy.default).parsebytes(content))
        return self.data_answer

    def _authenticate(self, server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: Any) -> AuthResult:
        assert isinstance(data, LoginPassword)
        self.logins += 1
        right = self._login == (data.login.decode(), data.password.decode())
        return AuthResult(success=right, handled=False)
