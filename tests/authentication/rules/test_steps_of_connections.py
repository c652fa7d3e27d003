"""The steps in a sign-in for sessions that began at an organization's connection (security S-10)."""

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest

from core.kernel.callers import OrganizationStatus, ServiceContext
from core.kernel.sign_in_policy.steps import Facts, Step, next_step
from tests.authentication.rules.test_steps import (
    APP,
    EARLIER,
    FIRST,
    LATER,
    NEXT,
    NOW,
    OTHER,
    PROVED_ONE_OF_TWO,
    TWO,
    asks,
    one,
    session,
)
from tests.support.connections.proofs import connection_proof

SHOP = ServiceContext(
    id=UUID(int=5),
    slug="shop",
    client_id=UUID(int=6),
    is_public=True,
    org_id=UUID(int=7),
    org_slug="acme",
    status=OrganizationStatus.ACTIVE,
)
# The session began at the connection of the application's organization, or of another organization
HERE, ELSEWHERE = (replace(session((connection_proof(org, EARLIER),), APP, session_id=FIRST), service=SHOP) for org in (SHOP.org_id, OTHER))
CONSULTANT = replace(session((*one(EARLIER), connection_proof(OTHER, LATER)), session_id=FIRST), service=SHOP)
PROVED = replace(PROVED_ONE_OF_TWO, proofs=(connection_proof(OTHER, NOW),))

TABLE = {
    "good here": (HERE, Step.CHECK_ACCESS),
    "good here, for the platform's own frontend": (replace(HERE, service=None), Step.CHECK_ACCESS),
    "weaker than the application requires": (asks(HERE, required=TWO), Step.SIGN_IN),
    "good elsewhere": (ELSEWHERE, Step.SIGN_IN),
    "good elsewhere, silent": (asks(ELSEWHERE, is_silent=True), Step.LOGIN_REQUIRED),
    "good elsewhere, and new": (replace(ELSEWHERE, first_session_id=NEXT), Step.SIGN_IN),
    "own proof beside that of elsewhere": (CONSULTANT, Step.CHECK_ACCESS),
    "own proof that is too old": (asks(CONSULTANT, max_age=timedelta(minutes=20)), Step.SIGN_IN),
    "proved, with a second factor of the account": (PROVED, Step.START_SESSION),
    "proved, for a request that asks for all factors": (asks(PROVED, keeps_trust=False), Step.SECOND_FACTOR),
}


@pytest.mark.parametrize(("facts", "step"), TABLE.values(), ids=TABLE)
def test_a_session_of_a_connection_counts_in_its_organization_alone(facts: Facts, step: Step) -> None:
    assert next_step(facts) is step
