"""The ports of a process, built from its settings. Only this module chooses adapters.

The module is longer than 400 lines, because each adapter is chosen here.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import NoReturn

import structlog
import trio
from adapters.postgres.storage import Postgres
from pydantic import SecretStr

from actors.actor_states import ActorStates
from actors.billing_reconciler import billing_reconciler
from actors.eraser import eraser
from actors.housekeeper import housekeeper
from actors.invitation_sweeper import invitation_sweeper
from actors.key_reader import key_reader
from actors.listener import listener
from actors.logout_notifier import logout_notifier
from actors.mailboxes import Mailboxes
from actors.mailer import mailer
from actors.metrics_refresher import metrics_refresher
from actors.secret_announcer import secret_announcer
from actors.siem_forwarder import siem_forwarder
from actors.subscription_sweeper import subscription_sweeper
from actors.supervisor import supervise
from actors.turns import Turns, record_progress
from actors.webhook_dispatcher import webhook_dispatcher
from adapters.anonymizers import AnonymizerFile, AnonymizerFileUnreadable, NoAnonymizers
from adapters.clock import SystemClock
from adapters.crypto import (
    AesVault,
    Argon2Passwords,
    JwtClientAssertions,
    JwtDpopProofs,
    JwtPipelineTokens,
    JwtTokens,
    TotpCodes,
    X509Certificates,
    generate_key,
    parse_keys,
)
from adapters.email.message import EmailTemplates
from adapters.email.mime import parse_sender
from adapters.email.transports import FolderTransport, MailRouter, OrganizationSmtp, SmtpTransport
from adapters.geoip import GeoIpFile, GeoIpFileUnreadable, NoGeoIp
from adapters.http.client_keys import HttpClientKeys, HttpIssuerKeys
from adapters.http.guard import AllowedTarget, Guard, parse_allowed_targets, shorten_resolver_timeouts
from adapters.http.lazy_sender import LazySender
from adapters.http.payments import HttpPayments, PaymentSettings
from adapters.http.providers import HttpProviders, ProviderSettings
from adapters.postgres.engine.connecting import parse_address
from adapters.postgres.engine.listen import listen
from adapters.postgres.engine.pool import Pool
from adapters.prometheus import ACTORS, CONTENT_TYPE, PrometheusMetrics
from adapters.saml.documents import XmlDocuments
from adapters.trio_threads import TrioThreads
from adapters.user_agents import UserAgents
from core.kernel.providers import Provider
from core.kernel.values import new_id
from entrypoints import logs
from entrypoints.bind import has_own_address
from entrypoints.http.app import Application, Edge, configure
from entrypoints.http.edge.middleware import RequestRecord
from entrypoints.installation import RunningInstallation
from entrypoints.settings import Settings, SettingsInvalid, unknown_variables
from ports import Ports
from ports.outside import TxtRecords

MAX_HASHES_AT_ONCE = 4

log = structlog.get_logger("wiring")


@dataclass(frozen=True, slots=True)
class Wired:
    """The ports of one process, and the adapters that only entrypoints use."""

    ports: Ports
    storage: Postgres
    pool: Pool
    metrics: PrometheusMetrics
    mailboxes: Mailboxes
    states: ActorStates
    turns: Turns
    conninfo: str

    def reload_files(self) -> None:
        """Read the files with locations and anonymizers again. A file that is not usable any longer is logged, and the last one stays."""
        for file in (self.ports.geoip, self.ports.anonymizers):
            if isinstance(file, GeoIpFile | AnonymizerFile):
                try:
                    file.reload()
                except (GeoIpFileUnreadable, AnonymizerFileUnreadable) as error:
                    log.error("file_not_reloaded", reason=str(error))  # noqa: TRY400 (the traceback adds nothing)
        log.info("files_reloaded")


def encryption_keys(settings: Settings) -> str:
    """Return the encryption keys: the operator's, or keys that are generated once and stored in the data directory.

    Raises: SettingsInvalid.
    """
    try:
        return known_keys(settings) or store_keys(key_file(settings), generate_key())
    except OSError as error:
        raise SettingsInvalid(f"{key_file(settings)} cannot be created: {error.strerror}.") from None


def key_file(settings: Settings) -> Path:
    """Return the file with the encryption keys, for a service without SSO_ENCRYPTION_KEYS."""
    return settings.data_dir / "encryption-keys"


def known_keys(settings: Settings) -> str | None:
    """Return the operator's encryption keys, or those in the data directory, or None.

    Raises: SettingsInvalid.
    """
    if settings.encryption_keys is not None:
        return settings.encryption_keys.get_secret_value()
    try:
        return key_file(settings).read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SettingsInvalid(f"{key_file(settings)} cannot be read: {error.strerror}.") from None


def store_keys(path: Path, keys: str) -> str:
    """Store keys in a new file, and return the keys in the file: another process may have been faster. Raises: OSError."""
    # If an earlier file was lost, the new keys cannot decrypt the stored values. That causes an
    # error, and nothing is overwritten.
    # Two processes can start for the first time at once, because no lock is held yet. Only one of
    # them can create the link to a complete file, and the other reads that file. With a rename, the
    # second process would replace keys that the first one may have used already.
    with NamedTemporaryFile("w", encoding="ascii", dir=path.parent, prefix=f"{path.name}-") as file:  # mode 0600
        file.write(keys + "\n")
        file.flush()
        os.fsync(file.fileno())
        try:
            os.link(file.name, path)
        except FileExistsError:
            return path.read_text(encoding="ascii").strip()
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
    return keys


def vault_of(settings: Settings) -> AesVault:
    """Return the vault with the existing keys. Keys are never generated here.

    Raises: SettingsInvalid.
    """
    keys = known_keys(settings)
    if keys is None:
        raise SettingsInvalid(f"{key_file(settings)} is missing, and SSO_ENCRYPTION_KEYS is not set. Restore the file, or set the keys.")
    try:
        return AesVault(parse_keys(keys))
    except ValueError as error:
        raise SettingsInvalid(f"SSO_ENCRYPTION_KEYS is not usable: {error}") from None


def check_settings(settings: Settings) -> None:
    """Check the settings that only adapters can validate. This runs before anything is started.

    Also warn about unknown variables.

    Raises: SettingsInvalid.
    """
    for problem in unknown_variables():
        log.warning("unknown_setting", problem=problem)
    mail_transport(settings)
    allowed_targets(settings)
    encryption_keys(settings)
    vault_of(settings)
    check_database_address(settings)


def check_database_address(settings: Settings) -> None:
    """Check SSO_DATABASE_URL.

    Raises: SettingsInvalid.
    """
    if settings.database_url is not None:
        try:
            parse_address(settings.database_url.get_secret_value())
        except ValueError as error:
            raise SettingsInvalid(f"SSO_DATABASE_URL {error}.") from None


@asynccontextmanager
async def wire(settings: Settings, base_url: str, conninfo: str) -> AsyncIterator[Wired]:
    """Open the ports of one process until the block ends. No connection to the database is made yet."""
    pool = Pool(conninfo, size=settings.db_pool_size, on_use=record_progress)
    clock = SystemClock()
    vault = vault_of(settings)
    metrics = PrometheusMetrics()
    concurrency = max(1, hashes_at_once() // settings.workers)
    passwords = Argon2Passwords(settings.argon2_memory_kib, settings.argon2_time_cost, settings.argon2_parallelism, concurrency=concurrency)
    policy = settings.policy  # the property may read a file each time
    mailboxes = Mailboxes()
    storage = Postgres(pool, vault, clock, policy.webhook_retry_delays[0], signals=mailboxes)
    shorten_resolver_timeouts(os.environ)
    guard = Guard(allowed_targets(settings))
    sender = LazySender(guard)
    states = ActorStates(clock)
    ports = Ports(
        storage=storage,
        passwords=passwords,
        codes=TotpCodes(),
        tokens=JwtTokens(base_url, api_audience=settings.api_audience),
        client_assertions=JwtClientAssertions(),
        pipeline_tokens=JwtPipelineTokens(),
        dpop_proofs=JwtDpopProofs(),
        certificates=X509Certificates(),
        saml=XmlDocuments(base_url, clock),
        email_templates=EmailTemplates(base_url, policy),
        mail=MailRouter(mail_transport(settings), OrganizationSmtp(guard)),
        dns=_Dns(settings.dns_servers),
        providers=HttpProviders(provider_settings(settings), clock),
        payments=HttpPayments(payment_settings(settings), clock),
        sender=sender,
        client_keys=HttpClientKeys(sender, clock, policy.key_ports),
        issuer_keys=HttpIssuerKeys(sender, clock, policy.key_ports),
        user_agents=UserAgents(),
        geoip=geoip(settings),
        anonymizers=anonymizers(settings),
        clock=clock,
        threads=TrioThreads(),
        installation=RunningInstallation(settings, base_url, pool, states),
        metrics=metrics,
        policy=policy,
    )
    try:
        yield Wired(ports, storage, pool, metrics, mailboxes, states, Turns(), conninfo)
    finally:
        passwords.close()  # otherwise its threads would stay for a minute
        with trio.CancelScope(shield=True):
            await pool.aclose()


class _Dns:
    """Implements `ports.outside.TxtRecords`. The library needs megabytes and is rarely used, so it is loaded on first use."""

    def __init__(self, servers: Sequence[tuple[str, int]]) -> None:
        self._servers = servers
        self._resolver: TxtRecords | None = None

    async def texts(self, name: str) -> Collection[str]:
        if self._resolver is None:
            self._resolver = await trio.to_thread.run_sync(self._load)
        return await self._resolver.texts(name)

    def _load(self) -> TxtRecords:
        from adapters.dns import DnsResolver

        return DnsResolver(self._servers)


def hashes_at_once() -> int:
    """Return the number of passwords that all processes of the service hash at the same time."""
    return min(MAX_HASHES_AT_ONCE, len(os.sched_getaffinity(0)))


def provider_settings(settings: Settings) -> dict[Provider, ProviderSettings]:
    """Return the settings of the configured identity providers."""
    return {
        provider: ProviderSettings(
            client=settings.client_at(provider),
            authorize_url=settings.of_provider(provider, "authorize_url"),
            token_url=settings.of_provider(provider, "token_url"),
            userinfo_url=settings.of_provider(provider, "userinfo_url"),
            scopes=tuple(settings.of_provider(provider, "scopes").split()),
            emails_url=settings.of_provider(provider, "emails_url") or "",
            issuer=settings.of_provider(provider, "issuer") or "",
            jwks_url=settings.of_provider(provider, "jwks_url") or "",
        )
        for provider in Provider
        if settings.has_provider(provider)
    }


def payment_settings(settings: Settings) -> PaymentSettings | None:
    """Return the settings of the payment provider, or None."""
    if settings.billing_api_url is None or settings.billing_api_key is None:
        return None
    return PaymentSettings(settings.billing_api_url, settings.billing_api_key.get_secret_value())


def mail_folder(settings: Settings) -> Path:
    """Return the folder for emails without a mail server."""
    return settings.data_dir / "mail"


def mail_transport(settings: Settings) -> SmtpTransport | FolderTransport:
    """Return the transport for the platform's emails: to its mail server, or to a folder if none is set.

    Raises: SettingsInvalid.
    """
    check_sender(settings)
    if settings.smtp_url is None:
        return FolderTransport(mail_folder(settings), settings.mail_from)
    return smtp(settings.smtp_url, settings)


def smtp(url: SecretStr, settings: Settings) -> SmtpTransport:
    """Return the transport to the mail server.

    Raises: SettingsInvalid.
    """
    check_sender(settings)
    try:
        return SmtpTransport(url.get_secret_value(), settings.mail_from)
    except ValueError as error:
        raise SettingsInvalid(f"SSO_SMTP_URL {error}.") from None


def allowed_targets(settings: Settings) -> tuple[AllowedTarget, ...]:
    """Return the private addresses that tenants can make us connect to (SSO_OUTBOUND_ALLOW).

    Raises: SettingsInvalid.
    """
    try:
        return parse_allowed_targets(settings.outbound_allow)
    except ValueError as error:
        raise SettingsInvalid(f"SSO_OUTBOUND_ALLOW {error}.") from None


def geoip(settings: Settings) -> NoGeoIp | GeoIpFile:
    """Return the lookup of locations of IP addresses.

    Raises: SettingsInvalid.
    """
    if settings.geoip_database is None:
        return NoGeoIp()
    try:
        return GeoIpFile(settings.geoip_database)
    except GeoIpFileUnreadable as error:
        raise SettingsInvalid(f"SSO_GEOIP_DATABASE is not usable: {error}.") from None


def anonymizers(settings: Settings) -> NoAnonymizers | AnonymizerFile:
    """Return the lookup of VPNs and proxies.

    Raises: SettingsInvalid.
    """
    if settings.anonymizer_networks_file is None:
        return NoAnonymizers()
    try:
        return AnonymizerFile(settings.anonymizer_networks_file)
    except AnonymizerFileUnreadable as error:
        raise SettingsInvalid(f"SSO_ANONYMIZER_NETWORKS_FILE is not usable: {error}.") from None


def check_sender(settings: Settings) -> None:
    """Check SSO_MAIL_FROM.

    Raises: SettingsInvalid.
    """
    try:
        parse_sender(settings.mail_from)
    except ValueError as error:
        raise SettingsInvalid(f"SSO_MAIL_FROM {error}.") from None


def application(settings: Settings, base_url: str, wired: Wired, routes: Application) -> Application:
    """Return the HTTP application: the routes on these ports."""
    configure(
        routes,
        wired.ports,
        Edge(
            base_url=base_url,
            frontend_url=settings.frontend_url,
            trusted_proxies=settings.trusted_proxies,
            is_behind_proxy=not has_own_address(settings.bind),
            rate_limit_factor=settings.rate_limit_factor,
            client_rate=settings.client_rate,
            pool_size=settings.db_pool_size,
            scim_string_status=settings.scim_string_status,
            metrics_token=settings.metrics_token.get_secret_value() if settings.metrics_token else None,
            billing_secrets=settings.billing_secrets,
        ),
        observe=partial(observe, wired.metrics),
        exposition=wired.metrics.exposition,
        exposition_type=CONTENT_TYPE,
    )
    return routes


def observe(metrics: PrometheusMetrics, record: RequestRecord) -> None:
    """Log and measure a request, including refused and aborted ones."""
    metrics.http(record.method, record.route, record.status, record.duration)
    logs.access(record)


def start_actors(nursery: trio.Nursery, wired: Wired) -> None:
    """Start every actor under supervision. They run until the nursery is canceled."""
    ports, mailboxes, holder = wired.ports, wired.mailboxes, new_id()
    listen_to_others = partial(listen, wired.conninfo, is_own=wired.pool.owns)
    actors: dict[str, Callable[[], Awaitable[NoReturn]]] = {
        "listener": partial(listener, listen_to_others, mailboxes.channels),
        "mailer": partial(mailer, ports, mailboxes.mailer),
        "key_reader": partial(key_reader, ports, mailboxes.key_reader),
        "webhook_dispatcher": partial(webhook_dispatcher, ports, mailboxes.webhook_dispatcher),
        "logout_notifier": partial(logout_notifier, ports, mailboxes.logout_notifier),
        "siem_forwarder": partial(siem_forwarder, ports, mailboxes.siem_forwarder),
        "eraser": partial(eraser, ports, holder),
        "housekeeper": partial(housekeeper, ports, holder),
        "invitation_sweeper": partial(invitation_sweeper, ports, mailboxes.invitation_sweeper, holder),
        "subscription_sweeper": partial(subscription_sweeper, ports, mailboxes.subscription_sweeper, holder),
        "secret_announcer": partial(secret_announcer, ports, holder),
        "billing_reconciler": partial(billing_reconciler, ports, mailboxes.billing_reconciler, holder),
        "metrics_refresher": partial(metrics_refresher, ports, wired.pool, mailboxes.metrics_refresher),
    }
    assert actors.keys() == {*ACTORS}, "the metrics have a series for each actor"
    for name, actor in actors.items():
        supervised = partial(supervise, name, actor, count_restart=ports.metrics.actor_restarted, states=wired.states, turns=wired.turns)
        nursery.start_soon(supervised, name=name)
