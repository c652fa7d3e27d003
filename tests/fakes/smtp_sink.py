"""A mail server to send to: aiosmtpd in a thread of its own, on a port of its own."""

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
    """With port 0, the controller would call itself there."""

    def _trigger_server(self) -> None:
        assert isinstance(self.server, asyncio.Server)
        self.port = self.server.sockets[0].getsockname()[1]
        super()._trigger_server()  # type: ignore[no-untyped-call]


class SmtpSink:
    """Takes every letter, unless told otherwise. A context manager; `url` is the setting that leads to it."""

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
        self.recipient_answer = "250 OK"  # to RCPT
        self.data_answer = "250 OK"  # to DATA; what is not 250 takes nothing
        self.logins = 0  # that were tried
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

    # -- what aiosmtpd calls, in its thread

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
