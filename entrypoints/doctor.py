"""`gatehouse doctor`: looks at everything the service stands on, and says in plain words what is wrong."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from importlib import metadata
from typing import Final

import trio

from adapters.clock import SystemClock
from adapters.crypto import verifications_per_second
from adapters.dns import Resolver, why
from adapters.http.payments import HttpPayments, KeyRefused
from adapters.postgres.engine.embedded import EmbeddedError
from adapters.postgres.engine.migrate import MigrationRefused, pending
from adapters.postgres.engine.pool import Pool
from adapters.postgres.engine.storage import Postgres
from adapters.saml.libraries import XmlLibrariesDisagree, check_libraries
from core.kernel.errors import PaymentsFailed, StorageDown
from core.kernel.uris import is_web_url
from core.tenancy.domains_rules import DnsFailed
from entrypoints.bind import show_server
from entrypoints.main import base_url, running_database
from entrypoints.settings import Settings, SettingsInvalid
from entrypoints.wiring import (
    check_database_address,
    check_sender,
    geoip,
    hashes_at_once,
    mail_folder,
    openings,
    payment_settings,
    provider_settings,
    smtp,
    vault_of,
)
from ports.crypto import SealBroken
from ports.observe import Clock
from ports.outside import MailRefused
from ports.storage import Storage


class Health(StrEnum):
    """How a thing is."""

    GOOD = "ok"
    WARNING = "warn"
    BAD = "FAIL"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was looked at, how it is, and, if it is not well, what to do."""

    subject: str
    health: Health
    text: str


# Releases below these have known holes (security.md P-1); a test holds the lock file against them.
FLOORS: Final = {
    "pyjwt": "2.15.0",
    "dnspython": "2.6.1",
    "lxml": "6.1.0",
    "cryptography": "46.0.6",
    "h11": "0.16.0",
    "h2": "4.4.1",
    "werkzeug": "3.1.6",
}
# CVE-2026-1299, by minor release of CPython.
PYTHON_FLOORS: Final = {(3, 11): 15, (3, 12): 13, (3, 13): 12, (3, 14): 3}
POSTGRESQL_FLOOR: Final = 15
CLOCK_TOLERANCE: Final = 2.0  # seconds
DNS_DEADLINE: Final = 2.0


def examine(settings: Settings, say: Callable[[str], object]) -> int:
    """Tell of everything; the exit code: 1 if something does not work, else 0."""
    worst = 0
    for finding in findings(settings):
        say(f"{finding.health:<5} {finding.subject:<14} {finding.text}")
        if finding.health is Health.BAD:
            worst = 1
    return worst


def findings(settings: Settings) -> Iterator[Finding]:
    """What there is to say, as it is found out."""
    yield from unknown_settings()
    yield interpreter(sys.version_info[:3])
    yield from libraries()
    yield xml()
    yield hashing(settings)
    yield address(settings)
    yield from frontend(settings)
    yield mail(settings)
    yield from name_servers(settings)
    yield outbound(settings)
    yield locations(settings)
    yield from providers(settings)
    yield billing(settings)
    yield from storage(settings)


def unknown_settings() -> Iterator[Finding]:
    """A setting that is misspelt is silently without effect, so it is named here."""
    known = {f"SSO_{name.upper()}" for name in Settings.model_fields}
    for name in sorted(set(filter(lambda name: name.startswith("SSO_"), os.environ)) - known):
        yield Finding("settings", Health.WARNING, f"{name} is not a setting of this release; is it misspelt?")
    yield Finding("settings", Health.GOOD, "all values are usable")


def interpreter(version: tuple[int, int, int]) -> Finding:
    """Whether the interpreter has its security fixes."""
    shown = ".".join(map(str, version))
    floor = PYTHON_FLOORS.get(version[:2])
    if floor is not None and version[2] < floor:
        fixed = f"{version[0]}.{version[1]}.{floor}"
        return Finding("Python", Health.WARNING, f"{shown} lacks the fix of CVE-2026-1299; use {fixed} or later")
    return Finding("Python", Health.GOOD, shown)


def libraries() -> Iterator[Finding]:
    """Whether the libraries have theirs."""
    for name, floor in FLOORS.items():
        installed = metadata.version(name)
        if _numbers(installed) < _numbers(floor):
            yield Finding("libraries", Health.BAD, f"{name} {installed} has known holes; install {floor} or later")
    yield Finding("libraries", Health.GOOD, ", ".join(f"{name} {metadata.version(name)}" for name in FLOORS))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())


def xml() -> Finding:
    """Whether lxml and xmlsec go together."""
    try:
        return Finding("libxml2", Health.GOOD, f"{check_libraries()}, the same for lxml and xmlsec")
    except XmlLibrariesDisagree as error:
        return Finding("libxml2", Health.BAD, str(error))


def hashing(settings: Settings) -> Finding:
    """Which build of Argon2 runs, and what it gives: the number of logins that this machine can do at most."""
    tags = metadata.distribution("argon2-cffi-bindings").read_text("WHEEL") or ""
    build = "the generic wheel (a C compiler would let ./run build a faster one)" if "manylinux" in tags else "built for this processor"
    cores = hashes_at_once()
    parameters = (settings.argon2_memory_kib, settings.argon2_time_cost, settings.argon2_parallelism)
    one, all_cores = verifications_per_second(*parameters, threads=1), verifications_per_second(*parameters, threads=cores)
    if settings.argon2_memory_kib < 19456 or settings.argon2_time_cost < 2:  # security.md A-1
        return Finding("Argon2", Health.WARNING, "the parameters are below 19456 KiB and 2 passes: a stolen hash is too cheap to guess at")
    return Finding("Argon2", Health.GOOD, f"{build}: {one:.0f} verifications per second on one thread, {all_cores:.0f} on {cores}")


def address(settings: Settings) -> Finding:
    """Whether browsers will keep our cookies safe."""
    url = base_url(settings)
    if url.startswith("https:"):
        return Finding("base URL", Health.GOOD, url)
    return Finding(
        "base URL", Health.WARNING, f"{url} is not https: cookies and tokens travel in the clear. Set SSO_BASE_URL to the public address"
    )


def frontend(settings: Settings) -> Iterator[Finding]:
    """Whether what the platform's own frontend gets reaches nobody else: codes in its address, and tokens."""
    url = settings.frontend_url
    if url is not None and is_web_url(url):
        yield Finding("frontend URL", Health.GOOD, url)
    elif url is not None:
        text = f"{url} is not https: codes and tokens travel in the clear, and anybody on the way can change its pages"
        yield Finding("frontend URL", Health.WARNING, text)


def mail(settings: Settings) -> Finding:
    """Whether mails can leave."""
    try:
        if settings.smtp_url is None:
            check_sender(settings)
            return Finding("mail", Health.WARNING, f"no mail server: mails are written to {mail_folder(settings)}/. Set SSO_SMTP_URL")
        trio.run(smtp(settings.smtp_url, settings).check)
    except SettingsInvalid as error:
        return Finding("mail", Health.BAD, str(error))
    except MailRefused as error:
        return Finding("mail", Health.BAD, f"the mail server is not usable: {error}")
    return Finding("mail", Health.GOOD, "the mail server answers")


def name_servers(settings: Settings) -> Iterator[Finding]:
    """Whether those answer of whom the records are asked that prove domains: each, since one that is silent makes every lookup slow."""
    for server in settings.dns_servers:
        shown = "SSO_DNS_SERVERS: " + show_server(server)
        if (reason := _silent(Resolver([server], deadline=DNS_DEADLINE))) is None:
            yield Finding("DNS", Health.GOOD, f"{shown} answers")
        else:
            yield Finding("DNS", Health.BAD, f"{shown} is not usable: {reason}")
    if not settings.dns_servers:
        if (reason := _silent(Resolver(deadline=DNS_DEADLINE))) is None:
            yield Finding("DNS", Health.GOOD, "the system's resolver answers")
        else:
            text = f"the system's resolver is not usable, so domains cannot be proved: {reason}. Set SSO_DNS_SERVERS"
            yield Finding("DNS", Health.WARNING, text)


def _silent(resolver: Resolver) -> str | None:
    try:
        trio.run(resolver.check)
    except DnsFailed as error:
        return why(error)
    return None


def outbound(settings: Settings) -> Finding:
    """What tenants can have us connect to: their mail servers, for one."""
    try:
        if not openings(settings):
            return Finding("outbound calls", Health.GOOD, "to public addresses only")
    except SettingsInvalid as error:
        return Finding("outbound calls", Health.BAD, str(error))
    text = f"SSO_OUTBOUND_ALLOW lets every tenant have us connect to {settings.outbound_allow}"
    return Finding("outbound calls", Health.WARNING, text)


def locations(settings: Settings) -> Finding:
    """Whether it can be told where logins come from."""
    if settings.geoip_database is None:
        return Finding("locations", Health.GOOD, "not known: SSO_GEOIP_DATABASE is unset")
    try:
        geoip(settings)
    except SettingsInvalid as error:
        return Finding("locations", Health.BAD, str(error))
    return Finding("locations", Health.GOOD, f"those of {settings.geoip_database}")


def providers(settings: Settings) -> Iterator[Finding]:
    """Through whom people can sign in. Nobody is asked: a provider has no answer for somebody without a code."""
    found = provider_settings(settings)
    for provider, known in found.items():
        urls = (known.authorize_url, known.token_url, known.userinfo_url, known.emails_url, known.jwks_url)
        plain = [url for url in urls if url and not is_web_url(url)]
        whose = "for the platform" if known.client else "for services with credentials of their own"
        if plain:
            text = f"{provider.value} is at {plain[0]}: what is said there travels in the clear, and anybody on the way can be anybody"
            yield Finding("providers", Health.WARNING, text)
        else:
            yield Finding("providers", Health.GOOD, f"{provider.value}, {whose}")
    if not found:
        yield Finding("providers", Health.GOOD, "none: people sign in with passwords")


def billing(settings: Settings) -> Finding:
    """Whether plans can be bought, and whether we hear of what was."""
    url, hears = settings.billing_api_url, bool(settings.billing_secrets)
    if url is None:
        text = "events of the payment provider are taken; plans cannot be bought" if hears else "off: SSO_BILLING_API_URL is unset"
        return Finding("billing", Health.GOOD, text)
    try:
        trio.run(HttpPayments(payment_settings(settings), SystemClock()).check)
    except KeyRefused:
        return Finding("billing", Health.BAD, f"the payment provider at {url} refuses the key: see SSO_BILLING_API_KEY")
    except PaymentsFailed as error:
        return Finding("billing", Health.BAD, f"the payment provider at {url} is not usable: {error}")
    if not hears:
        text = "plans can be bought, but of events nothing is heard, so subscriptions are hours late. Set SSO_BILLING_WEBHOOK_SECRET"
        return Finding("billing", Health.WARNING, text)
    if not is_web_url(url):
        return Finding("billing", Health.WARNING, f"the payment provider is at {url}: the key to it travels in the clear")
    return Finding("billing", Health.GOOD, f"through {url}, which answers; its events go to {base_url(settings)}/webhooks/billing")


def storage(settings: Settings) -> Iterator[Finding]:
    """The database: reachable, new enough, migrated, in time with us, and readable with our keys. Looks only; starts and makes nothing."""
    try:
        check_database_address(settings)
        conninfo = running_database(settings)
        if conninfo is None:
            text = "the embedded one is not running: the service starts it, and makes it the first time; look again then"
            yield Finding("database", Health.GOOD, text)
        else:
            yield from trio.run(_look_into_database, settings, conninfo)
    except (SettingsInvalid, EmbeddedError, StorageDown, MigrationRefused) as error:
        yield Finding("database", Health.BAD, f"{error.__cause__ or error}".strip())


async def _look_into_database(settings: Settings, conninfo: str) -> list[Finding]:
    found = []
    missing = await pending(conninfo)
    clock = SystemClock()
    pool = Pool(conninfo, size=1)
    try:
        # Not by `wire`, which makes what the service needs.
        storage = Postgres(pool, vault_of(settings), clock)
        began = time.time()
        version, theirs = await storage.about()
        skew = abs(theirs.timestamp() - (began + time.time()) / 2)
        health = Health.GOOD if version // 10000 >= POSTGRESQL_FLOOR else Health.BAD
        found.append(Finding("database", health, f"PostgreSQL {version // 10000}.{version % 10000}"))
        if missing:
            found.append(Finding("migrations", Health.WARNING, f"{len(missing)} to apply: gatehouse migrate, or start the service"))
        else:
            found.append(Finding("migrations", Health.GOOD, "up to date"))
            found.append(await _keys(storage, clock))
    finally:
        await pool.aclose()
    in_time = skew <= CLOCK_TOLERANCE
    found.append(
        Finding(
            "clock",
            Health.GOOD if in_time else Health.WARNING,
            f"{skew:.1f} s from the database's" + ("" if in_time else ": tokens and links expire at the wrong time; use NTP"),
        )
    )
    return found


async def _keys(storage: Storage, clock: Clock) -> Finding:
    try:
        async with storage.reading() as read:
            keys = await read.signing_keys.live(clock.now())
    except SealBroken as error:
        return Finding("encryption", Health.BAD, str(error))
    return Finding(
        "encryption", Health.GOOD, "the keys open what is stored" if keys else "nothing is stored that the keys would have to open"
    )
