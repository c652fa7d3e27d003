"""A DNS server in threads: dnslib on a port, by UDP and TCP."""

from threading import Event, Thread
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from dnslib import CNAME, QTYPE, RCODE, RR, TXT, DNSError, DNSRecord
from dnslib.server import BaseResolver, DNSHandler, DNSLogger, TCPServer, UDPServer

if TYPE_CHECKING:
    from collections.abc import Sequence

HOST: Final = "127.0.0.1"
LONGEST_BY_UDP: Final = 512  # RFC 1035 section 4.2.1; clients ask for longer answers by TCP


class DnsServer(BaseResolver):  # type: ignore[misc]
    """A DNS server in which no name exists, until a test adds records.

    A context manager. It listens at `address`. Names have no dot at the end. The parts of a text are at most 255 bytes
    long.
    """

    def __init__(self) -> None:
        self.texts: dict[str, list[list[bytes]]] = {}  # None: the name exists, with different records
        self.aliases: dict[str, str] = {}
        self.codes: dict[str, str] = {}  # every answer's error, such as SERVFAIL
        self.silent: set[str] = set()
        self.gate = Event()  # no answer is sent while it is closed
        self.gate.set()
        self.queries: list[tuple[str, str]] = []  # the protocol and the name
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
            except OSError:  # the UDP port is taken
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
        """The method that dnslib calls in its threads."""
        name = str(request.q.qname).removesuffix(".").lower()
        self.queries.append((handler.protocol, name))
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
            reply.rr.clear()  # dnslib truncates the question too, which no real server does
            reply.header.tc = 1
        return reply
