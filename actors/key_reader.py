"""Keeps the signing keys of each process the same as those in the database."""

from typing import Final, NoReturn

from actors.mailbox import Mailbox, jittered
from core.authentication import signing_keys
from ports import Ports

# Seconds. A rotation is signaled, and a key retires only a minute after the last token that it signed has expired.
POLL: Final = 60.0


async def key_reader(ports: Ports, inbox: Mailbox) -> NoReturn:
    """Load the keys now, after each rotation, and every minute, which also drops retired keys."""
    while True:
        await signing_keys.load(ports)
        await inbox.wait(at_most=jittered(POLL))
