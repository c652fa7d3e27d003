"""The numbers of the advisory locks. Each number has one meaning in the whole database."""

from typing import Final

# Locks with two numbers. The first is one of these namespaces; the second is a number below, or a
# hash.
NAMESPACE: Final = 7331
PLATFORM_OWNERS: Final = 1  # in NAMESPACE: the set of platform owners, which may have no row to lock yet
ROTATION: Final = 2  # in NAMESPACE: the choice of the signing key in use

RECIPIENTS: Final = 7332  # a namespace: the emails to one address
SUBJECTS: Final = 7333  # a namespace: the account that belongs to one subject at an identity provider
CUSTOMERS: Final = 7334  # a namespace: the organization that belongs to one customer at the payment provider
SERVICES: Final = 7335  # a namespace: one service. Sign-ins share the lock, and the deletion of the service takes it exclusively

MIGRATIONS_LOCK: Final = 7_310_001  # a lock with one number: held while migrations are applied
