"""The modules of pages, with the text of each in the API description.

Pages that are part of a protocol are in `app`, beside its endpoints.
"""

from types import ModuleType
from typing import Final

from entrypoints.http.pages import home
from entrypoints.http.pages.accounts import access, account, email, email_links, personal_tokens, profile, sign_up
from entrypoints.http.pages.accounts import logs as account_logs
from entrypoints.http.pages.applications import access as application_access
from entrypoints.http.pages.applications import (
    analytics,
    api_keys,
    applications,
    end_users,
    new_application,
    overview,
    plans,
    providers,
    search,
)
from entrypoints.http.pages.applications import saml as saml_configuration
from entrypoints.http.pages.authentication import email_sign_in, owner_recovery, reauthentication, sign_in
from entrypoints.http.pages.billing import own_subscriptions
from entrypoints.http.pages.eventing import deliveries, logs, siem, webhooks
from entrypoints.http.pages.federation import consents
from entrypoints.http.pages.flow import steps as flow_steps
from entrypoints.http.pages.platform import installation, organizations, people
from entrypoints.http.pages.programs import api_resources, platform_service_accounts, resource_credentials, service_accounts
from entrypoints.http.pages.provisioning import directory
from entrypoints.http.pages.tenancy import branding, domain, invitation_links, invitations, mail_server, members, organization

PAGES: Final[tuple[tuple[ModuleType, str], ...]] = (
    (invitation_links, "Pages: invitations."),
    (sign_in, "Pages: sign in and sign out."),
    (flow_steps, "Pages: the steps of a sign-in in progress."),
    (email_sign_in, "Pages: sign in with a code or a link in an email."),
    (reauthentication, "Pages: confirm that it's you."),
    (sign_up, "Pages: sign up, and get another verification link."),
    (email_links, "Pages: the links in emails about accounts."),
    (owner_recovery, "Pages: the link that the operator creates for a platform owner."),
    (home, "Pages: the start of the console."),
    (account, "Pages: the user's account."),
    (email, "Pages: the email address of the user."),
    (access, "Pages: the applications, devices, linked accounts and sessions of the user."),
    (personal_tokens, "Pages: personal access tokens."),
    (account_logs, "Pages: the logs of second factors and exports."),
    (consents, "Pages: the consents of the user to applications."),
    (own_subscriptions, "Pages: the subscriptions of the user."),
    (profile, "Pages: the profile of the user, and the deletion of the account."),
    (overview, "Pages: the overview of an organization."),
    (members, "Pages: the members of an organization."),
    (invitations, "Pages: the invitations of an organization."),
    (logs, "Pages: the audit log, and the platform's log."),
    (analytics, "Pages: the sign-ins of an organization."),
    (organization, "Pages: an organization itself, and the creation of one."),
    (branding, "Pages: the branding of an organization."),
    (search, "Pages: the search in an organization."),
    (domain, "Pages: the domain of an organization."),
    (webhooks, "Pages: the webhooks of an organization."),
    (deliveries, "Pages: the deliveries of a webhook."),
    (siem, "Pages: the forwarding of the audit log to a SIEM."),
    (mail_server, "Pages: the mail server of an organization."),
    (applications, "Pages: the applications of an organization."),
    (new_application, "Pages: the wizard that creates an application."),
    (application_access, "Pages: who may use an application, and the test of a sign-in."),
    (api_keys, "Pages: the API keys of an application."),
    (saml_configuration, "Pages: the SAML configuration of an application."),
    (providers, "Pages: the credentials of an application at identity providers."),
    (plans, "Pages: the plans of an application, and the subscriptions to them."),
    (api_resources, "Pages: the API resources of an organization."),
    (resource_credentials, "Pages: the credentials of API resources."),
    (service_accounts, "Pages: the service accounts of an organization, and their credentials."),
    (end_users, "Pages: the users of an organization's applications."),
    (directory, "Pages: the directory of an organization."),
    (organizations, "Pages: all organizations, for platform owners."),
    (people, "Pages: all people, for platform owners."),
    (platform_service_accounts, "Pages: the service accounts of the platform, and their credentials."),
    (installation, "Pages: the health of the installation, and its settings."),
)
