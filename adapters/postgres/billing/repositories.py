"""The repositories of billing."""

from adapters.postgres.billing.provider_events import Billing, Cancellations
from adapters.postgres.billing.subscriptions import Subscriptions
from adapters.postgres.engine.scope import Scope, repository


class BillingRepositories(Scope):
    """The repositories of billing, for all kinds of access."""

    billing = repository(Billing)
    cancellations = repository(Cancellations)
    subscriptions = repository(Subscriptions)
