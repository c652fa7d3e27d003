"""The numbers of our advisory locks, which are nothing but names that nothing else in the database may use."""

from typing import Final

NAMESPACE: Final = 7331
PLATFORM_OWNERS: Final = 1  # who is a platform owner; there may be no row to lock yet
ROTATION: Final = 2  # which key signs

RECIPIENTS: Final = 7332  # another such namespace: what each address is sent
SUBJECTS: Final = 7333  # and another: who somebody at an identity provider is here
CUSTOMERS: Final = 7334  # and another: whose a customer at the payment provider is

MIGRATIONS_LOCK: Final = 7_310_001  # of the other kind, with one number
