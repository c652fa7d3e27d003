"""The DNS, asked for TXT records through the operator's resolvers."""

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

from core.tenancy.domains_rules import DnsFailed

log = structlog.get_logger("dns")

DEADLINE: Final = 5.0  # seconds, for all that is tried, and for the wait until it is one's turn
ATTEMPT: Final = 0.4  # of that, for one server: then the next one is asked, or the same one again


class Resolver:
    """ports.outside.TxtRecords. Asks by UDP, and again by TCP where the answer was cut off; forgets what it was told."""

    def __init__(self, servers: Sequence[tuple[str, int]] = (), *, deadline: float = DEADLINE, lookups: int = 20) -> None:
        """With the addresses and ports of `servers`, or else those that the system is set to; at most `lookups` at once."""
        self._servers = [Do53Nameserver(address, port) for address, port in servers]
        self._deadline = deadline
        self._backend = dns.asyncbackend.get_backend("trio")
        # So that tenants whose name servers keep us waiting do not pile up sockets.
        self._lookups = trio.CapacityLimiter(lookups)

    async def texts(self, name: str) -> Collection[str]:
        try:
            return await self._look_up(name)
        except DnsFailed as error:
            log.warning("dns_failed", name=name, reason=why(error))
            raise

    async def check(self) -> None:
        """Raises DnsFailed unless one of the servers answers: about the root, of which every resolver knows, and nobody learns anything."""
        await self._look_up(".")

    async def _look_up(self, name: str) -> Collection[str]:
        try:
            with trio.fail_after(self._deadline):
                async with self._lookups:
                    return await self._ask(name)
        except (trio.TooSlowError, dns.exception.DNSException, OSError) as error:
            raise DnsFailed from error

    async def _ask(self, name: str) -> Collection[str]:
        asked = dns.name.from_text(name, origin=dns.name.root)  # with this origin no domain of the system's search list is tried
        resolver = await self._resolver()
        try:
            answer = await resolver.resolve(
                asked, dns.rdatatype.TXT, raise_on_no_answer=False, lifetime=self._deadline, search=False, backend=self._backend
            )
        except dns.resolver.NXDOMAIN:
            return []
        records = answer.rrset or ()
        # A text is bytes, of whatever kind: ours are ASCII, and what is not cannot be one of them.
        return [b"".join(record.strings).decode("utf-8", "replace") for record in records if isinstance(record, dns.rdtypes.ANY.TXT.TXT)]

    async def _resolver(self) -> dns.asyncresolver.Resolver:
        if self._servers:
            resolver = dns.asyncresolver.Resolver(configure=False)
            resolver.nameservers = self._servers
        else:
            # Read each time, since it changes while we run; in a thread, since it is a file.
            resolver = await trio.to_thread.run_sync(dns.asyncresolver.Resolver)
        resolver.timeout = self._deadline * ATTEMPT
        return resolver


def why(failure: DnsFailed) -> str:
    """What went wrong, for operators."""
    cause = failure.__cause__
    return str(cause) or ("no answer in time" if isinstance(cause, trio.TooSlowError) else type(cause).__name__)
