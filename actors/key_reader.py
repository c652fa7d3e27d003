"""Keeps the signing keys in use the same as those in the database, in every process."""

from typing import Final, NoReturn

from actors.mailbox import Mailbox, jittered
from core.authentication import signing_keys
from ports import Ports

POLL: Final = 60.0  # seconds; a rotation is notified, and a key retires only after a token's lifetime and a minute


async def key_reader(ports: Ports, inbox: Mailbox) -> NoReturn:
    """Load the keys now, whenever they were rotated, and every minute, which is also what lets go of retired ones."""
    while True:
        await signing_keys.load(ports)
        await inbox.wait(at_most=jittered(POLL))
