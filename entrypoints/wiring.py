"""A process's ports, its HTTP application and its actors. Only this module and `adapters_of_settings` choose adapters."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final, NoReturn

import structlog
import trio

from actors import mailbox, supervisor, sweep_jobs
from actors.dispatching import logout_notifier, webhook_dispatcher
from actors.key_reader import key_reader
from actors.listener import listener
from actors.mailer import mailer
from actors.metrics_refresher import metrics_refresher
from actors.siem_forwarder import siem_forwarder
from actors.sweep_jobs import sweeper
from actors.turns import Turns, record_progress
from adapters import crypto, prometheus
from adapters.anonymizers import AnonymizerFile
from adapters.clock import SystemClock
from adapters.email import transports
from adapters.email.message import EmailTemplates
from adapters.geoip import FileUnreadable, GeoIpFile
from adapters.http import client_keys
from adapters.http.guard import EVERYWHERE, Guard, shorten_resolver_timeouts
from adapters.http.lazy_sender import LazySender
from adapters.http.openid_providers import HttpOpenIdProviders
from adapters.http.payments import HttpPayments
from adapters.images import PillowImages
from adapters.postgres.engine.listen import listen
from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from adapters.saml import documents
from adapters.threads import TrioThreads
from adapters.tls import TlsCertificate
from adapters.user_agents import UserAgents
from core.kernel.values import new_id
from entrypoints import adapters_of_settings, logs
from entrypoints.http import app
from entrypoints.http.base.request_record import RequestRecord
from entrypoints.running_installation import RunningInstallation
from entrypoints.settings import Settings, unknown_variables
from ports import Ports
from ports.observe import Clock
from ports.outside import TxtRecords

log = structlog.get_logger("wiring")

CERTIFICATE_PERIOD: Final = 10.0  # seconds between two looks at the certificate's files


@dataclass(frozen=True, slots=True)
class Wired:
    """A process's ports, and the adapters that only entrypoints use."""

    ports: Ports
    storage: Postgres
    pool: Pool
    metrics: prometheus.PrometheusMetrics
    mailboxes: mailbox.Mailboxes
    states: supervisor.ActorStates
    turns: Turns
    conninfo: str

    def reload_files(self, certificate: TlsCertificate | None) -> None:
        """Read the files with locations, anonymizers and the certificate again.

        A file that is no longer usable is logged, and the last usable content stays.
        """
        failed = False
        for file in (self.ports.geoip, self.ports.anonymizers, certificate):
            if isinstance(file, GeoIpFile | AnonymizerFile | TlsCertificate):
                try:
                    file.reload()
                except FileUnreadable as error:
                    failed = True
                    log.error("file_not_reloaded", reason=str(error))  # noqa: TRY400 (the traceback adds nothing)
                else:
                    if file is certificate:
                        _log_certificate(certificate, self.ports.clock)
        if not failed:
            log.info("files_reloaded")


def check_settings(settings: Settings) -> None:
    """Check the settings that only adapters can validate. This runs before anything is started.

    Also warn about unknown variables.
    """
    for problem in unknown_variables():
        log.warning("unknown_setting", problem=problem)
    adapters_of_settings.mail_transport(settings)
    adapters_of_settings.allowed_targets(settings)
    adapters_of_settings.check_authorities(settings)
    adapters_of_settings.encryption_keys(settings)
    adapters_of_settings.vault_of(settings)
    adapters_of_settings.check_database_address(settings)


@asynccontextmanager
async def wire(settings: Settings, base_url: str, conninfo: str) -> AsyncIterator[Wired]:
    """Open a process's ports until the block ends. No connection to the database is made yet."""
    pool = Pool(conninfo, size=settings.database_connections, on_use=record_progress)
    clock = SystemClock()
    vault = adapters_of_settings.vault_of(settings)
    metrics = prometheus.PrometheusMetrics()
    concurrency = max(1, adapters_of_settings.hashes_at_once() // settings.workers)
    passwords = crypto.Argon2Passwords(
        settings.argon2_memory_kib, settings.argon2_time_cost, settings.argon2_parallelism, concurrency=concurrency
    )
    policy = settings.policy  # the property may read a file every time
    mailboxes = mailbox.Mailboxes()
    storage = Postgres(pool, vault, clock, policy.webhook_retry_delays[0], signals=mailboxes)
    shorten_resolver_timeouts(os.environ)
    guard = Guard(adapters_of_settings.allowed_targets(settings))
    sender = LazySender(guard, settings.outbound_ca_file)
    clients_sender = LazySender(Guard(adapters_of_settings.client_targets(settings, base_url)), settings.outbound_ca_file)
    states = supervisor.ActorStates(clock)
    ports = Ports(
        storage=storage,
        vault=vault,
        passwords=passwords,
        codes=crypto.TotpCodes(),
        passkeys=adapters_of_settings.passkeys_of(settings),
        tokens=crypto.JwtTokens(base_url, api_audience=settings.api_audience),
        client_assertions=crypto.JwtClientAssertions(),
        pipeline_tokens=crypto.JwtPipelineTokens(),
        dpop_proofs=crypto.JwtDpopProofs(),
        certificates=crypto.X509Certificates(),
        saml=documents.XmlDocuments(base_url, clock, metrics),
        saml_providers=documents.XmlProviders(metrics),
        email_templates=EmailTemplates(base_url, policy),
        mail=transports.MailRouter(
            adapters_of_settings.mail_transport(settings), transports.OrganizationSmtp(guard, own_name=settings.smtp_helo_name)
        ),
        dns=_Dns(settings.dns_servers),
        openid_providers=HttpOpenIdProviders(sender, clock, unchecked=LazySender(Guard(EVERYWHERE))),
        payments=HttpPayments(adapters_of_settings.payment_settings(settings), clock),
        sender=sender,
        client_keys=client_keys.HttpClientKeys(clients_sender, clock, policy.key_ports),
        client_documents=client_keys.HttpClientDocuments(clients_sender, clock, policy),
        issuer_keys=client_keys.HttpIssuerKeys(sender, clock, policy.key_ports),
        user_agents=UserAgents(),
        geoip=adapters_of_settings.geoip(settings),
        anonymizers=adapters_of_settings.anonymizers(settings),
        clock=clock,
        threads=TrioThreads(),
        images=PillowImages(base_url),
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


def application(settings: Settings, base_url: str, wired: Wired, routes: app.Application) -> app.Application:
    """Return the HTTP application: the routes on these ports."""
    app.configure(
        routes,
        wired.ports,
        app.Edge(
            base_url=base_url,
            frontend_url=settings.frontend_url,
            trusted_proxies=settings.proxy_networks,
            is_behind_proxy=settings.is_behind_proxy,
            rate_limit_factor=settings.rate_limit_factor,
            client_rate=settings.client_rate,
            pool_size=settings.database_connections,
            scim_string_status=settings.scim_string_status,
            metrics_token=settings.metrics_token.get_secret_value() if settings.metrics_token else None,
            billing_secrets=settings.billing_secrets,
        ),
        observe=partial(observe, wired.metrics),
        exposition=wired.metrics.exposition,
        exposition_type=prometheus.CONTENT_TYPE,
    )
    return routes


def observe(metrics: prometheus.PrometheusMetrics, record: RequestRecord) -> None:
    """Log and measure a request, including a refused or aborted request."""
    metrics.http(record.method, record.route, record.status, record.duration)
    logs.access(record)


async def watch_certificate(certificate: TlsCertificate | None, clock: Clock, measure: Callable[[datetime], object]) -> None:
    """Read the certificate, if any, again when its files change. `measure` gets the certificate's end."""
    while certificate is not None:
        # At once, because a worker that starts later has the certificate that its parent read at the start.
        try:
            if await trio.to_thread.run_sync(certificate.reload_if_changed):
                _log_certificate(certificate, clock)
        except FileUnreadable as error:
            log.error("file_not_reloaded", reason=str(error))  # noqa: TRY400 (the traceback adds nothing)
        measure(certificate.ends_at)
        await trio.sleep(CERTIFICATE_PERIOD)


def _log_certificate(certificate: TlsCertificate, clock: Clock) -> None:
    log.info("tls_certificate_reloaded", ends_at=certificate.ends_at.isoformat())
    if certificate.ends_at <= clock.now():
        log.warning("tls_certificate_expired", ended_at=certificate.ends_at.isoformat())


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
        "connection_refresher": partial(sweeper, ports, sweep_jobs.CONNECTION_REFRESH, mailbox.TimedMailbox(), holder),
        "eraser": partial(sweeper, ports, sweep_jobs.ERASURE, mailbox.TimedMailbox(), holder),
        "external_client_sweeper": partial(sweeper, ports, sweep_jobs.EXTERNAL_CLIENTS, mailbox.TimedMailbox(), holder),
        "figure_counter": partial(sweeper, ports, sweep_jobs.FIGURES, mailbox.TimedMailbox(), holder),
        "housekeeper": partial(sweeper, ports, sweep_jobs.HOUSEKEEPING, mailbox.TimedMailbox(), holder),
        "invitation_sweeper": partial(sweeper, ports, sweep_jobs.INVITATION_EXPIRY, mailboxes.invitation_sweeper, holder),
        "subscription_sweeper": partial(sweeper, ports, sweep_jobs.SUBSCRIPTION_EXPIRY, mailboxes.subscription_sweeper, holder),
        "passkey_waiter": partial(sweeper, ports, sweep_jobs.PASSKEY_WAITS, mailbox.TimedMailbox(), holder),
        "policy_reminder": partial(sweeper, ports, sweep_jobs.POLICY_REMINDER, mailbox.TimedMailbox(), holder),
        "program_ender": partial(sweeper, ports, sweep_jobs.PROGRAM_ENDS, mailbox.TimedMailbox(), holder),
        "secret_announcer": partial(sweeper, ports, sweep_jobs.SECRET_ANNOUNCEMENT, mailbox.TimedMailbox(), holder),
        "billing_reconciler": partial(sweeper, ports, sweep_jobs.SUBSCRIPTION_RECONCILIATION, mailboxes.billing_reconciler, holder),
        "metrics_refresher": partial(metrics_refresher, ports, wired.pool, mailboxes.metrics_refresher),
    }
    assert actors.keys() == {*prometheus.ACTORS}, "the metrics have a series for each actor"
    for name, actor in actors.items():
        supervised = partial(
            supervisor.supervise, name, actor, count_restart=ports.metrics.actor_restarted, states=wired.states, turns=wired.turns
        )
        nursery.start_soon(supervised, name=name)
