"""What platform owners see about the process and its settings."""

import json
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
import structlog
import trio
import trio.testing
from pydantic import SecretStr

from actors.supervisor import ActorStates, RestartPolicy, supervise
from core.kernel.errors import StorageDown
from core.maintenance.model.health import ActorState, ActorStatus, CheckResult
from entrypoints.addresses import NoInstallation
from entrypoints.doctor import Finding, Health, checks
from entrypoints.main import create_recovery_link
from entrypoints.running_installation import CHECKS_LIFETIME, RunningInstallation, settings_in_force
from entrypoints.setting_types import TierSetting
from entrypoints.settings import Settings
from tests.fakes.outside import FakeClock
from tests.support.platform import Platform

GOLD = {"name": "gold", "display_name": "Gold", "default_max_services": 5, "default_max_users": 50, "price_cents": 100}
BASE_URL = "https://id.example.com"


def test_no_secret_is_in_the_settings_in_force() -> None:
    secrets = [name for name, field in Settings.model_fields.items() if "SecretStr" in str(field.annotation)]
    assert {"database_url", "encryption_keys", "smtp_url", "billing_webhook_secret", "codehost_client_secret"} <= set(secrets)
    values: dict[str, Any] = {name: SecretStr("hidden-value") for name in secrets}
    settings = Settings.model_construct(**values)
    listed = {setting.variable: setting for setting in settings_in_force(settings, BASE_URL)}
    assert list(listed) == [f"SSO_{name.upper()}" for name in Settings.model_fields]
    assert {setting.variable for setting in listed.values() if setting.is_secret} == {f"SSO_{name.upper()}" for name in secrets}
    assert {(listed[f"SSO_{name.upper()}"].value, listed[f"SSO_{name.upper()}"].is_set) for name in secrets} == {(None, True)}
    assert "hidden" not in str(listed.values())


def test_settings_have_the_text_and_the_source_of_their_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSO_WORKERS", "2")
    monkeypatch.setenv("SSO_LOG_LEVEL", "debug")
    settings = Settings(
        workers=4,  # an option on the command line
        log_level="debug",
        tiers=(TierSetting.model_validate(GOLD),),
        dns_servers=(("192.0.2.1", 53), ("2001:db8::1", 5353)),
        trusted_proxies=(ip_network("192.0.2.0/24"), ip_network("10.0.0.0/8")),
    )
    values = {setting.variable: (setting.value, str(setting.source)) for setting in settings_in_force(settings, BASE_URL)}
    assert values["SSO_LOG_LEVEL"] == ("debug", "environment")
    assert values["SSO_WORKERS"] == ("4", "start")
    assert values["SSO_BASE_URL"] == (BASE_URL, "start")
    assert values["SSO_KEEP_ALIVE"] == ("75", "start")
    assert values["SSO_ACCESS_TOKEN_TTL"] == ("900", "default")
    assert values["SSO_EMAIL_SIGN_IN"] == ("false", "default")
    assert values["SSO_SUPPORT_ADDRESS"] == (None, "default")
    assert values["SSO_TRUSTED_PROXIES"][0] == "192.0.2.0/24,10.0.0.0/8"
    assert values["SSO_DNS_SERVERS"][0] == "192.0.2.1:53,[2001:db8::1]:5353"
    assert json.loads(values["SSO_TIERS"][0] or "") == [GOLD]


async def test_the_board_shows_a_failed_actor_until_it_runs_again(autojump_clock: trio.testing.MockClock, clock: FakeClock) -> None:
    states, failures = ActorStates(clock), [StorageDown()]
    began = clock.now()

    async def actor() -> None:
        if failures:
            raise failures.pop()
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        with structlog.testing.capture_logs():
            nursery.start_soon(supervise, "actor", actor, RestartPolicy(first_delay=10), None, states)
            await trio.sleep(1)
            assert states.list_all() == [ActorState("actor", ActorStatus.RESTARTING, began, 1, began, "outage")]
            await trio.sleep(60)
        assert states.list_all() == [ActorState("actor", ActorStatus.RUNNING, began, 1, began, "outage")]
        nursery.cancel_scope.cancel()


async def test_the_checks_run_at_most_once_a_minute(
    autojump_clock: trio.testing.MockClock, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = []

    def run_checks(settings: Settings) -> Any:
        runs.append(settings)
        yield Finding("mail", Health.BAD, "the mail server is not usable")

    monkeypatch.setattr(checks, "run_checks", run_checks)
    no_pool: Any = None
    installation = RunningInstallation(Settings(), BASE_URL, no_pool, ActorStates(clock))
    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(installation.run_checks)
    [finding] = await installation.run_checks()
    assert (finding.subject, finding.result, len(runs)) == ("mail", CheckResult.FAILED, 1)
    await trio.sleep(CHECKS_LIFETIME)
    await installation.run_checks()
    assert len(runs) == 2


async def test_platform_owners_see_health_checks_and_settings(platform: Platform) -> None:
    async def get(path: str) -> Any:
        answer = await platform.api.get(f"/api/platform/{path}", token=platform.token)
        assert answer.status == 200, answer.text
        return answer.json

    health = await get("health")
    assert {queue["name"]: (queue["depth"], queue["oldest_seconds"]) for queue in health["queues"]} == dict.fromkeys(
        ("emails", "webhook_deliveries", "logout_notices", "siem_entries"), (0, 0.0)
    )
    assert [(key["kid"], key["age_days"], key["signs"]) for key in health["signing_keys"]] == [("test", 0, True)]
    assert [(actor["name"], actor["status"]) for actor in health["actors"]] == [("mailer", "running")]
    assert health["database_connections"] == {"total": 4, "idle": 3, "maximum": 10}
    assert (await get("health/checks"))["findings"] == [
        {"subject": "mail", "result": "warning", "text": "no mail server. Set SSO_SMTP_URL"}
    ]
    assert len((await get("settings"))["settings"]) == len(Settings.model_fields)


def test_a_recovery_creates_no_installation(tmp_path: Path) -> None:
    with pytest.raises(NoInstallation, match="Set SSO_DATABASE_URL or SSO_DATA_DIR"):
        create_recovery_link(Settings(data_dir=tmp_path / "none"), "ada@example.com", "root", False)
    assert list(tmp_path.iterdir()) == []
