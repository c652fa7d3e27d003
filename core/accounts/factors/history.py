"""The second factors that an account had. The mailbox alone must not remove the last second factor (security A-6, A-13)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Final

from core.accounts import relying_party
from core.accounts.model import mfa, security_notices
from core.accounts.model.accounts import Account
from core.kernel.proofs import FactorKind
from ports import Ports, storage

# The log writes the entries about a single action some microseconds apart.
MARGIN: Final = timedelta(milliseconds=1)
NEVER: Final = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class FactorHistory:
    """An account's second factors, and how they changed in the last FACTORS_KEPT."""

    since: datetime  # UTC
    present: Mapping[FactorKind, datetime]  # the present second factors, with the times when they were turned on
    switches: Sequence[mfa.FactorSwitch]  # newest first
    lifetimes: Sequence[mfa.FactorLifetime]  # without keys for an earlier RP ID, which no longer prove anything

    @property
    def first_key_at(self) -> datetime:
        """The time when the oldest present key was added, or the end of time without keys."""
        return min((each.added_at for each in self.lifetimes if each.is_key and each.removed_at is None), default=NEVER)

    @property
    def oldest(self) -> tuple[datetime, FactorKind] | None:
        """The time when the oldest second factor that works here began, and its kind, or None."""
        begins = ((max(at, self.first_key_at) if kind is FactorKind.PASSKEY else at, kind) for kind, at in self.present.items())
        return min((begin for begin in begins if begin[0] != NEVER), default=None)

    def had_one(self, now: datetime) -> bool:
        """Return whether the account had a second factor 72 hours ago. A gap of up to 72 hours does not count."""
        then, factors, gap_end = now - security_notices.UNDO_TTL + MARGIN, set(self.present), now
        for switch in self.switches:
            if factors and switch.at <= then:
                return True
            if switch.is_on:
                factors.discard(switch.factor)
                gap_end = gap_end if factors else switch.at
            elif not factors and gap_end - switch.at > security_notices.UNDO_TTL + MARGIN:
                return False
            else:
                factors.add(switch.factor)
        return bool(factors)

    def second_keys_at(self, at: datetime) -> datetime | None:
        """Return since when (at the latest) keys were a second factor just before `at`. None: keys were no second factor."""
        of_keys = [switch for switch in self.switches if switch.factor is FactorKind.PASSKEY]
        earlier = next((switch for switch in of_keys if switch.at < at), None)
        later = next((switch for switch in reversed(of_keys) if switch.at >= at), None)
        was_on = (earlier is not None and earlier.is_on) if later is None else not (later.is_on or later.is_by_others)
        if not was_on:
            return None
        return earlier.at if earlier is not None and earlier.is_on else self.since

    def is_replaced(self, now: datetime) -> bool:
        """Return whether all second factors that work were added in the last 72 hours, and the account had an earlier second factor."""
        return self.oldest is not None and self.oldest[0] > now - security_notices.UNDO_TTL and self.had_one(now)

    def find_undo_start(self, since: datetime, now: datetime) -> datetime | None:
        """Return the time to which an undo since `since` takes the second factors back.

        The start is `since`, if the account then has a second factor, or needs none. Otherwise the start is the last earlier time when the
        user turned off a second factor that can be restored. Times before another person's last removal do not count: the removed
        factors may be lost. None: no factor can be restored, so a present factor stays.
        """
        if self.oldest is None or self._has_left(since) or not self.had_one(now):
            return since
        own = takewhile(lambda switch: not switch.is_by_others, self.switches)
        return next((switch.at for switch in own if not switch.is_on and switch.at < since and self._has_left(switch.at)), None)

    def _has_left(self, at: datetime) -> bool:
        """Return whether the account has a second factor after everything since `at` is undone."""
        left = [each for each in self.lifetimes if each.added_at < at and (each.removed_at is None or each.removed_at >= at)]
        return any(not each.is_key for each in left) or (bool(left) and self.second_keys_at(at) is not None)


async def load(ports: Ports, read: storage.Reading | storage.Transaction, account: Account, now: datetime) -> FactorHistory:
    """Return the history of an account's second factors."""
    since = now - security_notices.FACTORS_KEPT
    times = {FactorKind.TOTP: account.mfa_enabled_at, FactorKind.PASSKEY: account.passkey_second_at if account.key_count else None}
    present = {factor: at for factor, at in times.items() if at is not None}
    switches = await read.mfa.switches(account.id, since)
    newest = {switch.factor: switch for switch in reversed(switches)}
    # The log does not reach back to factors that are older.
    switches += [
        mfa.FactorSwitch(at, mfa.ENABLED[factor]) for factor, at in present.items() if factor not in newest or not newest[factor].is_on
    ]
    switches.sort(key=lambda switch: (switch.at, switch.is_on), reverse=True)
    rp_id = relying_party.choose_id(ports.policy, ports.tokens.issuer, await read.passkeys.rp_id())
    return FactorHistory(since, present, switches, await read.mfa.lifetimes(account.id, rp_id))


async def is_restored_by_undo(ports: Ports, read: storage.Reading | storage.Transaction, account: Account, now: datetime) -> bool:
    """Return whether an undo link for the present address would replace the recent second factors by an earlier factor."""
    live = [notice for notice in await read.security_notices.live(account.id, now) if notice.address == account.email]
    history = await load(ports, read, account, now)
    start = history.find_undo_start(live[0].created_at, now) if live and history.is_replaced(now) else None
    return start is not None and history.oldest is not None and start <= history.oldest[0]
