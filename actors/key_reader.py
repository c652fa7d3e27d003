"""The actor that loads the signing keys from the database into its process, and rotates old keys."""

from typing import Final, NoReturn

from actors import mailbox
from core.authentication.tokens import signing_keys
from ports import Ports

# Seconds. The poll is only a fallback: a rotation wakes the actor. A key retires a minute after its
# last token has expired.
POLL: Final = 60.0


async def key_reader(ports: Ports, inbox: mailbox.Mailbox) -> NoReturn:
    """Load the keys now, after every rotation, and every minute, which also drops retired keys.

    The first process that sees a key at its maximum age rotates it.
    """
    while True:
        newest, max_age = await signing_keys.load(ports), ports.policy.signing_key_max_age
        if max_age and newest.starts_at <= ports.clock.now() - max_age:
            await signing_keys.rotate(ports, min_age=max_age)
        await inbox.wait(at_most=mailbox.jittered(POLL))
