"""The problems that an installation's health shows."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from core.maintenance.model.health import ActorState, ActorStatus, ConnectionCounts, InstallationHealth, KeyState, QueueState
from tests.tables import table

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ACTOR = ActorState("mailer", ActorStatus.RUNNING, NOW, restarts=3, last_failure_at=NOW, last_failure="failure")
KEY = KeyState("k1", NOW, None, signs=True, age=timedelta(days=365))
OLD_KEY = KeyState("k0", NOW, NOW, signs=False, age=timedelta(days=900))
HALF_AN_HOUR = timedelta(minutes=30)
HEALTHY = InstallationHealth(
    version="1.0.0",
    process_id=1,
    actors=[ACTOR],
    queues=[QueueState("emails", 20, timedelta(days=1)), QueueState("webhook_deliveries", 100_000, timedelta(minutes=29))],
    connections=ConnectionCounts(total=10, idle=1, maximum=10),
    has_mail_server=False,
    signing_keys=[KEY, OLD_KEY],
)


def test_a_healthy_installation_has_no_problems() -> None:
    assert HEALTHY.find_problems() == []


@table(
    ("state", "words"),
    [
        (replace(HEALTHY, actors=[replace(ACTOR, status=ActorStatus.RESTARTING)]), "mailer failed"),
        (
            replace(HEALTHY, queues=[QueueState("webhook_deliveries", 21, HALF_AN_HOUR)]),
            "21 webhook deliveries wait, the oldest for 30 minutes",
        ),
        (replace(HEALTHY, connections=ConnectionCounts(total=10, idle=0, maximum=10)), "SSO_DB_POOL_SIZE"),
        (replace(HEALTHY, signing_keys=[replace(KEY, age=timedelta(days=366)), OLD_KEY]), "366 days old"),
    ],
)
def test_a_problem_has_a_sentence(state: InstallationHealth, words: str) -> None:
    [problem] = state.find_problems()
    assert words in problem
