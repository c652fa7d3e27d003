"""The people that a sign-in policy stops, counted for its preview."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from time import monotonic
from typing import Final

from core.kernel.sign_in_policy.decision import Decision
from core.kernel.sign_in_policy.rules import EffectivePolicy
from core.kernel.values import Batches
from core.tenancy.model import sign_in_policies

COUNTED_WITHIN: Final = 5.0  # seconds


@dataclass(frozen=True, slots=True)
class PolicyCounter:
    """A counter for the people that a policy stops. `judge` decides as at a sign-in."""

    policy: EffectivePolicy
    now: datetime
    judge: Callable[[sign_in_policies.PolicyPerson, datetime], Decision]
    ends: float = field(default_factory=lambda: monotonic() + COUNTED_WITHIN)

    async def count(
        self, read: Callable[[sign_in_policies.PolicyPerson | None, int], Awaitable[Sequence[sign_in_policies.PolicyPerson]]]
    ) -> tuple[sign_in_policies.PeopleCount | None, Sequence[sign_in_policies.StoppedPerson]]:
        """Return the counts, or None after `ends`, and the first people with a role that the policy stops."""
        counted, concerned, stopped, people = 0, 0, [0, 0], list[sign_in_policies.StoppedPerson]()
        async for batch in Batches(read, sign_in_policies.MAX_COUNTED):
            if monotonic() > self.ends:
                return None, ()
            counted += len(batch)
            for person in (each for each in batch if each.account.is_usable):
                concerned += self.policy.concerns(self.now, is_admin=person.is_admin, user=person.connections)
                if (stop := self._stop(person)) is not None:
                    stopped[stop.is_stopped_now] += 1
                    people += [stop] if person.role is not None and len(people) < sign_in_policies.MAX_PEOPLE else []
        later, at_once = stopped
        return sign_in_policies.PeopleCount(
            concerned=concerned, stopped_now=at_once, stopped_later=later, is_exact=counted < sign_in_policies.MAX_COUNTED
        ), people

    def _stop(self, person: sign_in_policies.PolicyPerson) -> sign_in_policies.StoppedPerson | None:
        for at in (moment.at for moment in self.policy.moments(self.now)):
            decision = self.judge(person, at)
            if sign_in_policies.is_stopped(decision) and decision.rule is not None:
                account = person.account
                return sign_in_policies.StoppedPerson(
                    user_id=account.id,
                    name=account.profile.name,
                    email=account.email,
                    role=person.role,
                    missing=decision.rule,
                    is_stopped_now=at == self.now,
                )
        return None
