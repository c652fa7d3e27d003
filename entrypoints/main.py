"""Start, run and stop the service, as a single process or as a parent with several workers."""

import gc
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Final, NamedTuple, TypeVar
from urllib.parse import urlencode

import outcome
import structlog
import trio
from pydantic import SecretStr

from adapters import prometheus
from adapters.postgres.engine import embedded
from adapters.postgres.engine.migrate import migrate
from adapters.saml.libraries import LibraryCheck
from core.accounts import relying_party
from core.accounts.model import platform
from core.authentication import connections, owner_recovery
from core.authentication.model import tokens as tokens_model
from core.authentication.tokens import issuing, signing_keys
from core.demo import creation, notes
from core.demo.model.demo import Demo
from core.demo.notes import NotesDemo
from core.kernel import errors, values
from core.kernel.page_paths import RECOVER_OWNER_PATH
from core.maintenance import housekeeping
from core.tenancy import governance, platform_owners, platform_sign_in_policy
from entrypoints import adapters_of_settings, addresses, greeting, huge_pages, logs, serving, stopping, supervision, wiring, workers
from entrypoints.greeting import name_link_command
from entrypoints.http.app import Application, build_routes
from entrypoints.http.edge.protocol.server import Server
from entrypoints.settings import Settings, SettingsInvalid
from ports import Ports

T = TypeVar("T")

log = structlog.get_logger("main")

DATABASE_RETRY: Final = 2.0  # seconds

# Seconds after which a thread that decodes a large body hands over to the event loop. The event loop
# waits that long after every system call. With Python's 5 ms, a small request waited for 150 ms.
SWITCH_INTERVAL: Final = 0.0005


def run_service(settings: Settings, libraries: LibraryCheck, *, welcome: bool, show_password: bool) -> int:
    """Run the service until a signal stops it, or its embedded database ends. Return the exit code. Raises: the errors in `FIXABLE`."""
    logs.configure(settings.log_format, settings.log_level)
    supervisor = supervision.Supervisor.from_environment()
    reloads = not os.isatty(0)  # in a terminal, SIGHUP says that the terminal is closed
    if reloads:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the processes serve, and while they stop
    _check_settings(settings)
    libraries.finish()
    if adapters_of_settings.allowed_targets(settings):
        log.warning("outbound_calls_to_private_addresses_allowed", networks=settings.outbound_allow)
    with ExitStack() as stack:
        stack.enter_context(prometheus.metrics_directory())
        listening = stack.enter_context(serving.open_listening(settings))
        # Workers that start later use the same keys, even if the file has changed.
        settings = settings.model_copy(update={"encryption_keys": SecretStr(adapters_of_settings.encryption_keys(settings))})
        embedded_database: embedded.Running | None = None
        if settings.database_url is not None:
            conninfo = settings.database_url.get_secret_value()
        else:
            # Never use another running service's database: it stops together with that service.
            embedded_database = stack.enter_context(embedded.launch(addresses.embedded_data(settings)))
            conninfo = embedded_database.conninfo
        routes = build_routes()  # while the database starts
        _freeze_objects()
        if embedded_database is not None:
            embedded_database.wait_until_ready()
        prints_link = welcome and (show_password or settings.platform_owner_password is None)
        prepare = partial(prepare_database, settings, listening, conninfo, embedded_database, prints_link=prints_link)
        address, owner = trio.run(_prepare, supervisor, prepare)
        greet = partial(greeting.greet_operator, settings, address, owner, show_password=show_password) if welcome else _do_nothing
        if owner.is_missing and not welcome:
            # Logs are kept and passed on, so they have no link (security I-6).
            log.warning("platform_owner_missing", next_step=f"print a link that signs the first one in: {name_link_command()}")
        process = partial(run_process, ProcessParts(settings, address, conninfo, listening, routes))
        if settings.workers == 1:
            return trio.run(partial(process, supervisor, reloads=reloads, embedded_database=embedded_database, on_started=greet))

        def work(parent: supervision.ParentLink) -> int:
            if embedded_database is not None:
                embedded_database.disown()
            return trio.run(partial(process, parent, reloads=reloads))

        greet()
        give_up = partial(stopping.has_ended, embedded_database)
        return workers.run_workers(
            settings.workers, work, listening.all, supervisor, workers.Hooks(prometheus.forget_process, give_up), reloads=reloads
        )


def _check_settings(settings: Settings) -> None:
    """Create the data directory, and check the settings."""
    try:
        settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o755)
    except OSError as error:
        raise SettingsInvalid(f"SSO_DATA_DIR {settings.data_dir} cannot be created: {error.strerror}.") from None
    wiring.check_settings(settings)


def _do_nothing() -> None:
    pass


async def _prepare(supervisor: supervision.Supervisor, prepare: Callable[[], Awaitable[T]]) -> T:
    """Return what `prepare` returns. The supervisor extends its timeout until then, because migrations can take long."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(supervision.send_heartbeats, supervisor)
        prepared = await outcome.acapture(prepare)  # an error is raised outside the nursery, so that it is in no group
        nursery.cancel_scope.cancel()
    return prepared.unwrap()


async def prepare_database(
    settings: Settings, listening: serving.Listening, conninfo: str, embedded_database: embedded.Running | None, *, prints_link: bool
) -> tuple[str, greeting.FirstOwner]:
    """Prepare the database: migrations, issuer, signing keys, platform connections, tiers, and the first platform owner.

    Return the base URL and the owner, with a link only if `prints_link` is true.

    Wait for the database as long as necessary, because it may start after the service.

    Raises: IssuerMisspelled; StorageDown if the embedded database has ended.
    """
    while True:
        try:
            if applied := await migrate(conninfo):
                log.info("migrated", count=len(applied), first=applied[0], last=applied[-1])
            address = await addresses.load_base_url(settings, conninfo, listening.sockets)
            async with wiring.wire(settings, address, conninfo) as wired:
                if warning := await issuing.adopt_issuer(wired.ports):
                    log.warning("unusual_base_url", problem=warning)
                if warning := await relying_party.find_foreign_host(wired.ports):
                    log.warning("passkeys_of_another_host", problem=warning)
                await signing_keys.load(wired.ports)
                await connections.fill(wired.ports, adapters_of_settings.platform_connections(settings))
                await governance.save_tiers(wired.ports, [tier.tier() for tier in settings.tiers])
                has_owner = await platform_sign_in_policy.ensure_after_upgrade(wired.ports)
                return address, await _prepare_first_owner(settings, address, wired, has_owner=has_owner, prints_link=prints_link)
        except errors.StorageDown as outage:
            if stopping.has_ended(embedded_database):
                raise
            log.warning("waiting_for_database", error=str(outage.__cause__ or outage))
            await trio.sleep(DATABASE_RETRY)


async def _prepare_first_owner(
    settings: Settings, address: str, wired: wiring.Wired, *, has_owner: bool, prints_link: bool
) -> greeting.FirstOwner:
    """Create the platform owner in the settings if there is none. With `prints_link`, return a link for them until they have signed in.

    `has_owner` says that a platform owner has signed in at some time.
    """
    was_created, link = False, None
    if settings.platform_owner_email is not None:
        email = values.Email(settings.platform_owner_email)
        was_created = await _create_first_owner(settings, email, wired)
        if prints_link and (token := await owner_recovery.create_first_link(wired.ports, email)):
            link = _recovery_url(address, token)
    return greeting.FirstOwner(was_created, link, is_missing=not has_owner and settings.platform_owner_password is None)


async def _create_first_owner(settings: Settings, email: values.Email, wired: wiring.Wired) -> bool:
    password = settings.platform_owner_password
    try:
        await platform_owners.create_first_owner(
            wired.ports, email, values.new_secret() if password is None else password.get_secret_value()
        )
    except platform.PlatformOwnerExists:
        return False
    except errors.Invalid as refusal:
        name = "SSO_PLATFORM_OWNER_EMAIL" if isinstance(refusal, platform.AccountNotUsable) else "SSO_PLATFORM_OWNER_PASSWORD"
        raise SettingsInvalid(f"{name} is not usable: {refusal.message}") from None
    log.info("platform_owner_created", email=email)
    return True


class ProcessParts(NamedTuple):
    """The parts that all processes of a service share."""

    settings: Settings
    address: str  # the base URL
    conninfo: str
    listening: serving.Listening
    routes: Application


async def run_process(
    parts: ProcessParts,
    watcher: supervision.Watcher,
    *,
    reloads: bool,
    embedded_database: embedded.Running | None = None,
    on_started: Callable[[], object] = _do_nothing,
) -> int:
    """Run a process and return its exit code. The HTTP nursery is inside the actors' nursery, so requests end before actors."""
    settings, address, conninfo, listening, routes = parts
    async with wiring.wire(settings, address, conninfo) as wired:
        app = wiring.application(settings, address, wired, routes)
        async with trio.open_nursery() as actors:
            async with trio.open_nursery() as http:
                http.start_soon(supervision.send_heartbeats, watcher, wired.turns.find_stuck)
                stop = stopping.Stop(http.cancel_scope, watcher)

                def report_start() -> None:
                    stop.report_start()
                    on_started()

                http.start_soon(stop.on_signals, partial(wired.reload_files, listening.certificate) if reloads else None)
                http.start_soon(wiring.watch_certificate, listening.certificate, wired.ports.clock, wired.metrics.tls_certificate)
                if isinstance(watcher, supervision.ParentLink):
                    http.start_soon(stop.on_parent_gone, watcher)
                if embedded_database is not None:
                    http.start_soon(stop.on_end_of, embedded_database)
                # The parent has reached the database, but a worker can restart at any time.
                while not stop.requested.is_set() and not await _load(wired):
                    with trio.move_on_after(DATABASE_RETRY):
                        await stop.requested.wait()
                wiring.start_actors(actors, wired)
                _collect_rarely()
                sys.setswitchinterval(SWITCH_INTERVAL)
                http.start_soon(listening.redirect, address, stop.requested)
                keep_alive, malformed = settings.keep_alive_seconds, app.middleware.malformed
                server = Server(app=app, keep_alive=keep_alive, malformed=malformed, tls=listening.tls)
                await server.serve(
                    listening.sockets, shutdown=stop.requested, shutdown_grace=lambda: stop.shutdown_grace, on_started=report_start
                )
                http.cancel_scope.cancel()
            actors.cancel_scope.cancel()
    return stop.exit_code


def _freeze_objects() -> None:
    """Exclude the objects so far from garbage collection, and start to collect. Workers share them, because no collection writes to them.

    A full collection would visit all objects during a request. Full collections caused half of the slowest percent of
    requests. No collection comes first: it would take 100 ms, and free 600 kB.
    """
    gc.freeze()
    gc.enable()


def _collect_rarely() -> None:
    """Exclude this process's objects too, and visit old objects less often than Python does by default.

    Young objects are visited almost as often, because 20,000 young objects would take 6 MB, and visiting them less
    often saves no measurable time.
    """
    gc.freeze()
    gc.set_threshold(1_000, 20, 50)
    huge_pages.collapse()  # the objects so far stay while the process lives


async def _load(wired: wiring.Wired) -> bool:
    """Load the signing keys. Return whether the database could be reached."""
    try:
        await signing_keys.load(wired.ports)
    except errors.StorageDown as outage:
        log.warning("waiting_for_database", error=str(outage.__cause__ or outage))
        return False
    return True


def migrate_database(settings: Settings) -> list[str]:
    """Apply the pending migrations and return their names."""
    with addresses.open_database(settings) as conninfo:
        return trio.run(migrate, conninfo)


def create_first_owner(settings: Settings, email: str, password: str) -> None:
    """Create the first platform owner. Raises: EmailInvalid."""
    run_use_case(settings, lambda ports: platform_owners.create_first_owner(ports, values.Email.parse(email), password))


def create_first_link(settings: Settings, email: str) -> str:
    """Create the first platform owner if there is none. Return the URL for a link that signs them in, and expires after ten minutes.

    Raises: EmailInvalid; PlatformOwnerExists if another account is a platform owner, or if this account has signed in.
    """

    async def create(ports: Ports) -> str:
        address = values.Email.parse(email)
        with suppress(platform.PlatformOwnerExists):  # their link can have expired
            await platform_owners.create_first_owner(ports, address, values.new_secret())
        token = await owner_recovery.create_first_link(ports, address) or errors.refuse(platform.PlatformOwnerExists)
        return _recovery_url(ports.tokens.issuer, token)

    return run_use_case(settings, create)


def create_recovery_link(settings: Settings, email: str, operator: str, resets_factors: bool) -> str:
    """Return the URL for a link that signs this platform owner in once. `operator` is the current user on the machine."""
    addresses.require_installation(settings)

    async def create(ports: Ports) -> str:
        token = await owner_recovery.create_link(ports, values.Email.parse(email), operator, resets_factors=resets_factors)
        return _recovery_url(ports.tokens.issuer, token)

    return run_use_case(settings, create)


def _recovery_url(address: str, token: str) -> str:
    return f"{address}{RECOVER_OWNER_PATH}?{urlencode({'token': token})}"


def seed_demo(settings: Settings, redirect_uris: Sequence[str]) -> tuple[Demo, str]:
    """Create the demo data. Return it with the service's base URL."""

    async def seed(ports: Ports) -> tuple[Demo, str]:
        return await creation.seed(ports, redirect_uris), ports.tokens.issuer

    return run_use_case(settings, seed)


def seed_notes(settings: Settings, identifier: str) -> tuple[NotesDemo, str]:
    """Create the data for the demo's MCP server with this identifier. Return it with the service's base URL."""

    async def seed(ports: Ports) -> tuple[NotesDemo, str]:
        return await notes.ensure(ports, identifier), ports.tokens.issuer

    return run_use_case(settings, seed)


def rotate_signing_key(settings: Settings, operator: str, is_compromised: bool) -> tokens_model.Rotation:
    """Publish a new signing key, or replace all compromised keys with it."""
    rotate = signing_keys.replace_compromised if is_compromised else signing_keys.rotate
    return run_use_case(settings, lambda ports: rotate(ports, operator))


def reencrypt_secrets(settings: Settings) -> int:
    """Encrypt all sealed values with the current key. Return how many values changed."""
    return run_use_case(settings, housekeeping.reencrypt)


def run_use_case(settings: Settings, use_case: Callable[[Ports], Awaitable[T]]) -> T:
    """Run a use case on the configured database. Start the embedded database for it if needed."""

    async def once(conninfo: str) -> T:
        await migrate(conninfo)
        address = await addresses.load_base_url(settings, conninfo, prefers_last_start=True)
        async with wiring.wire(settings, address, conninfo) as wired:
            return await use_case(wired.ports)

    _check_settings(settings)
    with prometheus.metrics_directory(), addresses.open_database(settings) as conninfo:
        return trio.run(once, conninfo)
