"""The table with all rows: name, description, request, raw cost, bar and aim, setting. A new row is an entry here."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from hashlib import md5
from typing import Final

from actors.dispatching import WEBHOOK_SLOTS
from core.authentication.model.sign_in_log import MAX_LISTED
from core.kernel.page_paths import SIGN_IN_PATH
from ops.bench import billing, connections, end_users, external_clients, loads, pages, passkeys, people, requests, webhooks
from ops.bench.directories import DIRECTORIES, pushes
from ops.bench.end_users import APPLICATIONS
from ops.bench.loads import document, easier, load, once, posts, sign_ins, signature_pairs, two_workers, verifications
from ops.bench.pages import listed, not_empty, page
from ops.bench.requests import ACCOUNTS, OPENID_SCOPE, PROGRAMS, READERS, exchanges
from ops.bench.row import REQUESTS, Bench, Goal, Measure, Row
from ops.bench.tenants import PER_TARGET, TENANTS

_BARE: Final = "a bare ASGI app on Hypercorn"
_CONNECTIONS: Final = f"{REQUESTS.connections} connections"
_READERS: Final = f"{READERS} users"
_LOGINS: Final = f"{loads.LOGINS.connections} connections, {ACCOUNTS} accounts, correct passwords"
_SAML: Final = f"1 worker, {_CONNECTIONS}, {READERS} members, identity-provider-initiated"
_CODES: Final = (
    f"one application with a client secret, each request with another code, {ACCOUNTS} users, "
    "who have all signed in to the application before"
)
_OPENID: Final = f"scope {' '.join(OPENID_SCOPE)}"
_PAIRS: Final = "pairs of bare xmlsec signatures in 1 process, RSA 2048"
_THREADS: Final = "Argon2 verifications on 2 threads"
_ORG: Final = "/api/organizations/{0.slug}"
_ANALYTICS: Final = f"{_ORG}/analytics"
_CONSOLE: Final = "/app/organizations/{0.slug}"
_HTML: Final = 'class="list"'
_ACTION: Final = "security.password.changed"
_REQUEST: Final = md5(b"request 0 0", usedforsecurity=False).hexdigest()
_LOGIN_TABLES: Final = ("login_totals", "login_events")

Request = Callable[[Bench], Measure]


def _bare(name: str, work: str, request: Request, bar: float, aim: float, more: str = "", raw: str = _BARE) -> Row:
    """Return a row that compares requests to a worker with requests to the bare application."""
    setting = f"1 worker, {_CONNECTIONS}{', ' if more else ''}{more}"
    return Row(name, f"{work} / {raw}", request, loads.bare_app, Goal(bar, aim), setting)


def _sized(name: str, work: str, request: Request, sizes: str = "in the large organization / in the small one") -> Row:
    """Return a row that compares how long a request takes about something large and about something small."""
    return Row(name, f"p50 of {work}, {sizes}", request, easier, Goal(2, 1.2), unit="ms")


def _limited(name: str, work: str, request: Request) -> Row:
    """Return a row about a request that may take longer for a large service, up to a limit. A single round is enough for a limit."""
    description = f"p50 of {work}, for the large one (raw: for the small one)"
    return Row(name, description, request, easier, Goal(250, unit="ms"), unit="ms", repeats=False)


# The rows about the same filled service stand together, because it runs from the first row that
# needs it to the last.
ROWS: Final[Sequence[Row]] = (
    Row("logins-wheel", f"logins with 2 workers on 2 cores / {_THREADS}, both with the PyPI wheel",
        sign_ins(requests.logins, wheel=True), verifications, Goal(0.80, 0.88), _LOGINS),
    Row("logins-built", f"logins with 2 workers on 2 cores / {_THREADS}, both with argon2-cffi built for this processor",
        sign_ins(requests.logins), verifications, Goal(0.72, 0.80), _LOGINS),
    _bare("read", "GET /api/user with 1 worker", loads.reads_beside_our_server, 0.50, 0.60, _READERS,
          raw="a bare ASGI app that returns 2 bytes, on Hypercorn's Trio worker"),
    _bare("bound-read", "GET /api/user with a token bound to a key and a new proof, with 1 worker",
          once(requests.bound, 1), 0.25, 0.35, f"{READERS} users with a P-256 key each, replays refused"),
    _bare("service-user-read", "GET /api/service/users/{user_id} with an API key and 1 worker",
          load(requests.read_service_users), 0.45, 0.55, f"{end_users.SMALL_USERS} users of one service"),
    _bare("evaluation", "POST /access/v1/evaluation with an API key and 1 worker",
          load(requests.evaluations), 0.50, 0.70, f"{end_users.SMALL_USERS} users of one service, each with a role"),
    _bare("device-list", f"GET /api/user/devices with 1 worker, {people.DEVICES} devices each",
          load(requests.read_devices), 0.40, 0.55, _READERS),
    _bare("refresh", "POST /api/auth/refresh with 1 worker",
          once(requests.refreshes, 1.5), 0.35, 0.45, "each request is the first refresh of another session"),
    _bare("code-exchange", "POST /auth/token with a code and 1 worker", once(exchanges()), 0.20, 0.28, _CODES),
    _bare("code-exchange-openid", "POST /auth/token with a code and an ID token in the answer, 1 worker",
          once(exchanges(OPENID_SCOPE)), 0.17, 0.22, f"{_CODES}, {_OPENID}"),
    Row("external-authorization",
        "processor time of GET /auth/authorize by an external client with a cached document / by a registered public application",
        external_clients.authorizations, easier, Goal(1.2, 1.1), "1 worker, 1 connection, one user who agreed before", "ms"),
    _bare("userinfo", "GET /auth/userinfo with 1 worker", load(requests.read_userinfo), 0.40, 0.50, f"{_READERS}, {_OPENID}"),
    _bare("introspection", "POST /auth/introspect with an access token and 1 worker",
          load(requests.introspect), 0.35, 0.50, f"one application with a client secret, tokens of {READERS} users"),
    _bare("client-credentials", "POST /auth/token for a service account with a secret and 1 worker",
          load(requests.client_credentials), 0.20, 0.30, f"{PROGRAMS} service accounts of one organization"),
    _bare("mfa-verify", "POST /api/auth/mfa/verify with 1 worker",
          once(people.second_factors), 0.20, 0.28, "each request with the code of another account, on a known device"),
    Row("passkey-sign-in", "POST /api/auth/passkey with 1 worker / a bare ASGI app on Hypercorn that verifies an ES256 signature",
        once(passkeys.sign_ins), loads.verifying_app, Goal(0.15, 0.25),
        f"1 worker, {_CONNECTIONS}, each request with the passkey of another account, on a known device"),
    Row("passkey-against-password", "sign-ins with a passkey / logins with a password, both with 2 workers on 2 cores",
        loads.passkeys_against_passwords, easier, Goal(5, 6), f"{_LOGINS}; passkeys as in passkey-sign-in"),
    Row("saml-responses", f"signed SAML responses with 1 worker / {_PAIRS}",
        load(requests.saml_responses), signature_pairs, Goal(0.30, 0.40), _SAML),
    Row("saml-sign-on", f"SAML sign-ons with the session cookie of a browser and 1 worker / {_PAIRS}",
        load(requests.saml_sign_ons), signature_pairs, Goal(0.30, 0.40), _SAML),
    _bare("oidc-callback", "GET /auth/connections/{connection_id}/callback with 1 worker",
          once(connections.openid_callbacks, 0.2, SSO_OUTBOUND_ALLOW="127.0.0.1"), 0.08, 0.12,
          "each request with the code of another user that the connection knows, and a local OpenID provider"),
    _bare("saml-consume", "responses at POST /auth/connections/{connection_id}/acs, each in two requests, with 1 worker",
          loads.halved(once(connections.saml_responses, 0.4)), 0.08, 0.15,
          "each response for another user that the connection knows, its assertion signed with RSA 2048"),
    _bare("sign-in-page", f"GET {SIGN_IN_PATH} with 1 worker", document(SIGN_IN_PATH, 'type="password"'), 0.45, 0.60),
    Row("sign-in-form", f"POST {SIGN_IN_PATH} with 2 workers on 2 cores / {_THREADS}, as in logins-built",
        sign_ins(requests.sign_in_forms, status=303), verifications, Goal(0.60, 0.75), _LOGINS),
    _bare("overview-page", "pages of GET /app/organizations/{org_slug} with 1 worker", load(requests.overview_pages), 0.06, 0.12),
    _bare("jwks", "GET /.well-known/jwks.json with 1 worker", document("/.well-known/jwks.json", '"RSA"'), 0.45, 0.60),
    _bare("metadata", "GET /.well-known/oauth-authorization-server with 1 worker",
          document("/.well-known/oauth-authorization-server", '"token_endpoint"'), 0.45, 0.60),
    _bare("unknown-path", "GET of a path without a route, which returns 404, with 1 worker",
          load(requests.unknown_path, loads.REFUSED), 0.45, 0.60),
    _bare("billing-events", "POST /webhooks/billing with 1 worker",
          once(requests.change_subscriptions, SSO_BILLING_WEBHOOK_SECRET=billing.SECRET), 0.18, 0.28,
          f"each event is new and changes one of {ACCOUNTS} subscriptions in {billing.ORGANIZATIONS} organizations"),
    Row("deliveries", "deliveries per second with 1 worker / bare httpx posts per second on Trio, with equal concurrency and receiver",
        loads.deliveries, posts, Goal(0.40, 0.60),
        f"1 worker, {WEBHOOK_SLOTS} at once, {webhooks.ORGANIZATIONS} organizations with {webhooks.WEBHOOKS_OF_EACH} webhooks each"),
    Row("delivery-delay", "p50 from the commit of an event to its arrival at the receiver of a webhook",
        loads.delivery_delay, None, Goal(50, unit="ms"), "1 worker, 20 events per second", "ms"),
    Row("reads-during-logins", "p99 of GET /api/user while logins saturate the hashing queue / p99 without logins",
        loads.reads_during_logins, easier, Goal(1.7, 1.3),
        f"1 worker, {loads.BACKGROUND_READS.connections} connections that read; {loads.FULL_QUEUE.connections} that sign in, "
        "as many as the queue holds without refusing one", "ms"),
    Row("reads-two-workers", "GET /api/user with 2 workers / with 1 worker, on 2 cores",
        two_workers(requests.read_users), easier, Goal(1.5, 1.6), f"{_CONNECTIONS}, {_READERS}"),
    Row("saml-two-workers", "signed SAML responses with 2 workers / with 1 worker, on 2 cores",
        two_workers(requests.saml_responses), easier, Goal(1.4, 1.6), f"{_CONNECTIONS}, {_READERS}"),
    Row("memory", "resident memory of one worker after 10,000 requests", loads.memory, None, Goal(115, 95, "MB"),
        "10,000 requests: 70 % reads, 15 % refreshes, 5 % logins, 2 % registrations, 2 % password resets, "
        "and health, metrics, /openapi.json and /docs", "MB", repeats=False),
    Row("start", "seconds from the start of the service, on a database that exists, until it is ready",
        loads.start, None, Goal(1.5, 1.0, "s"), "1 worker, embedded PostgreSQL, which is started too", "s"),
    _bare("scim-create", "POST /scim/v2/Users with 1 worker",
          once(requests.provision_users), 0.18, 0.28, "each request creates another user of one organization"),
    _sized("scim-filter", "GET /scim/v2/Users with a filter that finds one user name",
           page(DIRECTORIES, "/scim/v2/Users?filter=userName+eq+%22{0.email}%22", listed("Resources", lambda _: 1))),
    # The small organization fills the page, because a page with half as many users would be half the work.
    _sized("scim-page", "GET /scim/v2/Users for the first page of 100 users, with their total",
           page(DIRECTORIES, "/scim/v2/Users?startIndex=1&count=100", listed("Resources", lambda one: one.users, length=100),
                against=pages.FULL_PAGE), "in the large organization / in one of 100 users"),
    _sized("scim-group", "GET /scim/v2/Groups/{id} without its members",
           page(DIRECTORIES, "/scim/v2/Groups/{0.org_id}?excludedAttributes=members", '"{0.org_id}"')),
    _sized("scim-push", "PATCH /scim/v2/Groups/{id} that adds or removes 1,000 users", pushes,
           "in a group of all others of 100,000 / in an empty one"),
    _sized("members-page", "the first page of members, with its total",
           page(TENANTS, f"{_ORG}/members", listed("members", lambda one: one.members), beside={
               "the large one's {0.members_of_role:,} with the role member":
                   (f"{_ORG}/members?role=member", listed("members", lambda one: one.members_of_role)),
               "the large one's one with a certain part in the address":
                   (f"{_ORG}/members?search=member-99%40", listed("members", lambda _: 1))})),
    _sized("members-page-html", "the page of members in the console", page(TENANTS, f"{_CONSOLE}/members", _HTML)),
    _sized("audit-page", "the first page of the audit log, with its total",
           page(TENANTS, f"{_ORG}/audit-log", listed("logs", lambda one: one.entries, "user.login.success"))),
    _sized("audit-page-html", "the page of the audit log in the console", page(TENANTS, f"{_CONSOLE}/audit-log", _HTML)),
    _sized("applications-page-html", "the page of applications in the console", page(TENANTS, f"{_CONSOLE}/applications", _HTML)),
    _sized("audit-page-by-target", f"the first page of the audit log about one user, {PER_TARGET} entries",
           page(TENANTS, f"{_ORG}/audit-log?target_type=user&target_id={{0.person}}", listed("logs", lambda _: PER_TARGET), beside={
               "the large one's {0.entries_of_people:,} entries about users":
                   (f"{_ORG}/audit-log?target_type=user", listed("logs", lambda one: one.entries_of_people, "user.login.success")),
               "the large one's {0.entries_of_itself:,} entries about itself":
                   (f"{_ORG}/audit-log?target_type=organization&target_id={{0.id}}", listed("logs", lambda one: one.entries_of_itself)),
               f"the large one's {PER_TARGET} entries about one member, found by a part of the address":
                   (f"{_ORG}/audit-log?search=member-99%40&since=2000-01-01T00:00:00Z", listed("logs", lambda _: PER_TARGET)),
               "the large one's entries by or about its owner in the last 90 days, found by a part of the address":
                   (f"{_ORG}/audit-log?search=member-0%40", not_empty)})),
    _sized("audit-page-by-action", f"the first page of the audit log with the action {_ACTION}",
           page(TENANTS, f"{_ORG}/audit-log?action={_ACTION}", listed("logs", lambda _: 0, _ACTION))),
    Row("authenticated-large", f"p50 of GET /api/user in a database with all these end users and logins / with {pages.FEW:,} users",
        pages.read_among_many, easier, Goal(1.5, 1.1), unit="ms"),
    _sized("service-users-page", "the first page of a service's users, with its total",
           page(APPLICATIONS, "/api/service/users", listed("users", lambda one: one.users)), "for the large service / for the small one"),
    _sized("end-users-page", "the first page of an organization's end users, with its total",
           page(APPLICATIONS, f"{_ORG}/users", listed("users", lambda one: one.active)), "for the large one / for the small one"),
    _sized("sign-ins-page", "the first page of the sign-in log of an organization, with its total",
           page(APPLICATIONS, f"{_ORG}/sign-ins", listed("sign_ins", lambda _: MAX_LISTED), tables=("login_events",), beside={
               "the large one's failures": (f"{_ORG}/sign-ins?success=false", listed("sign_ins", lambda _: MAX_LISTED)),
               "the large one's failures with a reason":
                   (f"{_ORG}/sign-ins?reason=locked", not_empty),
               "the large one's failures with a reason that none has": (f"{_ORG}/sign-ins?reason=saml", listed("sign_ins", lambda _: 0)),
               "the large one's failure in a request": (f"{_ORG}/sign-ins?request_id={_REQUEST}", listed("sign_ins", lambda _: 1)),
               "those at the large one's application":
                   (f"{_ORG}/sign-ins?service_id={{0.id}}", listed("sign_ins", lambda _: MAX_LISTED)),
               "those of the whole platform": ("/api/platform/sign-ins", listed("sign_ins", lambda _: MAX_LISTED)),
               "the failures of the whole platform": ("/api/platform/sign-ins?success=false", listed("sign_ins", lambda _: MAX_LISTED))})),
    _sized("sign-ins-page-html", "the page of the sign-in log of an organization in the console", page(
        APPLICATIONS, f"{_CONSOLE}/sign-ins", _HTML, beside={
            "the page of the platform's": ("/app/platform/sign-ins", _HTML),
            "the page of one of the large one's users": (f"{_CONSOLE}/sign-ins?user_id={{0.people[1]}}", _HTML)})),
    _sized("sign-ins-page-by-person", "the first page of the sign-in log about one user",
           page(APPLICATIONS, f"{_ORG}/sign-ins?user_id={{0.people[1]}}", not_empty)),
    _limited("end-users-search", "a search that finds one of an organization's end users, with its total",
             page(APPLICATIONS, f"{_ORG}/users?search={{0.part}}", listed("users", lambda _: 1), tables=("end_users",))),
    _limited("end-users-search-all", "a search that finds all of an organization's end users, with its total",
             page(APPLICATIONS, f"{_ORG}/users?search={end_users.DOMAIN}", listed("users", lambda one: one.active), tables=("end_users",))),
    _limited("login-trends", "the logins to an organization's services per day, for the last 30 days",
             page(APPLICATIONS, f"{_ANALYTICS}/login-trends", not_empty, tables=_LOGIN_TABLES, beside={
                 f"the large one's of {end_users.LIFE.days} days":
                     (f"{_ANALYTICS}/login-trends?start_date={datetime.now(UTC) - end_users.LIFE:%Y-%m-%d}", not_empty)})),
    _limited("logins-by-service", "the logins to an organization's services by service",
             page(APPLICATIONS, f"{_ANALYTICS}/logins-by-service", not_empty, tables=_LOGIN_TABLES)),
    _limited("logins-by-provider", "the logins to an organization's services by provider",
             page(APPLICATIONS, f"{_ANALYTICS}/logins-by-provider", not_empty, tables=_LOGIN_TABLES)),
    _limited("recent-logins", "the latest logins to an organization's services",
             page(APPLICATIONS, f"{_ANALYTICS}/recent-logins", not_empty, tables=_LOGIN_TABLES)),
    _limited("service-analytics", "all figures of a service with its API key",
             page(APPLICATIONS, "/api/service/analytics", pages.check_figures, tables=("login_totals", "service_users", "subscriptions"))),
)  # fmt: skip
