"""Organizations' SMTP servers: checked addresses, encryption, refusals, and logged errors without quotes (security E-1, E-4, W-1, W-7)."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from adapters.email.smtp import MAX_SESSION_SIZE
from adapters.email.transports import OrganizationSmtp, SmtpTransport
from adapters.http.guard import Guard, parse_allowed_targets
from core.kernel.values import Email, new_id
from core.tenancy.model import settings
from core.tenancy.model.settings import MailServer, MailServerCheck, MailServerTest
from ports.outside import MailRefused
from tests.adapters.http.test_guard import lookup_of
from tests.adapters.test_smtp import MESSAGE, PASSWORD
from tests.fakes.certificates import client_context, make_certificate, server_context
from tests.fakes.manners import converse, server_that
from tests.fakes.smtp_sink import SmtpSink
from tests.support.builders import mail_server
from tests.support.waiting import eventually
from tests.tables import table

ACME = new_id()
HOST = "mail.acme.example"
ALLOWED_TARGETS = parse_allowed_targets("127.0.0.1")
LOOKUP = lookup_of({HOST: ["127.0.0.1"], "127.0.0.1": ["127.0.0.1"]})


def server_at(port: int, host: str = HOST, **changes: Any) -> MailServer:
    """Return settings for a server on this machine, by default without encryption."""
    return mail_server(ACME, host=host, port=port, **{"tls": False, **changes})


def server_of(url: str) -> MailServer:
    return server_at(int(url.rpartition(":")[2]))


def make_transport(tls: ssl.SSLContext | None = None, **options: Any) -> OrganizationSmtp:
    """Return an installation's transport where tenants can reach this machine."""
    return OrganizationSmtp(Guard(ALLOWED_TARGETS, lookup=LOOKUP), tls=tls, **options)


CLAUSES = {
    MailServerCheck.REFUSED: "it did not accept the connection",
    MailServerCheck.NOT_ENCRYPTED: "the connection could not be encrypted",
    MailServerCheck.NOT_SIGNED_IN: "it did not accept the user name and the password",
    MailServerCheck.NOT_ACCEPTED: "it did not accept the email",
}


async def send_refused(transport: OrganizationSmtp, server: MailServer) -> str:
    """Return a refusal's reason without its fixed prefix."""
    with trio.fail_after(10), pytest.raises(MailRefused) as caught:
        await transport.send(MESSAGE, server)
    assert caught.value.__cause__ is None
    reason = str(caught.value)
    assert all(secret not in reason for secret in (PASSWORD, MESSAGE.to, server.host, "127.0.0.1", str(server.port)))
    prefix = "the organization's server: "
    assert reason.startswith(prefix)
    return reason.removeprefix(prefix)


# Addresses


async def test_the_sender_of_an_email_is_the_organization() -> None:
    with SmtpSink() as sink:
        await make_transport().send(MESSAGE, server_at(sink.port, from_name='Acme, "Inc." Zo\u00eb', from_email=Email("post@acme.example")))
    [message], [envelope] = sink.messages, sink.envelopes
    [sender] = message["From"].addresses
    assert (sender.display_name, sender.addr_spec) == ('Acme, "Inc." Zo\u00eb', "post@acme.example")
    assert (envelope.mail_from, envelope.rcpt_tos) == ("post@acme.example", [MESSAGE.to])
    assert message["Subject"] == MESSAGE.subject


async def test_a_sender_without_a_name_has_only_an_address() -> None:
    with SmtpSink() as sink:
        await make_transport().send(MESSAGE, server_at(sink.port, from_name=None))
    assert sink.messages[0]["From"] == "post@acme.example"


@table("host", ["127.0.0.1", "localhost", "2130706433", "::ffff:127.0.0.1", HOST])
async def test_this_machine_cannot_be_reached(host: str) -> None:
    guard = Guard(lookup=LOOKUP) if host == HOST else Guard()
    with SmtpSink() as sink:
        transport, server = OrganizationSmtp(guard), server_at(sink.port, host)
        with pytest.raises(MailRefused, match=r"^the organization's server: the host is at an address that is not allowed$"):
            await transport.send(MESSAGE, server)
        assert (await transport.check_server(server, MESSAGE)).result is MailServerCheck.NO_ADDRESS
    assert sink.messages == []


@table("opening", ["127.0.0.2", "127.0.0.1:1", "10.0.0.0/8"])
async def test_this_machine_can_be_reached_if_the_operator_allows_it(opening: str) -> None:
    with SmtpSink() as sink:
        transport = OrganizationSmtp(Guard(parse_allowed_targets(opening), lookup=LOOKUP))
        assert (await transport.check_server(server_at(sink.port), MESSAGE)).result is MailServerCheck.NO_ADDRESS
        transport = OrganizationSmtp(Guard(parse_allowed_targets(f"{opening},127.0.0.1/32:{sink.port}"), lookup=LOOKUP))
        assert (await transport.check_server(server_at(sink.port), MESSAGE)).result is MailServerCheck.GOOD


async def test_a_check_does_not_reveal_whether_a_name_exists() -> None:
    transport = OrganizationSmtp(Guard(lookup=lookup_of({"inside.example": ["10.0.0.1"]})))
    assert (
        await transport.check_server(server_at(587, "inside.example"), MESSAGE)
        == await transport.check_server(server_at(587, "unknown.example"), MESSAGE)
        == MailServerTest(MailServerCheck.NO_ADDRESS)
    )
    # The operator's log contains the reason.
    assert await send_refused(transport, server_at(587, "unknown.example")) == "the host name was not resolved"


async def test_each_attempt_checks_the_addresses_again() -> None:
    addresses = {HOST: ["127.0.0.1"]}
    transport = OrganizationSmtp(Guard(ALLOWED_TARGETS, lookup=lookup_of(addresses)))
    with SmtpSink() as sink:
        await transport.send(MESSAGE, server_at(sink.port))
        addresses[HOST] = ["127.0.0.1", "10.0.0.1"]
        assert await send_refused(transport, server_at(sink.port)) == "the host is at an address that is not allowed"
    assert len(sink.messages) == 1


async def test_the_addresses_are_tried_in_order() -> None:
    everywhere = Guard(parse_allowed_targets("127.0.0.0/8"), lookup=lookup_of({HOST: ["127.0.0.2", "127.0.0.3", "127.0.0.1"]}))
    with SmtpSink() as sink:
        await OrganizationSmtp(everywhere).send(MESSAGE, server_at(sink.port))
    assert len(sink.messages) == 1


async def test_an_email_is_refused_if_there_is_no_server() -> None:
    with SmtpSink() as sink:
        server = server_at(sink.port)
    assert await send_refused(make_transport(), server) == "it was not reached"
    assert (await make_transport().check_server(server, MESSAGE)).result is MailServerCheck.NOT_REACHED


# Authentication


async def test_the_client_authenticates_at_a_server_that_requires_it() -> None:
    with SmtpSink(login=("acme", PASSWORD)) as sink:
        right = server_at(sink.port, password=PASSWORD)
        await make_transport().send(MESSAGE, right)
        assert (await make_transport().check_server(right, MESSAGE)).result is MailServerCheck.GOOD
        wrong = replace(right, password=f"{PASSWORD}x")
        assert await send_refused(make_transport(), wrong) == "it did not accept the user name and the password: 535"
        assert (await make_transport().check_server(wrong, MESSAGE)).result is MailServerCheck.NOT_SIGNED_IN
        assert await send_refused(make_transport(), server_at(sink.port)) == "it did not accept the email: 530"
    assert len(sink.messages) == 2, "the email and the test"


async def test_the_client_does_not_authenticate_if_the_server_does_not_offer_it() -> None:
    with SmtpSink() as sink:
        assert (
            await make_transport().check_server(server_at(sink.port, password=PASSWORD), MESSAGE)
        ).result is MailServerCheck.NOT_SIGNED_IN


async def test_a_check_sends_its_email_and_says_if_the_server_refuses_it() -> None:
    with SmtpSink() as sink:
        assert (await make_transport().check_server(server_at(sink.port), MESSAGE)).result is MailServerCheck.GOOD
        [envelope] = sink.envelopes
        assert envelope.rcpt_tos == [MESSAGE.to]
        sink.recipient_answer = "550 no such user"
        assert (await make_transport().check_server(server_at(sink.port), MESSAGE)).result is MailServerCheck.NOT_ACCEPTED


# Encryption


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificate(tmp_path_factory.mktemp("tls") / "acme.pem", HOST)


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for another name and for the connection's address."""
    return make_certificate(tmp_path_factory.mktemp("tls") / "other.pem", "mail.other.example", "127.0.0.1")


@contextmanager
def run_server(encryption: str, certificate: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[SmtpSink, MailServer, list[str]]]:
    """Run a server with this encryption. Yield the server, its settings and the requested names."""
    requested_names: list[str] = []
    context = server_context(certificate)
    context.sni_callback = lambda _, name, __: requested_names.append(name) if name else None
    sink = SmtpSink(starttls=context, login=("acme", PASSWORD)) if encryption == "STARTTLS" else SmtpSink(tls=context)
    with sink:
        if encryption == "implicit":
            monkeypatch.setattr(settings, "IMPLICIT_TLS", sink.port)  # tests cannot listen on port 465
        yield sink, server_at(sink.port, tls=True, password=PASSWORD if encryption == "STARTTLS" else None), requested_names


both_encryptions = pytest.mark.parametrize("encryption", ["STARTTLS", "implicit"])


@both_encryptions
async def test_a_certificate_is_compared_with_the_host_name_and_not_with_the_address(
    encryption: str, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with run_server(encryption, certificate, monkeypatch) as (sink, server, requested_names):
        transport = make_transport(client_context(certificate))
        await transport.send(MESSAGE, server)
        assert (await transport.check_server(server, MESSAGE)).result is MailServerCheck.GOOD
        assert requested_names == [HOST, HOST]
        # The certificate does not contain the address.
        assert (await transport.check_server(replace(server, host="127.0.0.1"), MESSAGE)).result is MailServerCheck.NOT_ENCRYPTED
        # The system does not trust its issuer.
        assert (await make_transport().check_server(server, MESSAGE)).result is MailServerCheck.NOT_ENCRYPTED
        assert await send_refused(make_transport(), server) == "the connection could not be encrypted"
    assert len(sink.messages) == 2, "the email and the test"


@both_encryptions
async def test_a_certificate_for_another_name_is_refused(encryption: str, foreign: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with run_server(encryption, foreign, monkeypatch) as (sink, server, _):
        transport = make_transport(client_context(foreign))
        assert await send_refused(transport, server) == "the connection could not be encrypted"
        assert (await transport.check_server(server, MESSAGE)).result is MailServerCheck.NOT_ENCRYPTED
        assert sink.logins == 0
    assert sink.messages == []


async def test_nothing_is_sent_unencrypted_if_encryption_is_configured() -> None:
    with SmtpSink(login=("acme", PASSWORD)) as sink:
        server = server_at(sink.port, tls=True, password=PASSWORD)
        assert await send_refused(make_transport(), server) == "the connection could not be encrypted"
        assert (await make_transport().check_server(server, MESSAGE)).result is MailServerCheck.NOT_ENCRYPTED
        assert sink.logins == 0
    assert sink.messages == []


# The greeting, and refusals


async def test_servers_are_greeted_by_the_name_of_the_sender_or_by_the_setting() -> None:
    with SmtpSink() as sink:
        server = server_at(sink.port, from_email=Email("post@acme.example"))
        await make_transport().send(MESSAGE, server)
        await make_transport().check_server(server, MESSAGE)
        await make_transport(own_name="id.example.com").send(MESSAGE, server)
        await SmtpTransport(sink.url, "Gatehouse <gatehouse@mail.example.com>").send(MESSAGE)
        await SmtpTransport(sink.url, "Gatehouse <gatehouse@mail.example.com>").check()
        await SmtpTransport(sink.url, "Gatehouse <gatehouse@mail.example.com>", own_name="id.example.com").send(MESSAGE)
    assert sink.helo_names == ["acme.example", "acme.example", "id.example.com", "mail.example.com", "mail.example.com", "id.example.com"]


BYE = b"421 4.7.0 Try again later, closing connection. (EHLO)"
OFFER_TLS, OFFER_LOGIN = {b"EHLO": b"250-mail\r\n250 STARTTLS"}, {b"EHLO": b"250-mail\r\n250 AUTH PLAIN LOGIN"}


@table(
    ("answers", "changes", "result", "quoted"),
    [
        ({b"220 ": BYE}, {}, MailServerCheck.REFUSED, BYE),
        ({b"EHLO": BYE}, {}, MailServerCheck.REFUSED, BYE),
        ({b"EHLO": b"550 5.7.1 Not you", b"HELO": b""}, {}, MailServerCheck.REFUSED, b"550 5.7.1 Not you"),
        ({b"EHLO": b"502 5.5.1 Unknown", b"HELO": BYE}, {}, MailServerCheck.REFUSED, BYE),
        ({**OFFER_TLS, b"STAR": BYE}, {"tls": True}, MailServerCheck.NOT_ENCRYPTED, BYE),
        ({**OFFER_LOGIN, b"AUTH": BYE}, {"password": PASSWORD}, MailServerCheck.NOT_SIGNED_IN, b"421"),
        ({**OFFER_LOGIN, b"AUTH": b"535 (echo)"}, {"password": PASSWORD}, MailServerCheck.NOT_SIGNED_IN, b"535"),
        *(({command: BYE}, {}, MailServerCheck.NOT_ACCEPTED, BYE) for command in (b"MAIL", b"RCPT", b"DATA", b".")),
        ({b"EHLO": b"502 5.5.1 Unknown", b"MAIL": b""}, {}, MailServerCheck.NOT_ACCEPTED, None),
    ],
)
async def test_a_check_quotes_the_answer_that_refused(
    answers: dict[bytes, bytes], changes: dict[str, Any], result: MailServerCheck, quoted: bytes | None
) -> None:
    async with server_that(partial(converse, answers=answers)) as url:
        server = replace(server_of(url), **changes)
        if "password" in changes:
            server = replace(server, username="acme")
        assert await make_transport().check_server(server, MESSAGE) == MailServerTest(result, None if quoted is None else quoted.decode())
        refusal = await send_refused(make_transport(), server)
    # The log has the code only.
    assert refusal == CLAUSES[result] + (f": {quoted[:3].decode()}" if quoted else "")


# Malicious servers


async def test_no_logged_error_quotes_a_reply_of_the_server() -> None:
    spoken = "<script>10.0.0.1 is what you look for</script>"
    with SmtpSink() as sink:
        sink.recipient_answer = f"550 {spoken} {MESSAGE.to}"
        assert await send_refused(make_transport(), server_at(sink.port)) == "it did not accept the email: 550"
        sink.recipient_answer, sink.data_answer = "250 OK", f"451 {spoken}"
        assert await send_refused(make_transport(), server_at(sink.port)) == "it did not accept the email: 451"
    for command in (b"MAIL", b"RCPT", b"DATA", b"."):
        for code, detail in ((b"550", ": 550"), (b"5xx", "")):
            async with server_that(partial(converse, answers={command: code + b" " + spoken.encode()})) as url:
                assert await send_refused(make_transport(), server_of(url)) == f"it did not accept the email{detail}"


@table("greeting", [b"nonsense\r\n", b"\xff\xfe\r\n", b"220 " + b"x" * 100_000, b""])
async def test_a_check_fails_for_a_malformed_greeting(greeting: bytes) -> None:
    async def strange(stream: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError):
            await stream.send_all(greeting)

    async with server_that(strange) as url:
        trial = await make_transport().check_server(server_of(url), MESSAGE)
    assert trial == MailServerTest(MailServerCheck.NOT_REACHED)


async def test_the_total_size_of_replies_is_limited() -> None:
    sent = 0

    async def talkative(stream: trio.SocketStream) -> None:
        nonlocal sent
        with suppress(trio.BrokenResourceError):
            while True:
                await stream.send_all(b"220-" + b"x" * 60 + b"\r\n")
                sent += 66

    async with server_that(talkative) as url:
        assert await send_refused(make_transport(), server_of(url)) == "it was not reached"
    assert sent > MAX_SESSION_SIZE


async def test_a_silent_server_delays_an_email_only_until_the_deadline() -> None:
    async def silent(stream: trio.SocketStream) -> None:
        await trio.sleep_forever()

    async with server_that(silent) as url:
        transport = make_transport(session_deadline=0.05, check_deadline=0.05, connections=1)
        for _ in range(2):  # the second email needs the thread that sends the first email
            assert await send_refused(transport, server_of(url)) == "not finished within 0.05 s"
            assert (await transport.check_server(server_of(url), MESSAGE)).result is MailServerCheck.NOT_REACHED
        await eventually(lambda: transport._threads.borrowed_tokens == 0)


async def test_an_organization_can_run_one_check_at_a_time_and_blocks_no_other() -> None:
    release, wait_begun = trio.Event(), trio.Event()

    async def slow(stream: trio.SocketStream) -> None:
        wait_begun.set()
        await release.wait()
        await converse(stream, {})

    async with server_that(slow) as url, trio.open_nursery() as nursery:
        transport, results = make_transport(), []

        async def first() -> None:
            results.append((await transport.check_server(server_of(url), MESSAGE)).result)

        nursery.start_soon(first)
        await wait_begun.wait()
        assert (await transport.check_server(server_of(url), MESSAGE)).result is MailServerCheck.BUSY
        with SmtpSink() as sink:
            assert (await transport.check_server(replace(server_at(sink.port), org_id=new_id()), MESSAGE)).result is MailServerCheck.GOOD
        release.set()
    assert results == [MailServerCheck.GOOD]
    with SmtpSink() as sink:
        assert (await transport.check_server(server_at(sink.port), MESSAGE)).result is MailServerCheck.GOOD
