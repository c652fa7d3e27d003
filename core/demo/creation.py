"""Demo data to try Gatehouse with: two organizations with members, services, programs and end users (`gatehouse demo`).

Everything has a fixed name, so a second run reuses the data from the first run. Secrets that cannot be shown again are
replaced. A single transaction makes all changes. If the demo data cannot be created, nothing changes, and existing
secrets stay valid. No email is sent.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, replace
from uuid import UUID

from core.accounts import accounts, mailbox
from core.applications import api_keys, plans, services
from core.applications.model import services as services_model
from core.applications.model.plans import Plan, PlanTerms
from core.applications.model.services import Service, ServiceType
from core.applications.model.users import EnrollmentOrigin
from core.authentication import events as authentication_events
from core.authentication import sessions
from core.authentication.model.dpop import ProofUse
from core.authentication.model.sessions import SessionStart
from core.billing import subscriptions
from core.demo import connections, factors, groups
from core.demo.model import demo
from core.eventing import webhooks as hooks
from core.eventing.model.webhooks import Webhook
from core.federation import claims
from core.federation.saml import configuration as saml
from core.federation.saml import events as saml_events
from core.federation.saml.model.configuration import CERTIFICATE_YEARS, SamlConfiguration
from core.kernel import callers, causes, roles, uris, values
from core.kernel.api_scopes import ApiScope
from core.kernel.errors import Refusal
from core.kernel.proofs import Method, Proof
from core.kernel.roles import OWNER
from core.programs import api_resources, credentials, service_accounts
from core.programs.model.service_accounts import MAX_ACCOUNTS
from core.programs.service_accounts import NewServiceAccount
from core.provisioning import tokens as scim_tokens
from core.tenancy import attributes, governance, members, organizations, platform_owners
from core.tenancy import events as tenancy_events
from core.tenancy import roles as organization_roles
from core.tenancy.model.organizations import Membership, Organization
from ports import Ports
from ports.storage import Autocommit, Reading, Storage, Transaction


async def seed(ports: Ports, redirect_uris: Sequence[str] = ()) -> demo.Demo:
    """Create or refresh the demo data, with new passwords, client secrets and keys.

    The applications use `redirect_uris`, or the default URIs if it is empty. After a refusal, nothing has changed.
    """
    services_model.validate_redirect_uris(ServiceType.MOBILE, redirect_uris)
    passwords = {email: values.new_secret()[:16] for email in demo.all_addresses()}
    # Hashing is slow, so it happens before the locks.
    hashes = {email: await ports.passwords.hash(password) for email, password in passwords.items()}
    async with ports.storage.transaction(by=causes.SYSTEM) as tx:
        await tx.accounts.lock_platform_owners()  # this also makes concurrent runs wait for each other
        existing = await _load_organizations(tx)
        seeding = _Seeding(replace(ports, storage=SharedTransaction(tx, ports.storage)), tx, passwords, hashes, redirect_uris)
        platform_owner = await _ensure_user(seeding, demo.PLATFORM_OWNER)
        await platform_owners.make_owner(tx, platform_owner.id, ports.clock.now())  # the operator controls the database anyway
        first, other = [await _ensure_tenant(seeding, platform_owner, slug, existing[slug]) for slug in demo.ORGANIZATIONS]
    return demo.Demo(platform_owner, first, other)


def mobile_only_uris(redirect_uris: Sequence[str]) -> list[str]:
    """Return the redirect URIs that only an installed application may use, such as those with a private scheme."""
    return [uri for uri in redirect_uris if not uris.is_web_url(uri)]


@dataclass(frozen=True, slots=True)
class _Seeding:
    """Values that all steps share. Use cases with these `ports` run inside the transaction."""

    ports: Ports
    tx: Transaction
    passwords: Mapping[values.Email, str]
    hashes: Mapping[values.Email, str]
    redirect_uris: Sequence[str]


class SharedTransaction:
    """Implements ports.storage.Storage with a transaction that is already open.

    All use cases commit together, although every use case asks for a transaction. Reads outside the transaction do not
    see its changes.
    """

    def __init__(self, tx: Transaction, storage: Storage) -> None:
        self._tx = tx
        self._storage = storage

    def transaction(self, by: causes.Caller, *, in_session: bool = True) -> AbstractAsyncContextManager[Transaction]:
        return nullcontext(self._tx)  # the events name the operator's command, not a use case's caller

    def reading(self, *, using: ProofUse | None = None) -> AbstractAsyncContextManager[Reading]:
        return self._storage.reading(using=using)

    def autocommit(self) -> AbstractAsyncContextManager[Autocommit]:
        return self._storage.autocommit()

    async def ping(self) -> None:
        await self._storage.ping()


async def _load_organizations(tx: Transaction) -> Mapping[values.Slug, Organization | None]:
    """Lock and return the existing demo organizations.

    Lock order: organizations by id, then accounts by id, as in all use cases.

    Raises: DemoRefused if an organization or an account cannot be used.
    """
    found = [await find_organization(tx, slug) for slug in demo.ORGANIZATIONS]
    for org_id in sorted(organization.id for organization in found if organization is not None):
        await tx.organizations.lock(org_id)
    existing = {slug: await find_organization(tx, slug) for slug in demo.ORGANIZATIONS}
    for slug, organization in existing.items():
        match organization.status if organization else None:
            case callers.OrganizationStatus.SUSPENDED:
                raise demo.DemoRefused(f"The organization {slug} is suspended. Activate or delete it, and try again.")
            case callers.OrganizationStatus.REJECTED:
                raise demo.DemoRefused(f"The organization {slug} was rejected. Delete it, and try again.")
    accounts_found = [account for email in demo.all_addresses() if (account := await tx.accounts.by_email(email)) is not None]
    for user_id in sorted(account.id for account in accounts_found):
        account = await tx.accounts.lock(user_id)
        if account is not None and not account.is_usable:
            raise demo.DemoRefused(f"The account {account.email} is deactivated. Activate it, or set SSO_DATABASE_URL to another database.")
    return existing


async def find_organization(tx: Transaction, slug: values.Slug) -> Organization | None:
    """Return the organization with this slug, or None if there is none. Raises: DemoRefused if the demo's owner does not own it."""
    owner = await tx.accounts.by_email(demo.member_email(slug, OWNER))
    for organization, membership in [] if owner is None else await tx.organizations.by_member(owner.id):
        if organization.slug == slug and membership.is_owner:
            return organization
    if await tx.organizations.status_by_slug(slug) is not None:
        raise demo.DemoRefused(
            f"The organization {slug} is not the demo's: {demo.member_email(slug, OWNER)} does not own it. "
            "Delete it if it is not needed, or set SSO_DATABASE_URL to another database, and try again."
        )
    return None


async def _ensure_user(seeding: _Seeding, email: values.Email) -> demo.DemoUser:
    """Return the account with this address, verified and with a new password. Create it if necessary."""
    tx, now = seeding.tx, seeding.ports.clock.now()
    account, _ = await accounts.find_or_add(tx, email, now)
    if account.email_verified_at is None:
        # Another person may have registered the address, and must not keep access (security A-7).
        await mailbox.revoke_all_access(tx, account, now)
    await tx.accounts.mark_verified(account.id, now)
    await tx.accounts.set_password(account.id, seeding.hashes[email], now)
    return demo.DemoUser(account.id, email, seeding.passwords[email])


def _as_person(user: demo.DemoUser) -> callers.Person:
    return callers.Person(user_id=user.id, email=user.email, email_verified=True, session_id=values.new_id())


async def _ensure_tenant(seeding: _Seeding, platform_owner: demo.DemoUser, slug: values.Slug, existing: Organization | None) -> demo.Tenant:
    """Create or refresh an organization with all its data."""
    try:
        return await _fill_tenant(seeding, platform_owner, slug, existing)
    except Refusal as refusal:  # for example, a limit is reached
        raise demo.DemoRefused(f"The demo data of the organization {slug} cannot be created: {refusal.message}") from refusal


async def _fill_tenant(seeding: _Seeding, platform_owner: demo.DemoUser, slug: values.Slug, existing: Organization | None) -> demo.Tenant:
    owner = await _ensure_user(seeding, demo.member_email(slug, OWNER))
    organization = await _ensure_active(seeding, platform_owner, owner, slug, existing)
    context = callers.OrganizationContext(organization.id, organization.slug, organization.status, OWNER, roles.rights_of(OWNER))
    caller = callers.to_member(_as_person(owner), context)
    if await seeding.tx.roles.find(organization.id, demo.AUDITOR) is None:
        await organization_roles.create(seeding.ports, caller, demo.AUDITOR_ROLE)
    admin, member, auditor = [await _ensure_member(seeding, caller, role) for role in (roles.ADMIN, roles.MEMBER, demo.AUDITOR)]
    web = await _ensure_application(seeding, caller, demo.WEB, "Web Shop", ServiceType.WEB)
    mobile = await _ensure_application(seeding, caller, demo.MOBILE, "Mobile Shop", ServiceType.MOBILE)
    saml_configuration = await _ensure_saml(seeding, caller, web.service)
    plan = await _ensure_plan(seeding, caller, web.service, f"price_{slug}_professional")
    key_id, key = await _replace_api_key(seeding, caller, web.service)
    resource = await _ensure_api_resource(seeding, caller)
    robot = await _replace_service_account(seeding, caller, resource.resource.id)
    directory = await _replace_scim_token(seeding, caller)
    await _ensure_claims(seeding, caller, web.service, member.id)
    end_users = [await _ensure_end_user(seeding, caller, web.service, slug, name) for name in demo.END_USERS]
    await _ensure_subscription(seeding, caller, web.service, key_id, end_users[0], plan)
    await groups.ensure_roles(seeding.ports, seeding.tx, caller, web.service, {groups.MANAGER: admin, groups.CLERK: end_users[0]})
    webhook, webhook_secret = await _ensure_webhook(seeding, caller)
    group_id = await groups.ensure_group(seeding.ports, seeding.tx, caller, web.service.redirect_uris, [admin.id, member.id])
    await groups.give_to_group(seeding.ports, seeding.tx, caller, web.service, group_id)
    await groups.ensure_auditors(seeding.ports, seeding.tx, caller, demo.AUDITOR, [admin.id])
    await groups.ensure_sales(seeding.ports, seeding.tx, caller, demo.COST_CENTER, [admin.id])
    if slug == demo.ORGANIZATION_WITH_POLICY:
        await factors.ensure_policy(seeding.ports, seeding.tx, organization.id)
    return demo.Tenant(
        organization=organization,
        owner=owner,
        admin=admin,
        member=member,
        auditor=auditor,
        web=web,
        mobile=mobile,
        saml=saml_configuration,
        plan=plan,
        api_key=key,
        api_resource=resource,
        service_account=robot,
        scim_token=directory,
        webhook=webhook,
        webhook_secret=webhook_secret,
        connection=await connections.ensure_connection(seeding.ports, seeding.tx, caller),
        routed_domain=await connections.ensure_route(seeding.ports, caller),
        setup_link=await connections.replace_link(seeding.ports, seeding.tx, caller),
        end_users=end_users,
    )


async def _ensure_active(
    seeding: _Seeding, platform_owner: demo.DemoUser, owner: demo.DemoUser, slug: values.Slug, existing: Organization | None
) -> Organization:
    organization, is_new, steward = existing, existing is None, _as_person(platform_owner)
    if organization is None:
        now = seeding.ports.clock.now()
        organization = await organizations.add_organization(seeding.tx, seeding.ports, slug, demo.ORGANIZATIONS[slug], now)
        await organizations.add_first_owner(seeding.tx, organization, owner.id, now)
    if organization.status is callers.OrganizationStatus.PENDING:
        # The demo's addresses have no mailboxes.
        organization, is_new = await governance.approve(seeding.ports, steward, organization.id, None, notify=False), True
    if is_new and organization.tier is not None:  # a visitor adds applications to the demo's applications
        tier_id = organization.tier.id
        organization = await governance.change_tier(seeding.ports, steward, organization.id, tier_id, max_services=demo.MAX_SERVICES)
    return organization


async def _ensure_member(seeding: _Seeding, caller: callers.Member, role: roles.RoleName) -> demo.DemoUser:
    tx, org_id, now = seeding.tx, caller.acts_in.id, seeding.ports.clock.now()
    user = await _ensure_user(seeding, demo.member_email(values.Slug(caller.acts_in.slug), role))
    if await tx.members.lock(org_id, user.id) is None:
        await tx.members.add(Membership(id=values.new_id(), org_id=org_id, user_id=user.id, role=role, created_at=now, confirmed_at=now))
        tx.record(tenancy_events.user_joined(org_id, user.id, role))
    await members.change_role(seeding.ports, caller, user.id, role)
    return user


async def _ensure_application(
    seeding: _Seeding, caller: callers.Member, slug: values.Slug, name: str, service_type: ServiceType
) -> demo.Application:
    refused_uris = () if service_type.is_native else mobile_only_uris(seeding.redirect_uris)
    redirect_uris = tuple(uri for uri in seeding.redirect_uris if uri not in refused_uris)
    settings = {"redirect_uris": redirect_uris or (demo.MOBILE_URIS if service_type.is_public else demo.WEB_URIS)}
    service = await seeding.tx.services.by_slug(caller.acts_in.id, slug)
    if service is None:
        created = await services.create(seeding.ports, caller, slug, name, service_type, settings)
        return demo.Application(created.service, created.client_secret)
    if service.service_type is not service_type:
        service, _ = await services.update(seeding.ports, caller, slug, {**settings, "service_type": service_type})
    elif redirect_uris or not service.redirect_uris:
        service, _ = await services.update(seeding.ports, caller, slug, settings)
    return demo.Application(service, None if service_type.is_public else await services.rotate_secret(seeding.ports, caller, slug))


async def _ensure_saml(seeding: _Seeding, caller: callers.Member, service: Service) -> SamlConfiguration:
    """Return the SAML configuration, which users may have changed. Enable it and create a certificate if necessary."""
    tx, now = seeding.tx, seeding.ports.clock.now()
    configuration = await tx.saml.configuration(service.org_id, service.id)
    if configuration is None or not configuration.enabled:
        configuration = demo.SAML
        await saml.configure(seeding.ports, caller, service.slug, configuration)
    if await tx.saml.certificate(service.org_id, service.id) is None:
        # saml.create_certificate is not used: it would read the service outside the transaction,
        # where it may not exist yet.
        certificate = await seeding.ports.certificates.create(caller.acts_in.slug, service.slug, now, CERTIFICATE_YEARS)
        await tx.saml.add_certificate(service.org_id, service.id, certificate)
        tx.record(saml_events.saml_certificate_created(service, certificate))
    return configuration


async def _ensure_claims(seeding: _Seeding, caller: callers.Member, service: Service, member_id: UUID) -> None:
    """Declare an attribute, give the member a value, and map it to a claim in the application. Users may have changed all these things."""
    if await seeding.tx.attributes.list_declared(service.org_id):
        return
    attribute = await attributes.create(seeding.ports, caller, demo.cost_center(service.org_id, seeding.ports.clock.now()))
    await attributes.change_of_member(seeding.ports, caller, member_id, {attribute.name: "4711"})
    await claims.save(seeding.ports, caller, service.slug, demo.CLAIMS, 0)


async def _ensure_plan(seeding: _Seeding, caller: callers.Member, service: Service, price: str) -> Plan:
    async def read_page(last: Plan | None, count: int) -> list[Plan]:
        return await seeding.tx.plans.list_after(service.org_id, service.id, last, count)

    async for batch in values.Batches(read_page):
        for plan in batch:
            if plan.billing_price_id == price:
                return plan
    terms = PlanTerms(name=demo.PLAN_NAME, price_cents=1900, currency="eur", features=("exports", "support"), billing_price_id=price)
    return await plans.create(seeding.ports, caller, service.slug, terms)


async def _ensure_api_resource(seeding: _Seeding, caller: callers.Member) -> demo.DemoApiResource:
    """Return the API resource, with a new secret. Create it if necessary."""
    ports, tx, org_id = seeding.ports, seeding.tx, caller.acts_in.id
    identifier = demo.RESOURCE_URN.format(org_id=org_id)
    existing = [resource for resource in await tx.api_resources.of_org(org_id) if resource.identifier == identifier]
    if existing:
        resource = existing[0]
        for credential in await tx.credentials.of_client(org_id, resource.id):
            await credentials.revoke_of_resource(ports, caller, resource.id, credential.id)
        if demo.READ_ORDERS not in resource.scope_names:
            changes = api_resources.ApiResourceChanges(scopes=demo.RESOURCE_SCOPES)
            resource = await api_resources.update(ports, caller, resource.id, changes)
    else:
        resource = await api_resources.create(ports, caller, identifier, demo.RESOURCE_NAME, demo.RESOURCE_SCOPES)
    _, text = await credentials.create_for_resource(ports, caller, resource.id, demo.NEW_SECRET)
    assert text is not None, "a secret has a text"
    return demo.DemoApiResource(resource, text)


async def _replace_service_account(seeding: _Seeding, caller: callers.Member, resource_id: UUID) -> demo.DemoServiceAccount:
    """Return the service account that reads members and orders, with a new secret. Create it if necessary."""
    accounts_found = await seeding.tx.service_accounts.page(caller.acts_in.id, values.Page(1, MAX_ACCOUNTS), seeding.ports.clock.now())
    existing = [listed.account.id for listed in accounts_found.items if listed.account.name == demo.ROBOT_NAME]
    if existing:
        account_id = existing[0]
        for credential in await seeding.tx.credentials.of_client(caller.acts_in.id, account_id):
            await service_accounts.revoke_credential(seeding.ports, caller, account_id, credential.id)
    else:
        request = NewServiceAccount(name=demo.ROBOT_NAME, role=roles.ADMIN, scopes=frozenset({ApiScope.MEMBERS_READ}))
        account_id = (await service_accounts.create(seeding.ports, caller, request)).account.id
    await service_accounts.save_resource(seeding.ports, caller, account_id, resource_id, [demo.READ_ORDERS])
    _, text = await service_accounts.create_credential(seeding.ports, caller, account_id, demo.NEW_SECRET)
    assert text is not None, "a secret has a text"
    return demo.DemoServiceAccount(account_id, text)


async def _replace_api_key(seeding: _Seeding, caller: callers.Member, service: Service) -> tuple[UUID, str]:
    for key in (await seeding.tx.api_keys.page(service.org_id, service.id, 100, 0)).items:
        if key.name == demo.NAME:
            await api_keys.delete(seeding.ports, caller, service.slug, key.id)
    key, text = await api_keys.create(seeding.ports, caller, service.slug, demo.NAME, list(roles.Permission), None)
    return key.id, text


async def _replace_scim_token(seeding: _Seeding, caller: callers.Member) -> str:
    for token in await seeding.tx.scim_tokens.of_org(caller.acts_in.id):
        if token.name == demo.NAME:
            await scim_tokens.revoke(seeding.ports, caller, token.id)
    _, text = await scim_tokens.create(seeding.ports, caller, demo.NAME, None, directory_groups=True)
    return text


async def _ensure_webhook(seeding: _Seeding, caller: callers.Member) -> tuple[Webhook, str]:
    for webhook in await seeding.tx.webhooks.of_org(caller.acts_in.id):
        if webhook.name == demo.NAME:
            return await hooks.rotate_secret(seeding.ports, caller, webhook.id)
    return await hooks.create(seeding.ports, caller, demo.NAME, demo.WEBHOOK_URL, demo.WEBHOOK_EVENTS)


async def _ensure_end_user(seeding: _Seeding, caller: callers.Member, service: Service, slug: values.Slug, name: str) -> demo.DemoUser:
    tx, now = seeding.tx, seeding.ports.clock.now()
    user = await _ensure_user(seeding, demo.customer_email(slug, name))
    if await tx.service_users.by_id(service.org_id, service.id, user.id) is None:
        # A recorded sign-in, so that the analytics have data.
        context = await tx.services.context_by_slug(caller.acts_in.slug, service.slug)
        proofs = (Proof(Method.PASSWORD, now),)
        start = SessionStart(user_id=user.id, caller=causes.SYSTEM, service=context, proofs=proofs)
        session = sessions.new_session(seeding.ports, start, now)
        # Assigned, so that SAML admits the customers, too.
        await tx.assignments.add(service.org_id, service.id, [user.id], EnrollmentOrigin.ADMIN, now)
        await tx.end_users.enroll(service.id, user.id, now)
        await tx.logins.begin_session(session, values.digest(values.new_secret()), None)
        tx.record(authentication_events.signed_in(user.id, ("password",), context))
    if name == demo.PASSKEY_USER:
        await factors.ensure_passkey(seeding.ports, tx, user)
    return await factors.enable_mfa(seeding.ports, tx, user) if name == demo.MFA_USER else user


async def _ensure_subscription(
    seeding: _Seeding, caller: callers.Member, service: Service, key_id: UUID, user: demo.DemoUser, plan: Plan
) -> None:
    if await seeding.tx.subscriptions.of_user(service.org_id, service.id, user.id, seeding.ports.clock.now()) is None:
        context = await seeding.tx.services.context_by_slug(caller.acts_in.slug, service.slug)
        assert context is not None, "the service exists"
        key = callers.ServiceKey(key_id=key_id, permissions=frozenset(roles.Permission), service=context)
        await subscriptions.create(seeding.ports, key, user.id, plan.id)
