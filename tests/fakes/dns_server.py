"""A name server to ask: dnslib on one port of its own by UDP and TCP, in threads of its own."""

from threading import Event, Thread
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from dnslib import CNAME, QTYPE, RCODE, RR, TXT, DNSError, DNSRecord
from dnslib.server import BaseResolver, DNSHandler, DNSLogger, TCPServer, UDPServer

if TYPE_CHECKING:
    from collections.abc import Sequence

HOST: Final = "127.0.0.1"
LONGEST_BY_UDP: Final = 512  # RFC 1035 section 4.2.1; what is longer has to be asked for by TCP


class DnsServer(BaseResolver):  # type: ignore[misc]
    """Says that there is nothing at a name, unless told otherwise. A context manager; `address` is where to ask.

    Names are written without the dot at the end. The parts of a text are bytes of at most 255.
    """

    def __init__(self) -> None:
        self.texts: dict[str, list[list[bytes]]] = {}  # none: the name is there, and has other records
        self.aliases: dict[str, str] = {}
        self.codes: dict[str, str] = {}  # an error to answer with, such as SERVFAIL
        self.silent: set[str] = set()
        self.gate = Event()  # while it is closed, no answer goes out
        self.gate.set()
        self.asked: list[tuple[str, str]] = []  # the protocol, and the name
        self._servers: Sequence[Any] = ()
        self._threads: list[Thread] = []

    @property
    def address(self) -> tuple[str, int]:
        return HOST, self._servers[0].server_address[1]

    def __enter__(self) -> Self:
        while not self._servers:
            by_tcp = TCPServer((HOST, 0), DNSHandler)
            try:
                self._servers = [by_tcp, UDPServer(by_tcp.server_address, DNSHandler)]
            except OSError:  # somebody else has this port by UDP
                by_tcp.server_close()
        for server in self._servers:
            server.resolver, server.logger = self, DNSLogger("-request,-reply,-truncated,-error")
            thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
            thread.start()
            self._threads.append(thread)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.gate.set()
        for server in self._servers:
            server.shutdown()
            server.server_close()
        for thread in self._threads:
            thread.join()

    def resolve(self, request: DNSRecord, handler: DNSHandler) -> DNSRecord:
        """What dnslib calls, in one of its threads."""
        name = str(request.q.qname).removesuffix(".").lower()
        self.asked.append((handler.protocol, name))
        self.gate.wait()
        if name in self.silent:
            raise DNSError("not answered")
        reply = request.reply()
        if name in self.aliases:
            reply.add_answer(RR(name, QTYPE.CNAME, rdata=CNAME(self.aliases[name])))
            name = self.aliases[name]
        if name in self.codes:
            reply.header.rcode = getattr(RCODE, self.codes[name])
        elif name not in self.texts:
            reply.header.rcode = RCODE.NXDOMAIN
        for parts in self.texts.get(name, ()):
            reply.add_answer(RR(name, QTYPE.TXT, rdata=TXT(parts)))
        if handler.protocol == "udp" and len(reply.pack()) > LONGEST_BY_UDP:
            reply.rr.clear()  # the library's own way to cut off takes the question away, too, which no server does
            reply.header.tc = 1
        return reply
