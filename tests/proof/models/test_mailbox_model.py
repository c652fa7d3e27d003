"""The factors that the mailbox may remove (security A-6, A-13), with steps in any order.

The mailbox alone never removes the last second factor from an account that had a second factor 72 hours ago. And an owner with the mailbox
and an old factor always gets in again.
"""

from dataclasses import replace

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from adapters.postgres.engine.pool import Pool
from core.kernel.policy import Policy
from tests.fakes.outside import FakeClock, FakeMailTransport, FakeMetrics
from tests.proof.models.mailbox_machine import MailboxMachine
from tests.support.background import Background
from tests.support.builders import make_ports


@pytest.mark.slow
def test_the_mailbox_alone_never_removes_the_last_second_factor_and_its_owner_gets_in(conninfo: str) -> None:
    with Background() as background:
        machine = MailboxMachine
        machine.background, machine.pool = background, Pool(conninfo, size=2)
        machine.clock, machine.sent = FakeClock(), FakeMailTransport()
        policy = Policy(account_guess_limit=10**6, mails_per_recipient=10**6)
        ports = background.run(make_ports, machine.pool, machine.clock, machine.sent, FakeMetrics())
        machine.ports = replace(ports, policy=policy)
        try:
            # Without shrinking, which would take minutes.
            steady = settings(max_examples=60, stateful_step_count=20, phases=[Phase.generate])
            run_state_machine_as_test(machine, settings=steady)
        finally:
            background.run(machine.pool.aclose)
