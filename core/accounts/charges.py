"""Charges of rate limits that the first query of a request would make, in a request without such a query."""

from core.kernel.rate_limits import Charge
from ports import Ports


async def make(ports: Ports, charge: Charge | None) -> None:
    """Make a charge, unless it was made or there is none."""
    if charge is not None and not charge.is_taken:
        async with ports.storage.reading(using=charge):
            pass
