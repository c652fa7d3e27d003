"""The installation's health and its settings, for platform owners."""

from pydantic import Field
from quart import Blueprint

from core.kernel.roles import Capability
from core.maintenance import health
from core.maintenance.model.health import ActorStatus, CheckResult, SettingSource
from entrypoints.http import kit

routes = Blueprint("installation", __name__)


class ActorResponse(kit.ResponseModel):
    """A process's background actor."""

    name: str = Field(description="The name of the actor.", examples=["mailer"])
    status: ActorStatus = Field(description="Whether the actor works, or waits for a restart after a failure.")
    since: kit.Timestamp = Field(description="The time since when it has this status.")
    restarts: int = Field(description="The number of restarts since the process started.", examples=[0])
    last_failure_at: kit.Timestamp | None = Field(description="The time of the last failure, or null.")
    last_failure: str | None = Field(description="`failure`, or `outage` if the database or another server was down, or null.")


class QueueResponse(kit.ResponseModel):
    """A queue for background work."""

    name: str = Field(description="The kind of work.", examples=["webhook_deliveries"])
    depth: int = Field(description="How many pieces of work are due, up to 100,000.", examples=[3])
    oldest_seconds: float = Field(description="How long the oldest of them has waited, in seconds.", examples=[0.4])


class ConnectionsResponse(kit.ResponseModel):
    """A process's database connections."""

    total: int = Field(description="The number of open connections.", examples=[4])
    idle: int = Field(description="The number of open connections that are idle.", examples=[3])
    maximum: int = Field(description="The size of the pool (`SSO_DB_POOL_SIZE`).", examples=[16])


class SigningKeyResponse(kit.ResponseModel):
    """A signing key, without its secret part."""

    kid: str = Field(description="The id of the key, as in `/.well-known/jwks.json`.")
    created_at: kit.Timestamp = Field(description="The time when the key was created.")
    age_days: int = Field(description="The age of the key in days.", examples=[40])
    signs: bool = Field(description="Whether this key signs new tokens. Other keys wait, or only verify older tokens.")
    signs_at: kit.Timestamp | None = Field(description="The time when a key that waits starts to sign, or null.")
    retires_at: kit.Timestamp | None = Field(description="The time when the key stops verifying tokens, or null.")


class PlatformHealthResponse(kit.ResponseModel):
    """The state of the process that answered, and the queues and keys that all processes share."""

    version: str = Field(description="The version of Gatehouse.")
    problems: list[str] = Field(description="Problems that need an operator, with their solutions. Empty if there is none.")
    process_id: int = Field(description="The process that answered. With several workers, another process can answer the next request.")
    actors: list[ActorResponse] = Field(description="The background actors of this process.")
    queues: list[QueueResponse] = Field(description="The queues of background work.")
    database_connections: ConnectionsResponse = Field(description="The database connections of this process.")
    mail_server: bool = Field(description="Whether the platform has a mail server. Otherwise, emails are written to a folder.")
    signing_keys: list[SigningKeyResponse] = Field(description="The signing keys, the newest first.")


@routes.get("/api/platform/health")
@kit.platform_owner(Capability.PLATFORM_INSTALLATION_VIEW)
@kit.refuses(400, 404)
async def get_health() -> PlatformHealthResponse:
    """Return the installation's state.

    Actors and connections belong to the process that answers. All processes share queues and keys.
    """
    state = await health.measure(kit.ports())
    return PlatformHealthResponse.of(
        state,
        problems=state.find_problems(),
        queues=[QueueResponse(name=queue.name, depth=queue.depth, oldest_seconds=queue.age.total_seconds()) for queue in state.queues],
        database_connections=ConnectionsResponse.of(state.connections),
        mail_server=state.has_mail_server,
        signing_keys=[SigningKeyResponse.of(key, age_days=key.age.days) for key in state.signing_keys],
    )


class CheckFindingResponse(kit.ResponseModel):
    """A check's finding."""

    subject: str = Field(description="The subject of the check.", examples=["mail"])
    result: CheckResult = Field(description="The result.")
    text: str = Field(description="The finding, and what to do about a problem.", examples=["the mail server responds"])


class CheckListResponse(kit.ResponseModel):
    """The findings from all checks."""

    findings: list[CheckFindingResponse] = Field(description="The findings.")


@routes.get("/api/platform/health/checks")
@kit.platform_owner(Capability.PLATFORM_INSTALLATION_VIEW)
@kit.refuses(400, 404)
async def run_checks() -> CheckListResponse:
    """Return the findings from `gatehouse doctor`.

    The checks contact the mail server, the name servers and the payment provider, so the first request can take half a
    minute. Further requests within a minute return the same findings.
    """
    findings = await health.run_checks(kit.ports())
    return CheckListResponse(findings=CheckFindingResponse.list_of(findings))


class SettingResponse(kit.ResponseModel):
    """A setting in force."""

    variable: str = Field(description="The environment variable, as in the reference of settings.", examples=["SSO_BASE_URL"])
    value: str | None = Field(description="The value, or null if it is unset or a secret.", examples=["https://id.example.com"])
    source: SettingSource = Field(
        description="Where the value comes from: `environment`, `default`, or `start` if it was chosen when the service started."
    )
    is_secret: bool = Field(description="Whether the value is a secret, which is never shown.")
    is_set: bool = Field(description="Whether the setting has a value.")
    meaning: str = Field(description="The meaning of the setting.", examples=["Processes on one socket."])


class SettingListResponse(kit.ResponseModel):
    """The settings in force."""

    settings: list[SettingResponse] = Field(description="All settings.")


@routes.get("/api/platform/settings")
@kit.platform_owner(Capability.PLATFORM_INSTALLATION_VIEW)
@kit.refuses(400, 404)
async def list_settings() -> SettingListResponse:
    """List the settings in force.

    Secrets, and URLs that contain a password, have no value.
    """
    return SettingListResponse(settings=SettingResponse.list_of(health.list_settings(kit.ports())))
