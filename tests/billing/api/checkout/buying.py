"""Functions that start and complete a checkout."""

from datetime import timedelta
from typing import Any

from tests.billing.api.billing import Till
from tests.fakes.payments import FakePayments, Object

SECOND = timedelta(seconds=1)


async def begin(till: Till, **changes: Any) -> str:
    """Start a checkout, and return the provider's session id."""
    answer = await till.begin(**changes)
    assert answer.status == 200, answer.text
    return str(answer.json["session_id"])


async def buy(till: Till, provider: FakePayments, by: str = "member") -> Object:
    """Buy a subscription, and deliver the provider's events about it."""
    subscription = provider.complete(await begin(till, by=by))
    await provider.deliver(till.send_for_status)
    return subscription
