"""An installation that is not running."""

from collections.abc import Sequence

from core.maintenance.model.health import ActorState, ActorStatus, CheckFinding, CheckResult, ConnectionCounts, SettingInForce
from entrypoints.running_installation import settings_in_force
from entrypoints.settings import Settings
from ports.observe import Clock


class FakeInstallation:
    """Implements `ports.observe.Installation`."""

    version, process_id, has_mail_server = "0.0.0", 4711, False
    connections = ConnectionCounts(total=4, idle=3, maximum=10)

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def actors(self) -> Sequence[ActorState]:
        return [ActorState("mailer", ActorStatus.RUNNING, self._clock.now(), restarts=0, last_failure_at=None, last_failure=None)]

    async def run_checks(self) -> Sequence[CheckFinding]:
        return [CheckFinding("mail", CheckResult.WARNING, "no mail server. Set SSO_SMTP_URL")]

    def settings(self) -> Sequence[SettingInForce]:
        return settings_in_force(Settings(), "https://id.example.com")
