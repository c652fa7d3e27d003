"""This process and its settings, as platform owners see them."""

import json
import os
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import trio
from pydantic import SecretStr

from actors.metrics_refresher import Pool
from actors.supervisor import ActorStates
from core.maintenance.model import health
from entrypoints.bind import format_server
from entrypoints.doctor import Health
from entrypoints.setting_types import TierSetting
from entrypoints.settings import Settings, SettingsInvalid, load
from entrypoints.version import VERSION

# The checks measure Argon2 and contact servers, so a platform owner who reloads the page must not start them again every time.
CHECKS_LIFETIME: Final = 60.0  # seconds


class RunningInstallation:
    """Implements `ports.observe.Installation`."""

    version = VERSION

    def __init__(self, settings: Settings, base_url: str, pool: Pool, states: ActorStates) -> None:
        self._settings, self._base_url, self._pool, self._states = settings, base_url, pool, states
        self._checking = trio.Lock()
        self._findings: Sequence[health.CheckFinding] = ()
        self._checked_at = -CHECKS_LIFETIME

    @property
    def process_id(self) -> int:
        return os.getpid()

    @property
    def connections(self) -> health.ConnectionCounts:
        stats = self._pool.stats
        return health.ConnectionCounts(stats.total, stats.idle, stats.maximum)

    @property
    def has_mail_server(self) -> bool:
        return self._settings.smtp_url is not None

    def actors(self) -> Sequence[health.ActorState]:
        return self._states.list_all()

    async def run_checks(self) -> Sequence[health.CheckFinding]:
        async with self._checking:
            if not self._findings or trio.current_time() - self._checked_at >= CHECKS_LIFETIME:
                self._findings = await trio.to_thread.run_sync(_run_checks, self._settings)
                self._checked_at = trio.current_time()
            return self._findings

    def settings(self) -> Sequence[health.SettingInForce]:
        return settings_in_force(self._settings, self._base_url)


def _run_checks(settings: Settings) -> list[health.CheckFinding]:
    # Load it on first use: it loads the DNS library, which needs megabytes.
    from entrypoints.doctor.checks import run_checks

    results = {Health.GOOD: health.CheckResult.OK, Health.WARNING: health.CheckResult.WARNING, Health.BAD: health.CheckResult.FAILED}
    return [health.CheckFinding(finding.subject, results[finding.health], finding.text) for finding in run_checks(settings)]


@cache
def read_meanings() -> Mapping[str, Mapping[str, str]]:
    """Return every setting's meaning, in Markdown, by group and name."""
    return tomllib.loads(Path(__file__).with_name("settings.toml").read_text("utf-8"))


def settings_in_force(settings: Settings, base_url: str) -> list[health.SettingInForce]:
    """Return all settings with their sources. A value that depends on another setting is the value in force."""
    try:
        environment = load()
    except SettingsInvalid:  # the environment is not the same as at the start
        environment = Settings()
    derived = {"base_url": base_url, "keep_alive": settings.keep_alive_seconds}
    meanings = {name: text for group in read_meanings().values() for name, text in group.items()}
    result = []
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        if value is None and name in derived:
            value, source = derived[name], health.SettingSource.START
        elif name in environment.model_fields_set and getattr(environment, name) == value:
            source = health.SettingSource.ENVIRONMENT
        else:
            source = health.SettingSource.START if name in settings.model_fields_set else health.SettingSource.DEFAULT
        is_secret = _is_secret(name)
        text = None if is_secret else _to_text(value)
        is_set = value not in (None, "", ())
        result.append(health.SettingInForce(f"SSO_{name.upper()}", text, source, is_secret, is_set, meanings[name].replace("`", "")))
    return result


def _is_secret(name: str) -> bool:
    return SecretStr in getattr(Settings.model_fields[name].annotation, "__args__", (Settings.model_fields[name].annotation,))


def _to_text(value: Any) -> str | None:
    """Return the value as it would be written in the environment, or None if it is unset."""
    match value:
        case None | "" | ():
            return None
        case bool():
            return str(value).lower()
        case (TierSetting(), *_):
            return json.dumps([tier.model_dump() for tier in value])
        case tuple():
            return ",".join(format_server(each) if isinstance(each, tuple) else str(each) for each in value)
        case Path():
            return str(value)
        case _:
            return str(value)
