"""A payment provider, and an organization that sells subscriptions through it."""

from tests.billing.api.payment_fixtures import *  # noqa: F403
