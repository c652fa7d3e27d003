"""The rows about browsers and public documents: pages, the console, SAML sign-on, keys, metadata and unknown paths."""

from collections.abc import Mapping
from typing import ClassVar, Final

from core.authentication.browser import form_token
from core.kernel.page_paths import SIGN_IN_PATH
from core.kernel.values import new_secret
from ops.bench import people
from ops.bench.page_rows import AuditPage, MembersPage, TenantPage
from ops.bench.request_rows import SamlResponses
from ops.bench.row import ACCOUNTS, PAGE, READERS, REQUESTS, BareAppRow, ask, check_body, check_equal, measure, measure_sequentially
from ops.bench.service import access_tokens, add_accounts, email_of, password_of
from ops.bench.sign_in_rows import LOGINS, LoginsOnBuild
from ops.bench.table import Goal, Sample
from ops.bench.tenants import Tenant
from ops.bench.wrk import Request, Wrk

UNKNOWN: Final = Wrk(connections=REQUESTS.connections, refused=True)


class Document(BareAppRow):
    """A page or a document that needs no session."""

    path: str
    contains: str  # a part of the response

    def prepare(self, seconds: int, rounds: int) -> None:
        super().prepare(seconds, rounds)
        check_body(self.service, Request("GET", self.path), self.contains)

    def ours(self, seconds: int) -> Sample:
        return measure(self.service, REQUESTS, [Request("GET", self.path)], seconds)


class SignInPage(Document):
    name = "sign-in-page"
    description = f"GET {SIGN_IN_PATH} with 1 worker / a bare ASGI app on Hypercorn"
    goal = Goal(bar=0.45, aim=0.60)
    path, contains = SIGN_IN_PATH, 'type="password"'


class Keys(Document):
    name = "jwks"
    description = "GET /.well-known/jwks.json with 1 worker / a bare ASGI app on Hypercorn"
    goal = Goal(bar=0.45, aim=0.60)
    path, contains = "/.well-known/jwks.json", '"RSA"'


class Metadata(Document):
    name = "metadata"
    description = "GET /.well-known/oauth-authorization-server with 1 worker / a bare ASGI app on Hypercorn"
    goal = Goal(bar=0.45, aim=0.60)
    path, contains = "/.well-known/oauth-authorization-server", '"token_endpoint"'


class UnknownPath(BareAppRow):
    name = "unknown-path"
    description = "GET of a path without a route, which returns 404, with 1 worker / a bare ASGI app on Hypercorn"
    goal = Goal(bar=0.45, aim=0.60)

    def prepare(self, seconds: int, rounds: int) -> None:
        super().prepare(seconds, rounds)
        self.request = Request("GET", "/api/nothing")
        check_body(self.service, self.request, "NOT_FOUND", status=404)

    def ours(self, seconds: int) -> Sample:
        return measure(self.service, UNKNOWN, [self.request], seconds)


class SignInForm(LoginsOnBuild):
    name = "sign-in-form"
    description = f"POST {SIGN_IN_PATH} with 2 workers on 2 cores / Argon2 verifications on 2 threads, as in logins-built"
    goal = Goal(bar=0.60, aim=0.75)

    def prepare(self, seconds: int, rounds: int) -> None:
        super().prepare(seconds, rounds)
        self.requests = [self._form(number) for number in range(ACCOUNTS)]
        check_body(self.service, self.requests[0], "", status=303)

    def ours(self, seconds: int) -> Sample:
        return measure(self.service, LOGINS, self.requests, seconds)

    def _form(self, number: int) -> Request:
        device = new_secret()
        form = {"email": email_of(number), "password": password_of(number), "form_token": form_token(device)}
        return Request("POST", SIGN_IN_PATH, cookie=f"gatehouse-device={device}", form=form)


class SamlSignOn(SamlResponses):
    """The page that signs a browser in to a SAML application, from the session of the browser."""

    name = "saml-sign-on"
    description = "SAML sign-ons with the session cookie of a browser and 1 worker / pairs of bare xmlsec signatures in 1 process, RSA 2048"
    goal = Goal(bar=0.30, aim=0.40)

    def prepare(self, seconds: int, rounds: int) -> None:
        self.service = self.start_service(workers=1)
        add_accounts(self.service, READERS)
        path = people.add_saml(self.service, access_tokens(self.service, 1)[0])
        sessions = people.add_browser_sessions(self.service)
        self.requests = [Request("GET", f"{path}/login", cookie=f"gatehouse-session={secret}") for secret in sessions]
        check_body(self.service, self.requests[0], 'name="SAMLResponse"')


class OverviewPage(BareAppRow):
    """The overview of an organization in the console."""

    name = "overview-page"
    description = "pages of GET /app/organizations/{org_slug} with 1 worker / a bare ASGI app on Hypercorn"
    goal = Goal(bar=0.06, aim=0.12)

    def prepare(self, seconds: int, rounds: int) -> None:
        super().prepare(seconds, rounds)
        add_accounts(self.service, READERS)
        people.add_saml(self.service, access_tokens(self.service, 1)[0])
        sessions = people.add_browser_sessions(self.service)
        self.requests = [Request("GET", "/app/organizations/acme", cookie=f"gatehouse-session={secret}") for secret in sessions]
        check_body(self.service, self.requests[0], "<h1>Overview")

    def ours(self, seconds: int) -> Sample:
        return measure(self.service, REQUESTS, self.requests, seconds)


class InConsole(TenantPage):
    """The same list as a page of the console."""

    page_name: ClassVar[str | None] = None  # the last part of its path, unless it is `resource`

    def prepare(self, seconds: int, rounds: int) -> None:
        super().prepare(seconds, rounds)
        self.cookies = [f"gatehouse-session={secret}" for secret in people.add_browser_sessions(self.service)]
        for tenant in (self.tenants.small, self.tenants.large):
            check_body(self.service, self.page(tenant), 'class="list"')

    def page(self, tenant: Tenant) -> Request:
        cookie = self.cookies[0 if tenant is self.tenants.large else 1]
        return Request("GET", f"/app/organizations/{tenant.slug}/{self.page_name or self.resource}", cookie=cookie)

    def measure_page(self, tenant: Tenant, filters: Mapping[str, str], seconds: int) -> Sample:
        return measure_sequentially(self.service, self.page(tenant), seconds)


class MembersInConsole(InConsole, MembersPage):
    name = "members-page-html"
    description = "p50 of the page of members in the console, in the large organization / in the small one"

    def comparisons(self, seconds: int) -> Mapping[str, Sample]:
        return {}


class AuditInConsole(InConsole, AuditPage):
    name = "audit-page-html"
    description = "p50 of the page of the audit log in the console, in the large organization / in the small one"


class ApplicationsInConsole(InConsole):
    name = "applications-page-html"
    description = "p50 of the page of applications in the console, in the large organization / in the small one"
    resource = listed = "services"
    page_name = "applications"

    def total(self, tenant: Tenant) -> int:
        return tenant.services

    def filters(self, tenant: Tenant) -> Mapping[str, str]:
        return {"limit": str(PAGE)}

    def check(self, request: Request, total: int) -> int:
        shown = ask(self.service, request)
        check_equal(f"The total of {request.path}", shown["usage"]["current_services"], total)
        return len(shown[self.listed])
