"""The requests that rows send, with what the service needs for them."""

from collections.abc import Callable, Iterator, Sequence
from itertools import count, islice
from typing import Final

from core.authentication.browser import form_token
from core.kernel import scannable_secrets
from core.kernel.page_paths import SIGN_IN_PATH
from core.kernel.scannable_secrets import CREDENTIAL_PREFIX
from core.kernel.values import digest, new_secret
from ops.bench import billing, directories, end_users, people
from ops.bench.filling import add_organization
from ops.bench.people import RelyingApplication, access_tokens, add_accounts, browser_cookies, credentials_of, email_of
from ops.bench.row import REQUESTS, check_equal
from ops.bench.service import Service
from ops.bench.wrk import Request

ACCOUNTS: Final = 400  # enough that no account has several logins in progress, which count as failures until they are verified
READERS: Final = 64
PROGRAMS: Final = 50
OPENID_SCOPE: Final = ("openid", "profile", "email")
MIXED_TIMEOUT: Final = 120  # seconds for 10,000 requests

Following = Callable[[int], Sequence[Request]]  # returns that many further requests


def checked(on: Service, requests: Sequence[Request], part: str, status: int = 200) -> Sequence[Request]:
    """Return the requests. Raises: MeasurementFailed unless the first response has this status and contains `part`."""
    on.check(requests[0], part, status)
    return requests


def _following(requests: Iterator[Request]) -> Following:
    return lambda number: list(islice(requests, number))


def unknown_path(on: Service) -> Sequence[Request]:
    return checked(on, [Request("GET", "/api/nothing")], "NOT_FOUND", 404)


# Users


def logins() -> list[Request]:
    """Return a login request per account."""
    return [Request("POST", "/api/auth/login", body=credentials_of(number)) for number in range(ACCOUNTS)]


def read_users(on: Service, path: str = "/api/user") -> list[Request]:
    add_accounts(on, READERS)
    return [Request("GET", path, token) for token in access_tokens(on, READERS)]


def read_devices(on: Service) -> list[Request]:
    requests = read_users(on, "/api/user/devices")
    people.add_devices(on)
    check_equal("The number of devices", on.ask(requests[0])["total"], people.DEVICES + 1)  # plus the login's device
    return requests


def bound(on: Service, _: int) -> Following:
    add_accounts(on, ACCOUNTS)
    return people.bound_reads(on, READERS)


def read_service_users(on: Service) -> Sequence[Request]:
    large, _ = end_users.add_applications(on, end_users.LITTLE, lambda _: None)
    on.tidy()
    key = {"X-Api-Key": large.key}
    requests = [Request("GET", f"/api/service/users/{user_id}", more=key) for user_id in large.people]
    return checked(on, requests, f'"id":"{large.people[0]}"')


def evaluations(on: Service) -> Sequence[Request]:
    """Return questions about a permission that all users of a service have, through one role of three."""
    large, _ = end_users.add_applications(on, end_users.LITTLE, lambda _: None)
    end_users.add_roles(on, large)
    on.tidy()
    key = {"X-Api-Key": large.key}
    body = {"action": {"name": "documents:read"}, "resource": {"type": "document", "id": "q3-report"}}
    requests = [
        Request("POST", "/access/v1/evaluation", body={**body, "subject": {"type": "user", "id": user_id}}, more=key)
        for user_id in large.people
    ]
    return checked(on, requests, '"decision":true')


def refresh(token: str) -> Request:
    return Request("POST", "/api/auth/refresh", body={"refresh_token": token})


def refreshes(on: Service, number: int) -> Following:
    """Return refreshes with the sessions' first tokens.

    A token is valid for a single refresh, and wrk cannot pass a response's token to the next request. No real session is refreshed a
    thousand times in seconds either.
    """
    add_accounts(on, ACCOUNTS)
    return _following(map(refresh, people.add_sessions(on, number)))


def exchanges(scope: Sequence[str] = ()) -> Callable[[Service, int], Following]:
    def source(on: Service, number: int) -> Following:
        add_accounts(on, ACCOUNTS)
        requests = RelyingApplication(on).exchanges(ACCOUNTS + number, scope)
        # A user's first sign-in waits for the lock on the application's user counter.
        REQUESTS.drive(on.address, requests[:ACCOUNTS], MIXED_TIMEOUT, once=True)
        return _following(iter(requests[ACCOUNTS:]))

    return source


def _openid_tokens(on: Service) -> tuple[RelyingApplication, list[str]]:
    add_accounts(on, READERS)
    application = RelyingApplication(on)
    return application, [on.ask(exchange)["access_token"] for exchange in application.exchanges(READERS, OPENID_SCOPE)]


def read_userinfo(on: Service) -> Sequence[Request]:
    _, tokens = _openid_tokens(on)
    return checked(on, [Request("GET", "/auth/userinfo", token) for token in tokens], '"email"')


def introspect(on: Service) -> Sequence[Request]:
    application, tokens = _openid_tokens(on)
    forms = ({"token": token, **application.credentials} for token in tokens)
    return checked(on, [Request("POST", "/auth/introspect", form=form) for form in forms], '"active":true')


def client_credentials(on: Service) -> Sequence[Request]:
    """Return token requests from service accounts with their own secrets, all in the same organization."""
    add_accounts(on, READERS)
    secrets = [scannable_secrets.generate(CREDENTIAL_PREFIX) for _ in range(PROGRAMS)]
    accounts = on.query(
        """
        with owner as (
            insert into memberships (id, org_id, user_id, role, created_at, confirmed_at)
            select gen_random_uuid(), %(org)s, id, 'owner', now(), now() from users order by email limit 1 returning user_id),
        new as (select gen_random_uuid() as id, hash, user_id from owner, unnest(%(hashes)s::bytea[]) hash),
        added as (
            insert into service_accounts (id, org_id, name, owner_id, role, created_by, created_at, updated_at)
            select id, %(org)s, 'Robot', user_id, 'admin', user_id, now(), now() from new)
        insert into credentials (id, client_id, org_id, kind, name, secret_hash, created_by, created_at)
        select gen_random_uuid(), id, %(org)s, 'secret', 'Main', hash, user_id, now() from new returning client_id, secret_hash""",
        org=add_organization(on, "robots", 1),
        hashes=[digest(secret) for secret in secrets],
    )
    on.tidy()
    clients = {bytes(hashed): str(account) for account, hashed in accounts}
    forms = [{"grant_type": "client_credentials", "client_id": clients[digest(secret)], "client_secret": secret} for secret in secrets]
    return checked(on, [Request("POST", "/auth/token", form=form) for form in forms], '"scope":"organization:read')


def provision_users(on: Service, _: int) -> Following:
    token = directories.add_directory(on, "acme", 1).token
    on.tidy()

    def requests() -> Iterator[Request]:
        for number in count():
            body = {
                "schemas": ["urn:ietf:params:scim:schemas:core:2.0:User"],
                "userName": f"newcomer-{number}@{directories.DOMAIN}",
                "externalId": f"external-{number}",
                "name": {"givenName": f"Given {number}", "familyName": f"Family {number}"},
                "active": True,
            }
            yield Request("POST", "/scim/v2/Users", token, body)

    return _following(requests())


def change_subscriptions(on: Service, _: int) -> Following:
    add_accounts(on, ACCOUNTS)
    return _following(billing.subscription_changes(on))


# Organizations with a SAML application


def saml_path(on: Service) -> tuple[str, list[str]]:
    """Make new accounts members in an organization with a SAML application. Return its sign-on path, and access tokens.

    The first token's user owns the organization.
    """
    add_accounts(on, READERS)
    tokens = access_tokens(on, READERS)
    on.query(
        """
        with added as (
            insert into services (id, org_id, slug, name, service_type, client_id, redirect_uris, created_at, updated_at)
            values (gen_random_uuid(), %(org)s, 'shop', 'Shop', 'mobile', gen_random_uuid(), '{}', now(), now()))
        insert into memberships (id, org_id, user_id, role, created_at, confirmed_at)
        select gen_random_uuid(), %(org)s, id, case when email = %(owner)s then 'owner' else 'member' end, now(), now() from users""",
        org=add_organization(on, "acme", READERS),
        owner=email_of(0),
    )
    path = "/api/organizations/acme/services/shop/saml"
    configuration = {"enabled": True, "entity_id": "https://shop.bench.example", "acs_url": "https://shop.bench.example/acs"}
    on.ask(Request("POST", path, tokens[0], configuration))
    on.ask(Request("POST", f"{path}/certificate", tokens[0]))
    on.tidy()
    return f"{path}/login", tokens


def saml_responses(on: Service) -> Sequence[Request]:
    path, tokens = saml_path(on)
    return [Request("GET", path, token) for token in tokens]


def saml_sign_ons(on: Service) -> Sequence[Request]:
    path, _ = saml_path(on)
    return checked(on, [Request("GET", path, more=cookie) for cookie in browser_cookies(on)], 'name="SAMLResponse"')


def overview_pages(on: Service) -> Sequence[Request]:
    saml_path(on)
    return checked(on, [Request("GET", "/app/organizations/acme", more=cookie) for cookie in browser_cookies(on)], "<h1>Overview")


def sign_in_forms() -> list[Request]:
    devices = [new_secret() for _ in range(ACCOUNTS)]
    forms = ({**credentials_of(number), "form_token": form_token(device)} for number, device in enumerate(devices))
    cookies = ({"Cookie": f"gatehouse-device={device}"} for device in devices)
    return [Request("POST", SIGN_IN_PATH, form=form, more=cookie) for form, cookie in zip(forms, cookies, strict=True)]
