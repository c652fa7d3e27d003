"""The numbers for advisory locks. A number has a single meaning in the whole database."""

from typing import Final

# Locks with two numbers. The first number is a namespace; the second number is listed below, or a
# hash.
NAMESPACE: Final = 7331
PLATFORM_OWNERS: Final = 1  # in NAMESPACE: all platform owners, who may have no row to lock yet
ROTATION: Final = 2  # in NAMESPACE: the choice of the signing key in use

RECIPIENTS: Final = 7332  # a namespace: the emails to an address
SUBJECTS: Final = 7333  # a namespace: the account that belongs to a subject at an identity provider
CUSTOMERS: Final = 7334  # a namespace: the organization that belongs to a customer at the payment provider
SERVICES: Final = 7335  # a namespace: a service. Sign-ins share the lock, and deleting the service takes it exclusively

MIGRATIONS_LOCK: Final = 7_310_001  # a lock with a single number: held while migrations are applied
