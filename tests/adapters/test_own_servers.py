"""SMTP servers of organizations: checked addresses, encryption, and errors without quotes (security E-1, E-4, W-1, W-7, decision 208)."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

import adapters.email.transports
from adapters.email.smtp import MAX_SESSION_SIZE
from adapters.email.transports import OrganizationSmtp
from adapters.http.guard import Guard, parse_allowed_targets
from core.kernel.values import Email, new_id
from core.tenancy.mail_server_rules import MailServer, MailServerCheck
from ports.outside import MailRefused
from tests.adapters.test_guard import names
from tests.adapters.test_smtp import MESSAGE, PASSWORD
from tests.fakes.certificates import client_context, make_certificate, server_context
from tests.fakes.manners import converse, server_that
from tests.fakes.smtp_sink import SmtpSink
from tests.support.builders import mail_server
from tests.support.waiting import eventually

ACME = new_id()
HOST = "mail.acme.example"
OPEN = parse_allowed_targets("127.0.0.1")
RESOLVES = names({HOST: ["127.0.0.1"], "127.0.0.1": ["127.0.0.1"]})


def at(port: int, host: str = HOST, **changes: Any) -> MailServer:
    """Return settings for a server on this machine, by default without encryption."""
    return mail_server(ACME, host=host, port=port, **{"tls": False, **changes})


def of(url: str) -> MailServer:
    return at(int(url.rpartition(":")[2]))


def servers(tls: ssl.SSLContext | None = None, **options: Any) -> OrganizationSmtp:
    """Return the transport of an installation where tenants can reach this machine."""
    return OrganizationSmtp(Guard(OPEN, lookup=RESOLVES), tls=tls, **options)


async def refused(own: OrganizationSmtp, server: MailServer) -> str:
    """Return the reason of a refusal without its fixed prefix."""
    with trio.fail_after(10), pytest.raises(MailRefused) as caught:
        await own.send(MESSAGE, server)
    assert caught.value.__cause__ is None
    reason = str(caught.value)
    assert all(secret not in reason for secret in (PASSWORD, MESSAGE.to, server.host, "127.0.0.1", str(server.port)))
    prefix = "the organization's server: "
    assert reason.startswith(prefix)
    return reason.removeprefix(prefix)


# Addresses


async def test_the_sender_of_an_email_is_the_organization() -> None:
    with SmtpSink() as sink:
        await servers().send(MESSAGE, at(sink.port, from_name='Acme, "Inc." Zo\u00eb', from_email=Email("post@acme.example")))
    [message], [envelope] = sink.messages, sink.envelopes
    [sender] = message["From"].addresses
    assert (sender.display_name, sender.addr_spec) == ('Acme, "Inc." Zo\u00eb', "post@acme.example")
    assert (envelope.mail_from, envelope.rcpt_tos) == ("post@acme.example", [MESSAGE.to])
    assert message["Subject"] == MESSAGE.subject


async def test_a_sender_without_a_name_has_only_an_address() -> None:
    with SmtpSink() as sink:
        await servers().send(MESSAGE, at(sink.port, from_name=None))
    assert sink.messages[0]["From"] == "post@acme.example"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "::ffff:127.0.0.1", HOST])
async def test_this_machine_cannot_be_reached(host: str) -> None:
    guard = Guard(lookup=RESOLVES) if host == HOST else Guard()
    with SmtpSink() as sink:
        own, server = OrganizationSmtp(guard), at(sink.port, host)
        with pytest.raises(MailRefused, match=r"^the organization's server: the host is at an address that is not allowed$"):
            await own.send(MESSAGE, server)
        assert await own.check_server(server) is MailServerCheck.NO_ADDRESS
    assert sink.messages == []


@pytest.mark.parametrize("opening", ["127.0.0.2", "127.0.0.1:1", "10.0.0.0/8"])
async def test_this_machine_can_be_reached_if_the_operator_allows_it(opening: str) -> None:
    with SmtpSink() as sink:
        own = OrganizationSmtp(Guard(parse_allowed_targets(opening), lookup=RESOLVES))
        assert await own.check_server(at(sink.port)) is MailServerCheck.NO_ADDRESS
        own = OrganizationSmtp(Guard(parse_allowed_targets(f"{opening},127.0.0.1/32:{sink.port}"), lookup=RESOLVES))
        assert await own.check_server(at(sink.port)) is MailServerCheck.GOOD


async def test_a_check_does_not_reveal_whether_a_name_exists() -> None:
    own = OrganizationSmtp(Guard(lookup=names({"inside.example": ["10.0.0.1"]})))
    assert (
        await own.check_server(at(587, "inside.example")) is await own.check_server(at(587, "nobody.example")) is MailServerCheck.NO_ADDRESS
    )
    # The operator's log contains the reason.
    assert await refused(own, at(587, "nobody.example")) == "the host name was not resolved"


async def test_each_attempt_checks_the_addresses_again() -> None:
    addresses = {HOST: ["127.0.0.1"]}
    own = OrganizationSmtp(Guard(OPEN, lookup=names(addresses)))
    with SmtpSink() as sink:
        await own.send(MESSAGE, at(sink.port))
        addresses[HOST] = ["127.0.0.1", "10.0.0.1"]
        assert await refused(own, at(sink.port)) == "the host is at an address that is not allowed"
    assert len(sink.messages) == 1


async def test_the_addresses_are_tried_in_order() -> None:
    everywhere = Guard(parse_allowed_targets("127.0.0.0/8"), lookup=names({HOST: ["127.0.0.2", "127.0.0.3", "127.0.0.1"]}))
    with SmtpSink() as sink:
        await OrganizationSmtp(everywhere).send(MESSAGE, at(sink.port))
    assert len(sink.messages) == 1


async def test_an_email_is_refused_if_there_is_no_server() -> None:
    with SmtpSink() as sink:
        gone = at(sink.port)
    assert await refused(servers(), gone) == "it was not reached"
    assert await servers().check_server(gone) is MailServerCheck.NOT_REACHED


# Authentication


async def test_the_client_authenticates_at_a_server_that_requires_it() -> None:
    with SmtpSink(login=("acme", PASSWORD)) as sink:
        right = at(sink.port, password=PASSWORD)
        await servers().send(MESSAGE, right)
        assert await servers().check_server(right) is MailServerCheck.GOOD
        wrong = replace(right, password=f"{PASSWORD}x")
        assert await refused(servers(), wrong) == "it did not accept the user name and the password: 535"
        assert await servers().check_server(wrong) is MailServerCheck.NOT_SIGNED_IN
        assert await refused(servers(), at(sink.port)) == "it did not accept the email: 530"
    assert len(sink.messages) == 1


async def test_the_client_does_not_authenticate_if_the_server_does_not_offer_it() -> None:
    with SmtpSink() as sink:
        assert await servers().check_server(at(sink.port, password=PASSWORD)) is MailServerCheck.NOT_SIGNED_IN


async def test_a_check_sends_no_email() -> None:
    with SmtpSink() as sink:
        assert await servers().check_server(at(sink.port)) is MailServerCheck.GOOD
    assert (sink.messages, sink.envelopes) == ([], [])


# Encryption


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificate(tmp_path_factory.mktemp("tls") / "acme.pem", HOST)


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for another name and for the address of the connection."""
    return make_certificate(tmp_path_factory.mktemp("tls") / "other.pem", "mail.other.example", "127.0.0.1")


@contextmanager
def encrypting(how: str, certificate: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[SmtpSink, MailServer, list[str]]]:
    """Run a server with this kind of encryption. Yield the server, its settings and the requested names."""
    requested_names: list[str] = []
    context = server_context(certificate)
    context.sni_callback = lambda _, name, __: requested_names.append(name) if name else None
    sink = SmtpSink(starttls=context, login=("acme", PASSWORD)) if how == "STARTTLS" else SmtpSink(tls=context)
    with sink:
        if how == "implicit":
            monkeypatch.setattr(adapters.email.transports, "IMPLICIT_TLS", sink.port)  # tests cannot listen on port 465
        yield sink, at(sink.port, tls=True, password=PASSWORD if how == "STARTTLS" else None), requested_names


both_ways = pytest.mark.parametrize("how", ["STARTTLS", "implicit"])


@both_ways
async def test_a_certificate_is_compared_with_the_host_name_and_not_with_the_address(
    how: str, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with encrypting(how, certificate, monkeypatch) as (sink, server, requested_names):
        own = servers(client_context(certificate))
        await own.send(MESSAGE, server)
        assert await own.check_server(server) is MailServerCheck.GOOD
        assert requested_names == [HOST, HOST]
        # The certificate does not contain the address.
        assert await own.check_server(replace(server, host="127.0.0.1")) is MailServerCheck.NOT_ENCRYPTED
        # The system does not trust its issuer.
        assert await servers().check_server(server) is MailServerCheck.NOT_ENCRYPTED
        assert await refused(servers(), server) == "the connection could not be encrypted"
    assert len(sink.messages) == 1


@both_ways
async def test_a_certificate_for_another_name_is_refused(how: str, foreign: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with encrypting(how, foreign, monkeypatch) as (sink, server, _):
        own = servers(client_context(foreign))
        assert await refused(own, server) == "the connection could not be encrypted"
        assert await own.check_server(server) is MailServerCheck.NOT_ENCRYPTED
        assert sink.logins == 0
    assert sink.messages == []


async def test_nothing_is_sent_unencrypted_if_encryption_is_configured() -> None:
    with SmtpSink(login=("acme", PASSWORD)) as sink:
        server = at(sink.port, tls=True, password=PASSWORD)
        assert await refused(servers(), server) == "the connection could not be encrypted"
        assert await servers().check_server(server) is MailServerCheck.NOT_ENCRYPTED
        assert sink.logins == 0
    assert sink.messages == []


# Malicious servers


async def test_no_error_quotes_a_reply_of_the_server() -> None:
    spoken = "<script>10.0.0.1 is what you look for</script>"
    with SmtpSink() as sink:
        sink.recipient_answer = f"550 {spoken} {MESSAGE.to}"
        assert await refused(servers(), at(sink.port)) == "it did not accept the email: 550"
        sink.recipient_answer, sink.data_answer = "250 OK", f"451 {spoken}"
        assert await refused(servers(), at(sink.port)) == "it did not accept the email: 451"
    for command in (b"MAIL", b"RCPT", b"DATA", b"."):
        for code, detail in ((b"550", ": 550"), (b"5xx", "")):
            async with server_that(partial(converse, answers={command: code + b" " + spoken.encode()})) as url:
                assert await refused(servers(), of(url)) == f"it did not accept the email{detail}"


@pytest.mark.parametrize("greeting", [b"554 no mail here\r\n", b"nonsense\r\n", b"\xff\xfe\r\n", b"220 " + b"x" * 100_000, b""])
async def test_a_check_fails_for_a_malformed_greeting(greeting: bytes) -> None:
    async def strange(stream: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError):
            await stream.send_all(greeting)

    async with server_that(strange) as url:
        assert await servers().check_server(of(url)) is MailServerCheck.NOT_REACHED


async def test_the_total_size_of_replies_is_limited() -> None:
    sent = 0

    async def talkative(stream: trio.SocketStream) -> None:
        nonlocal sent
        with suppress(trio.BrokenResourceError):
            while True:
                await stream.send_all(b"220-" + b"x" * 60 + b"\r\n")
                sent += 66

    async with server_that(talkative) as url:
        assert await refused(servers(), of(url)) == "it was not reached"
    assert sent > MAX_SESSION_SIZE


async def test_a_silent_server_delays_an_email_only_until_the_deadline() -> None:
    async def silent(stream: trio.SocketStream) -> None:
        await trio.sleep_forever()

    async with server_that(silent) as url:
        own = servers(session_deadline=0.05, check_deadline=0.05, connections=1)
        for _ in range(2):  # the second email needs the thread of the first one
            assert await refused(own, of(url)) == "not finished within 0.05 s"
            assert await own.check_server(of(url)) is MailServerCheck.NOT_REACHED
        await eventually(lambda: own._threads.borrowed_tokens == 0)


async def test_an_organization_can_run_one_check_at_a_time_and_blocks_no_other() -> None:
    release, waits = trio.Event(), trio.Event()

    async def slow(stream: trio.SocketStream) -> None:
        waits.set()
        await release.wait()
        await converse(stream, {})

    async with server_that(slow) as url, trio.open_nursery() as nursery:
        own, ended = servers(), []

        async def first() -> None:
            ended.append(await own.check_server(of(url)))

        nursery.start_soon(first)
        await waits.wait()
        assert await own.check_server(of(url)) is MailServerCheck.BUSY
        with SmtpSink() as sink:
            assert await own.check_server(replace(at(sink.port), org_id=new_id())) is MailServerCheck.GOOD
        release.set()
    assert ended == [MailServerCheck.GOOD]
    with SmtpSink() as sink:
        assert await own.check_server(at(sink.port)) is MailServerCheck.GOOD
