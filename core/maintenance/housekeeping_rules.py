"""Entities, refusals and pure rules of `core.maintenance.housekeeping`."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Final

BATCH = 1000
# An ended session is kept for a while, so that its refresh tokens are still recognised as reused rather than unknown.
ENDED_SESSIONS_KEPT = timedelta(days=1)
# A device that asks late is told that its code has expired, rather than that there is none.
EXPIRED_DEVICE_CODES_KEPT = timedelta(minutes=15)
# A code that comes a second time ends what it gave the first time, so it stays known (security.md O-4).
CODES_KEPT = timedelta(days=1)
FINISHED_MAILS_KEPT = timedelta(days=7)
# Event rows are what webhooks are fed from; the audit log is the lasting record.
EVENTS_KEPT = timedelta(days=30)
# Longer than the payment provider goes on sending what it did not get through, which is three days. This is not for the ids of its events:
# an event is signed anew each time it is sent, so it is known for a second one by its id alone, and those are never swept (N-9).
BILLING_KEPT = timedelta(days=40)
# A SIEM that is away for ever would have a queue that grows for ever (ops/decisions/0014).
SIEM_BACKLOGS_KEPT = timedelta(days=30)
# What was told to webhooks, and what became of it.
DELIVERIES_KEPT = timedelta(days=30)
# Who was told of a change before an organization was deleted, or its SIEM removed, may still write of it for a moment.
TOMBSTONES_KEPT = timedelta(days=1)
# A login of yesterday may still be on its way.
LOGIN_TOTALS_APART = timedelta(days=1)
# Among what a sweep was at, how much of it others failed at; and how often they failed at so much in a row that they are taken to be away.
# Then the next one is further away.
FAILED: Final = "failed"
BACKED_OFF: Final = "held_up"
# Longer than one batch can take, and than the pause between two sweeps, so that one process goes on doing it while it lives.
LEASE = timedelta(minutes=5)


class Sweep(StrEnum):
    """What is swept."""

    ONE_TIME_TOKENS = "one_time_tokens"
    PRE_AUTHS = "pre_auths"
    DEVICE_CODES = "device_codes"
    LINK_TICKETS = "link_tickets"
    SAML_SIGN_ONS = "saml_sign_ons"
    SAML_LOGOUTS = "saml_logouts"
    PROVIDER_STATES = "provider_states"
    AUTHORIZATION_CODES = "authorization_codes"
    SIGNING_KEYS = "signing_keys"
    SESSIONS = "sessions"
    RATES = "rates"
    GUESSES = "guesses"
    MAILS = "mails"
    MFA_SETUPS = "mfa_setups"
    EVENTS = "events"
    UNVERIFIED_ACCOUNTS = "unverified_accounts"
    CHECKOUTS = "checkouts"
    BILLING_FACTS = "billing_facts"  # about what is over, and about what never came to be a subscription of ours
    PAYMENT_METHODS = "payment_methods"  # that were detached, or are of customers who are none of ours
    DELETED_CUSTOMERS = "deleted_customers"  # of the payment provider
    LOGIN_TOTALS = "login_totals"  # which are put together, not removed
    SIEM_QUEUES = "siem_queues"  # of what was removed
    SIEM_BACKLOGS = "siem_backlogs"  # entries that no SIEM has taken in all that time
    BLANKINGS = "blankings"  # of the logs of people who are unknown, which stay (ops/decisions/0008)
    WEBHOOK_DELIVERIES = "webhook_deliveries"
    FORMER_WEBHOOK_SECRETS = "former_webhook_secrets"
    DELETED_WEBHOOKS = "deleted_webhooks"
    DELETED_SERVICES = "deleted_services"  # these two last, since a large one takes minutes
    DELETED_ORGANIZATIONS = "deleted_organizations"


class Sealed(StrEnum):
    """The columns whose values are encrypted at rest."""

    SIGNING_KEYS = "signing_keys.private_key"
    MAIL_TOKENS = "mails.token"
    OAUTH_CREDENTIALS = "oauth_credentials.client_secret"
    SAML_KEYS = "saml_certificates.private_key"
    IDENTITY_ACCESS_TOKENS = "identities.access_token"
    IDENTITY_REFRESH_TOKENS = "identities.refresh_token"
    WAITING_ACCESS_TOKENS = "pre_auths.access_token"
    WAITING_REFRESH_TOKENS = "pre_auths.refresh_token"
    SMTP_PASSWORDS = "smtp_settings.password"
    SIEM_TOKENS = "siem_configurations.token"
    MFA_SECRETS = "mfa.secret"
    WEBHOOK_SECRETS = "webhooks.secret"
    FORMER_WEBHOOK_SECRETS = "former_webhook_secrets.secret"
    INVOICE_PAGES = "billing_facts.action_page"
