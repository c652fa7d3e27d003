import os
import pytest
from tests.proof.models.test_mailbox_model import run_machine
from tests.proof.models.mailbox_machine import MailboxMachine

def test_explore(conninfo: str) -> None:
    run_machine(MailboxMachine, conninfo, examples=int(os.environ.get("EX", "300")), steps=int(os.environ.get("ST", "40")))
