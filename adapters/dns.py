"""Looking up TXT records in the DNS, through the operator's resolvers."""

from collections.abc import Collection, Sequence
from typing import Final

import dns.asyncbackend
import dns.asyncresolver
import dns.exception
import dns.name
import dns.rdatatype
import dns.rdtypes.ANY.TXT
import dns.resolver
import structlog
import trio
from dns.nameserver import Do53Nameserver

from core.kernel.shares import FairPlaces
from core.tenancy.model.domains import DnsFailed

log = structlog.get_logger("dns")

DEADLINE: Final = 5.0  # seconds for a lookup with all its attempts, and for the wait before it
MAX_LOOKUPS: Final = 20
MAX_LOOKUPS_OF_SHARE: Final = 6
ATTEMPT: Final = 0.4  # an attempt's share in the deadline; the next attempt asks the next server, or the same server again


class DnsResolver:
    """Implements `ports.outside.TxtRecords`.

    The resolver asks over UDP, and again over TCP if the answer was truncated. Nothing is cached.
    """

    def __init__(self, servers: Sequence[tuple[str, int]] = (), *, deadline: float = DEADLINE, lookups: int = MAX_LOOKUPS) -> None:
        """`servers` are addresses with ports; without any, the system's resolvers are used. `lookups` limits concurrent lookups."""
        self._servers = [Do53Nameserver(address, port) for address, port in servers]
        self._deadline = deadline
        self._backend = dns.asyncbackend.get_backend("trio")
        # Tenants choose the names: slow name servers must not pile up sockets.
        self._lookups = FairPlaces(trio.Event, lookups, of_share=MAX_LOOKUPS_OF_SHARE)

    async def texts(self, name: str) -> Collection[str]:
        try:
            return await self._look_up(name)
        except DnsFailed as error:
            log.warning("dns_failed", name=name, reason=describe_dns_failure(error))
            raise

    async def check(self) -> None:
        """Ask for the root, which every resolver knows and which reveals nothing. Raises: DnsFailed if no server answers."""
        await self._look_up(".")

    async def _look_up(self, name: str) -> Collection[str]:
        try:
            with trio.fail_after(self._deadline):
                place = await self._lookups.take()
            with place, trio.fail_after(self._deadline):
                return await self._query(name)
        except (trio.TooSlowError, dns.exception.DNSException, OSError) as error:
            raise DnsFailed from error

    async def _query(self, name: str) -> Collection[str]:
        full_name = dns.name.from_text(name, origin=dns.name.root)  # with this origin, the system's search list is not used
        resolver = await self._resolver()
        try:
            answer = await resolver.resolve(
                full_name, dns.rdatatype.TXT, raise_on_no_answer=False, lifetime=self._deadline, search=False, backend=self._backend
            )
        except dns.resolver.NXDOMAIN:
            return []
        records = answer.rrset or ()
        # A TXT record can contain any bytes. Our records are ASCII, so bytes that are not UTF-8
        # cannot belong to our record.
        return [b"".join(record.strings).decode("utf-8", "replace") for record in records if isinstance(record, dns.rdtypes.ANY.TXT.TXT)]

    async def _resolver(self) -> dns.asyncresolver.Resolver:
        if self._servers:
            resolver = dns.asyncresolver.Resolver(configure=False)
            resolver.nameservers = self._servers
        else:
            # The system's configuration is read every time, because it can change while the process
            # runs. The configuration is a file, so a thread reads it.
            resolver = await trio.to_thread.run_sync(dns.asyncresolver.Resolver)
        resolver.timeout = self._deadline * ATTEMPT
        return resolver


def describe_dns_failure(failure: DnsFailed) -> str:
    """Return the failure's cause, for operators."""
    cause = failure.__cause__
    return str(cause) or ("no answer in time" if isinstance(cause, trio.TooSlowError) else type(cause).__name__)
