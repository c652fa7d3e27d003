"""The actor that receives other processes' notifications over a single LISTEN connection, and wakes its process's actors."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NoReturn

from actors.mailbox import Mailbox, TimedMailbox
from actors.turns import waiting

# Opens the connection for these channels. A notification is a pair: its channel and its payload.
Listen = Callable[[Sequence[str]], AbstractAsyncContextManager[AsyncIterator[tuple[str, str]]]]


class ListeningEnded(Exception):
    """The notifications ended although the connection did not fail."""


async def listener(listen: Listen, mailboxes: Mapping[str, Mailbox | TimedMailbox]) -> NoReturn:
    """Post every notification to its channel's mailbox.

    `listen` raises StorageDown when the connection is lost or no longer answers. The supervisor
    then starts this actor again.
    """
    with waiting():  # for the database: it opens the connection and sends the notifications
        async with listen(tuple(mailboxes)) as notifications:
            # Notifications from before the LISTEN are lost, so wake every actor once.
            for mailbox in mailboxes.values():
                mailbox.post()
            async for channel, payload in notifications:
                mailboxes[channel].notify(payload)
    raise ListeningEnded
