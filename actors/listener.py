"""One LISTEN connection per process: what another process committed wakes the actors of this one."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NoReturn

from actors.mailbox import Mailbox

Listen = Callable[[Sequence[str]], AbstractAsyncContextManager[AsyncIterator[str]]]


class ListeningEnded(Exception):
    """The notifications ended, though the connection did not fail."""


async def listener(listen: Listen, mailboxes: Mapping[str, Mailbox]) -> NoReturn:
    """Post to the mailbox of each channel that is notified.

    `listen` gives the channels' names as they are notified, and raises StorageDown when the connection is lost, or silently dead;
    the supervisor then starts this anew.
    """
    async with listen(tuple(mailboxes)) as notifications:
        # What was notified before we listened is lost, so everybody looks once.
        for mailbox in mailboxes.values():
            mailbox.post()
        async for channel in notifications:
            mailboxes[channel].post()
    raise ListeningEnded
