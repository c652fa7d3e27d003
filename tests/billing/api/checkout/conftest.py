"""The payment provider, and a service with plans for sale."""

from tests.billing.api.payment_fixtures import *  # noqa: F403
