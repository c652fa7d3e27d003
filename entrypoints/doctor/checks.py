"""The `gatehouse doctor` checks for settings, libraries and external services, with a sentence about every problem."""

import sys
import time
from collections.abc import Callable, Iterator
from email.errors import MessageError
from email.message import Message
from email.policy import EmailPolicy
from importlib import metadata
from typing import Final

import trio

from adapters import dns
from adapters.clock import SystemClock
from adapters.crypto import verifications_per_second
from adapters.http import payments
from adapters.http.guard import Guard
from adapters.http.sender import GuardedSender
from adapters.postgres.engine import migrate
from adapters.postgres.engine.embedded import EmbeddedError
from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from adapters.saml.libraries import XmlLibrariesDisagree, check_libraries
from core.kernel import errors
from core.kernel.display import format_day
from core.kernel.policy import CERTIFICATE_EXPIRES_SOON
from core.kernel.uris import is_web_url
from core.tenancy.model.domains import DnsFailed
from entrypoints import adapters_of_settings, addresses, doctor
from entrypoints.adapters_of_settings import mail_folder
from entrypoints.bind import format_server
from entrypoints.doctor import address_checks, passkey_checks
from entrypoints.settings import Settings, SettingsInvalid, unknown_variables
from ports.crypto import SealBroken
from ports.observe import Clock
from ports.outside import MailRefused
from ports.storage import Storage

# Releases below these have known vulnerabilities (security P-1). They cannot be read from the
# project's metadata, because the project is not installed as a package. A test compares them with
# pyproject.toml.
FLOORS: Final = {
    "pyjwt": "2.15.0",
    "dnspython": "2.8.0",
    "lxml": "6.1.0",
    "cryptography": "46.0.6",
    "h11": "0.16.0",
    "h2": "4.4.1",
    "werkzeug": "3.1.6",
}
# The first patch release that fixes CVE-2026-1299, by CPython's minor release. Distributions add the fix to earlier patch releases.
PYTHON_FLOORS: Final = {(3, 11): 15, (3, 12): 13, (3, 13): 12, (3, 14): 3}
POSTGRESQL_FLOOR: Final = 15
CLOCK_TOLERANCE: Final = 2.0  # seconds
DNS_DEADLINE: Final = 2.0
MAX_LISTED_SERVICES: Final = 100
MAX_LISTED_CONNECTIONS: Final = 100


def examine(settings: Settings, say: Callable[[str], object]) -> int:
    """Report all findings. Return the exit code: 1 if a check failed, otherwise 0."""
    worst = 0
    for finding in run_checks(settings):
        say(f"{finding.health:<5} {finding.subject:<14} {finding.text}")
        if finding.health is doctor.Health.BAD:
            worst = 1
    return worst


def run_checks(settings: Settings) -> Iterator[doctor.Finding]:
    """Yield the findings from all checks."""
    yield from check_environment()
    yield check_interpreter()
    yield from check_package_versions()
    yield check_xml_libraries()
    yield check_password_hashing(settings)
    yield address_checks.check_bind(settings)
    url = addresses.find_base_url(settings)
    yield address_checks.check_base_url(url)
    yield from address_checks.check_certificate(settings, url, SystemClock().now())
    yield address_checks.check_passkeys(url)
    yield from address_checks.check_frontend_url(settings)
    yield check_mail(settings)
    yield from check_name_servers(settings)
    yield check_outbound_calls(settings)
    yield check_locations(settings)
    yield check_anonymizers(settings)
    yield from check_providers(settings)
    yield check_billing(settings, url)
    yield from check_database(settings, url)


def check_environment() -> Iterator[doctor.Finding]:
    """Report environment variables that look like settings but have no effect, such as misspelled names."""
    sentences = unknown_variables()
    for sentence in sentences:
        yield doctor.Finding("settings", doctor.Health.WARNING, sentence)
    if not sentences:
        yield doctor.Finding("settings", doctor.Health.GOOD, "all values are valid")


def check_interpreter() -> doctor.Finding:
    """Check that the interpreter has its security fixes."""
    major, minor, patch = sys.version_info[:3]
    text = f"{major}.{minor}.{patch}"
    message = Message(_TwoHeaders())
    message["subject"] = "text"
    try:
        message.as_bytes()
    except MessageError:
        return doctor.Finding("Python", doctor.Health.GOOD, text)
    floor = PYTHON_FLOORS.get((major, minor))
    advice = "Install the security updates of your distribution" + (f", or use {major}.{minor}.{floor} or later" if floor else "")
    return doctor.Finding("Python", doctor.Health.WARNING, f"{text} lacks the fix of CVE-2026-1299. {advice}")


class _TwoHeaders(EmailPolicy):
    """A policy that writes a second header after the first. With the fix for CVE-2026-1299, `as_bytes` refuses it."""

    def fold_binary(self, name: str, value: str) -> bytes:
        return f"{name}: {value}\nbcc: {value}\n".encode()


def check_package_versions() -> Iterator[doctor.Finding]:
    """Check that the libraries have their security fixes."""
    installed = {name: metadata.version(name) for name in FLOORS}
    old = [name for name, floor in FLOORS.items() if _numbers(installed[name]) < _numbers(floor)]
    for name in old:
        yield doctor.Finding(
            "libraries", doctor.Health.BAD, f"{name} {installed[name]} has known vulnerabilities; install {FLOORS[name]} or later"
        )
    if not old:
        yield doctor.Finding("libraries", doctor.Health.GOOD, ", ".join(f"{name} {version}" for name, version in installed.items()))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())


def check_xml_libraries() -> doctor.Finding:
    """Check that lxml and xmlsec load the same libxml2."""
    try:
        return doctor.Finding("libxml2", doctor.Health.GOOD, f"{check_libraries()}, the same for lxml and xmlsec")
    except XmlLibrariesDisagree as error:
        return doctor.Finding("libxml2", doctor.Health.BAD, str(error))


def check_password_hashing(settings: Settings) -> doctor.Finding:
    """Measure Argon2, which limits how many users can sign in with a password per second."""
    tags = metadata.distribution("argon2-cffi-bindings").read_text("WHEEL") or ""
    build = "the generic wheel, for all processors of the architecture" if "manylinux" in tags else "built for this processor"
    cores = adapters_of_settings.hashes_at_once()
    parameters = (settings.argon2_memory_kib, settings.argon2_time_cost, settings.argon2_parallelism)
    one, all_cores = verifications_per_second(*parameters, threads=1), verifications_per_second(*parameters, threads=cores)
    if settings.argon2_memory_kib < 19456 or settings.argon2_time_cost < 2:  # security A-1
        return doctor.Finding(
            "Argon2", doctor.Health.WARNING, "the parameters are below 19456 KiB and 2 passes, so stolen hashes are too cheap to crack"
        )
    return doctor.Finding(
        "Argon2", doctor.Health.GOOD, f"{build}: {one:.0f} verifications per second on one thread, {all_cores:.0f} on {cores}"
    )


def check_mail(settings: Settings) -> doctor.Finding:
    """Check the mail server."""
    try:
        if settings.smtp_url is None:
            adapters_of_settings.check_sender(settings)
            return doctor.Finding(
                "mail", doctor.Health.WARNING, f"no mail server: emails are written to {mail_folder(settings)}/. Set SSO_SMTP_URL"
            )
        trio.run(adapters_of_settings.smtp(settings.smtp_url, settings).check)
    except SettingsInvalid as error:
        return doctor.Finding("mail", doctor.Health.BAD, str(error))
    except MailRefused as error:
        return doctor.Finding("mail", doctor.Health.BAD, f"the mail server is not usable: {error}")
    return doctor.Finding("mail", doctor.Health.GOOD, "the mail server responds")


def check_name_servers(settings: Settings) -> Iterator[doctor.Finding]:
    """Check every name server for domain verification. A single silent server would slow down every lookup."""
    for server in settings.dns_servers:
        name = "SSO_DNS_SERVERS: " + format_server(server)
        if (reason := _resolver_error(dns.DnsResolver([server], deadline=DNS_DEADLINE))) is None:
            yield doctor.Finding("DNS", doctor.Health.GOOD, f"{name} responds")
        else:
            yield doctor.Finding("DNS", doctor.Health.BAD, f"{name} is not usable: {reason}")
    if not settings.dns_servers:
        if (reason := _resolver_error(dns.DnsResolver(deadline=DNS_DEADLINE))) is None:
            yield doctor.Finding("DNS", doctor.Health.GOOD, "the system's resolver responds")
        else:
            text = f"the system's resolver is not usable, so domains cannot be verified: {reason}. Set SSO_DNS_SERVERS"
            yield doctor.Finding("DNS", doctor.Health.WARNING, text)


def _resolver_error(resolver: dns.DnsResolver) -> str | None:
    try:
        trio.run(resolver.check)
    except DnsFailed as error:
        return dns.describe_dns_failure(error)
    return None


def check_outbound_calls(settings: Settings) -> doctor.Finding:
    """Report the private addresses that tenants can make us connect to."""
    try:
        if not adapters_of_settings.allowed_targets(settings):
            return doctor.Finding("outbound calls", doctor.Health.GOOD, "to public addresses only")
    except SettingsInvalid as error:
        return doctor.Finding("outbound calls", doctor.Health.BAD, str(error))
    text = f"SSO_OUTBOUND_ALLOW lets every tenant make us connect to {settings.outbound_allow}"
    return doctor.Finding("outbound calls", doctor.Health.WARNING, text)


def check_locations(settings: Settings) -> doctor.Finding:
    """Check the file with IP address locations."""
    if settings.geoip_database is None:
        return doctor.Finding("locations", doctor.Health.GOOD, "unknown: SSO_GEOIP_DATABASE is not set")
    try:
        adapters_of_settings.geoip(settings)
    except SettingsInvalid as error:
        return doctor.Finding("locations", doctor.Health.BAD, str(error))
    return doctor.Finding("locations", doctor.Health.GOOD, f"from {settings.geoip_database}")


def check_anonymizers(settings: Settings) -> doctor.Finding:
    """Check the file with VPN and proxy networks."""
    if settings.anonymizer_networks_file is None:
        return doctor.Finding("VPNs and proxies", doctor.Health.GOOD, "not detected: SSO_ANONYMIZER_NETWORKS_FILE is not set")
    try:
        adapters_of_settings.anonymizers(settings)
    except SettingsInvalid as error:
        return doctor.Finding("VPNs and proxies", doctor.Health.BAD, str(error))
    return doctor.Finding("VPNs and proxies", doctor.Health.GOOD, f"from {settings.anonymizer_networks_file}")


def check_providers(settings: Settings) -> Iterator[doctor.Finding]:
    """List the identity providers. They are not contacted, because they respond only to requests with a code."""
    configured = adapters_of_settings.platform_connections(settings)
    for each in configured:
        provider, known = each.connection.slug, each.connection.settings
        urls = (known.authorize_url, known.token_url, known.userinfo_url, known.emails_url, known.jwks_url)
        plain = [url for url in urls if url and not is_web_url(url)]
        scope = "for the platform" if known.client_id else "for services with separate credentials"
        if plain:
            text = f"{provider} is at {plain[0]}, without https: an attacker on the network can sign in as any user"
            yield doctor.Finding("providers", doctor.Health.WARNING, text)
        else:
            yield doctor.Finding("providers", doctor.Health.GOOD, f"{provider}, {scope}")
    if not configured:
        yield doctor.Finding("providers", doctor.Health.GOOD, "none: users sign in with passwords")


def check_billing(settings: Settings, url_of_service: str) -> doctor.Finding:
    """Check the payment provider and its events."""
    url, has_events = settings.billing_api_url, bool(settings.billing_secrets)
    if url is None:
        text = (
            "events of the payment provider are accepted, but plans cannot be bought"
            if has_events
            else "off: SSO_BILLING_API_URL is not set"
        )
        return doctor.Finding("billing", doctor.Health.GOOD, text)
    try:
        trio.run(payments.HttpPayments(adapters_of_settings.payment_settings(settings), SystemClock()).check)
    except payments.KeyRefused:
        return doctor.Finding("billing", doctor.Health.BAD, f"the payment provider at {url} refuses the key. Check SSO_BILLING_API_KEY")
    except errors.PaymentsFailed as error:
        return doctor.Finding("billing", doctor.Health.BAD, f"the payment provider at {url} is not usable: {error}")
    if not has_events:
        text = "plans can be bought, but events are refused, so subscriptions update up to a day late. Set SSO_BILLING_WEBHOOK_SECRET"
        return doctor.Finding("billing", doctor.Health.WARNING, text)
    if not is_web_url(url):
        return doctor.Finding("billing", doctor.Health.WARNING, f"the payment provider is at {url}: its key is sent unencrypted")
    return doctor.Finding(
        "billing", doctor.Health.GOOD, f"through {url}, which responds; its events go to {url_of_service}/webhooks/billing"
    )


def check_database(settings: Settings, url: str) -> Iterator[doctor.Finding]:
    """Check the database: connection, version, migrations, clock and encryption keys. Nothing is started or created."""
    try:
        adapters_of_settings.check_database_address(settings)
        conninfo = addresses.running_database(settings)
        if conninfo is None:
            text = "not checked, because the embedded database is not running. Start the service, which starts it, and check again"
            yield doctor.Finding("database", doctor.Health.WARNING, text)
        else:
            yield from trio.run(_connect_and_check, settings, conninfo, url)
    except (SettingsInvalid, EmbeddedError, errors.StorageDown, migrate.MigrationRefused) as error:
        yield doctor.Finding("database", doctor.Health.BAD, f"{error.__cause__ or error}".strip())


async def _connect_and_check(settings: Settings, conninfo: str, url: str) -> list[doctor.Finding]:
    results = []
    missing = await migrate.pending(conninfo)
    clock = SystemClock()
    pool = Pool(conninfo, size=1)
    try:
        # Do not use `wire` here: it creates the service's files.
        storage = Postgres(pool, adapters_of_settings.vault_of(settings), clock)
        began = time.time()
        version, theirs = await storage.about()
        skew = abs(theirs.timestamp() - (began + time.time()) / 2)
        health = doctor.Health.GOOD if version // 10000 >= POSTGRESQL_FLOOR else doctor.Health.BAD
        results.append(doctor.Finding("database", health, f"PostgreSQL {version // 10000}.{version % 10000}"))
        if missing:
            results.append(
                doctor.Finding("migrations", doctor.Health.WARNING, f"{len(missing)} to apply: gatehouse migrate, or start the service")
            )
        else:
            results.append(doctor.Finding("migrations", doctor.Health.GOOD, "up to date"))
            results.append(await _keys(storage, clock))
            results.extend(await check_saml_access(storage, clock))
            results.extend(await check_connections(storage, clock))
            results.extend(await _check_rp_id(settings, storage, url))
            results.extend(await passkey_checks.check_owners(storage, settings.policy, url, clock.now()))
    finally:
        await pool.aclose()
    is_in_sync = skew <= CLOCK_TOLERANCE
    results.append(
        doctor.Finding(
            "clock",
            doctor.Health.GOOD if is_in_sync else doctor.Health.WARNING,
            f"{skew:.1f} s off the database's clock" + ("" if is_in_sync else ": tokens and links expire at the wrong time. Use NTP"),
        )
    )
    return results


async def check_saml_access(storage: Storage, clock: Clock) -> list[doctor.Finding]:
    """Report the services with users that SAML refuses because they enrolled themselves, at most MAX_LISTED_SERVICES."""
    try:
        async with storage.reading() as read:
            listed = await read.end_users.services_with_refused_users(MAX_LISTED_SERVICES + 1, clock.now())
    except errors.StorageDown as error:  # the query reads all users of these services, and so can reach the time limit
        reason = f"{error.__cause__ or error}".strip()
        return [doctor.Finding("SAML access", doctor.Health.WARNING, f"not checked, because the query failed: {reason}")]
    text = "users enrolled themselves, and SAML refuses them: assign them to the service, or set saml_self_enrolled in its access settings"
    findings = [
        doctor.Finding("SAML access", doctor.Health.WARNING, f"{org_slug}/{slug}: {text}")
        for org_slug, slug in listed[:MAX_LISTED_SERVICES]
    ]
    if len(listed) > MAX_LISTED_SERVICES:
        findings.append(
            doctor.Finding(
                "SAML access", doctor.Health.WARNING, f"there are more such services; the first {MAX_LISTED_SERVICES} are listed"
            )
        )
    return findings


async def check_connections(storage: Storage, clock: Clock) -> list[doctor.Finding]:
    """Report the organizations' connections that an admin should look at, at most MAX_LISTED_CONNECTIONS."""
    async with storage.reading() as read:
        concerns = await read.connection_healths.concerns(MAX_LISTED_CONNECTIONS + 1, clock.now() + CERTIFICATE_EXPIRES_SOON)
    findings = []
    for each in concerns[:MAX_LISTED_CONNECTIONS]:
        texts = [] if each.problem is None else [f"users cannot sign in ({each.problem})"]
        texts += [] if each.certificate_end is None else [f"its certificate expires on {format_day(each.certificate_end)}"]
        texts += ["no verified domain leads to it"] if each.lacks_domain else []
        findings.append(doctor.Finding("connections", doctor.Health.WARNING, f"{each.org_slug}/{each.connection_slug}: {'; '.join(texts)}"))
    if len(concerns) > MAX_LISTED_CONNECTIONS:
        text = f"there are more such connections; the first {MAX_LISTED_CONNECTIONS} are listed"
        findings.append(doctor.Finding("connections", doctor.Health.WARNING, text))
    return findings


async def _check_rp_id(settings: Settings, storage: Storage, url: str) -> list[doctor.Finding]:
    try:
        return await passkey_checks.check_rp_id(
            storage, GuardedSender(Guard(adapters_of_settings.allowed_targets(settings))), settings.policy, url
        )
    except (errors.StorageDown, SettingsInvalid) as error:  # the query reads all passkeys, and so can reach the time limit
        return [
            doctor.Finding(
                "passkeys", doctor.Health.WARNING, f"their host was not checked, because the query failed: {error.__cause__ or error}"
            )
        ]


async def _keys(storage: Storage, clock: Clock) -> doctor.Finding:
    try:
        async with storage.reading() as read:
            keys = await read.signing_keys.live(clock.now())
    except SealBroken as error:
        return doctor.Finding("encryption", doctor.Health.BAD, str(error))
    return doctor.Finding(
        "encryption", doctor.Health.GOOD, "the keys decrypt the stored secrets" if keys else "no encrypted values are stored yet"
    )
