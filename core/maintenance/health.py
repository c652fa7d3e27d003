"""The health of the installation and its settings, for platform owners."""

from collections.abc import Sequence
from datetime import timedelta

from core.maintenance.model import health
from ports import Ports


async def measure(ports: Ports) -> health.InstallationHealth:
    """Return how this process is doing, and the queues and keys that all processes share."""
    now = ports.clock.now()
    # Read first: the queries below use connections themselves.
    connections = ports.installation.connections
    async with ports.storage.reading() as read:
        emails = await read.platform.email_backlog(now)
        queues = await read.platform.queues(now)
        keys = await read.signing_keys.live(now)
    signing_kid = ports.tokens.signing_kid(now)
    return health.InstallationHealth(
        version=ports.installation.version,
        process_id=ports.installation.process_id,
        actors=ports.installation.actors(),
        queues=[health.QueueState("emails", emails.depth, emails.age), *queues],
        connections=connections,
        has_mail_server=ports.installation.has_mail_server,
        signing_keys=[
            health.KeyState(
                key.kid,
                key.created_at,
                key.retires_at,
                signs=key.kid == signing_kid,
                age=max(now - key.created_at, timedelta()),
                signs_at=key.starts_at if key.starts_at > now else None,
            )
            for key in keys
        ],
    )


async def run_checks(ports: Ports) -> Sequence[health.CheckFinding]:
    """Return what `gatehouse doctor` finds, at most a minute old."""
    return await ports.installation.run_checks()


def list_settings(ports: Ports) -> Sequence[health.SettingInForce]:
    """Return all settings with their values, but without secret values."""
    return ports.installation.settings()
