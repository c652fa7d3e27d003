"""The actor that loads the signing keys from the database into its process."""

from typing import Final, NoReturn

from actors.mailbox import Mailbox, jittered
from core.authentication.tokens import signing_keys
from ports import Ports

# Seconds. The poll is only a fallback: a rotation wakes the actor. A key retires a minute after its
# last token has expired.
POLL: Final = 60.0


async def key_reader(ports: Ports, inbox: Mailbox) -> NoReturn:
    """Load the keys now, after each rotation, and every minute, which also drops retired keys."""
    while True:
        await signing_keys.load(ports)
        await inbox.wait(at_most=jittered(POLL))
