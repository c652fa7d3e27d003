"""Declarations of the billing repositories."""

from adapters.postgres.billing.cancellations import Cancellations
from adapters.postgres.billing.checkouts import Checkouts
from adapters.postgres.billing.customers import Customers
from adapters.postgres.billing.facts import Billing
from adapters.postgres.billing.subscriptions import Subscriptions
from adapters.postgres.engine.scope import Scope, repository


class BillingRepositories(Scope):
    """The repositories of billing, for every kind of access."""

    billing = repository(Billing)
    cancellations = repository(Cancellations)
    checkouts = repository(Checkouts)
    customers = repository(Customers)
    subscriptions = repository(Subscriptions)
