"""The port of storage, with one module or package per area, named as in `core` and `adapters.postgres` (docs/adr/0018).

A new repository is declared in its area alone: as a Protocol, and as a property of the classes of the
area, which `Reading`, `Transaction` and `Autocommit` inherit.

Every method is one statement, unless its docstring says otherwise. "Now" is always a parameter,
and times are in UTC. Every method may raise core.kernel.errors.StorageDown.
Lock order everywhere: organization, membership, account, then the rest (security Z-6).
"""

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from core.authentication.model.dpop import ProofUse
from core.kernel.callers import Person
from core.kernel.causes import Caller
from core.kernel.event_catalog import Event
from ports.storage.accounts import AccountsAutocommit, AccountsReading, AccountsTransaction
from ports.storage.applications import ApplicationsAutocommit, ApplicationsReading, ApplicationsTransaction
from ports.storage.authentication import AuthenticationAutocommit, AuthenticationReading, AuthenticationTransaction
from ports.storage.billing import BillingReading, BillingTransaction
from ports.storage.eventing import EventingAutocommit, EventingReading, EventingTransaction
from ports.storage.federation import FederationAutocommit, FederationReading, FederationTransaction
from ports.storage.kernel import KernelAutocommit
from ports.storage.maintenance import MaintenanceTransaction
from ports.storage.privacy import PrivacyReading, PrivacyTransaction
from ports.storage.programs import ProgramsAutocommit, ProgramsReading, ProgramsTransaction
from ports.storage.provisioning import ProvisioningAutocommit, ProvisioningReading, ProvisioningTransaction
from ports.storage.tenancy import TenancyAutocommit, TenancyReading, TenancyTransaction


class Reading(
    AccountsReading,
    TenancyReading,
    ApplicationsReading,
    ProgramsReading,
    BillingReading,
    AuthenticationReading,
    FederationReading,
    ProvisioningReading,
    EventingReading,
    PrivacyReading,
    Protocol,
):
    """Queries that change nothing. Each query has its own snapshot."""


class Transaction(
    AccountsTransaction,
    TenancyTransaction,
    ApplicationsTransaction,
    ProgramsTransaction,
    BillingTransaction,
    AuthenticationTransaction,
    FederationTransaction,
    ProvisioningTransaction,
    EventingTransaction,
    MaintenanceTransaction,
    PrivacyTransaction,
    Protocol,
):
    """Queries and changes that are committed together. The end of the block commits. Any exception, cancellation included, rolls back."""

    def acts_as(self, person: Person) -> None:
        """Set the user who causes the recorded events, if the user becomes known only during the transaction."""

    async def send_deferred(self) -> None:
        """Execute the deferred statements now, if their results are needed before any other statement."""

    def record(self, event: Event) -> None:
        """Write the event, and its audit log entry if it has one, with the caller's id, address and user agent.

        All events of a transaction are written when its block ends, in the order of the calls. So
        `of_person` stands for the confirmed memberships of that moment. They are written last
        because they lock the totals of the audit log, and other transactions of the organization
        wait for these rows.
        """


class Autocommit(
    AccountsAutocommit,
    TenancyAutocommit,
    ApplicationsAutocommit,
    ProgramsAutocommit,
    AuthenticationAutocommit,
    FederationAutocommit,
    EventingAutocommit,
    ProvisioningAutocommit,
    KernelAutocommit,
    Protocol,
):
    """Statements that each commit by themselves.

    Use it for a use case with a single change, and for changes that must stay after a refusal, such
    as counters of attempts.
    """


class Storage(Protocol):
    """Access to the database. It is PostgreSQL, in tests too."""

    def transaction(self, by: Caller, *, in_session: bool = True) -> AbstractAsyncContextManager[Transaction]:
        """Open a transaction. Its changes are committed when the block ends.

        After the commit, the actors of this process get the signals that belong to the changes
        (ports.signals). A user acts within their session. If the session has ended when the
        recorded events are written, the block raises SessionEnded and rolls everything back
        (security J-4, Z-6). `in_session` is false if the caller has no session yet, or
        if this transaction ends it or locks it itself.
        """

    def reading(self, *, using: ProofUse | None = None) -> AbstractAsyncContextManager[Reading]:
        """Open a connection for queries.

        It is not a snapshot: two statements can see different states. With `using`, the first query
        uses up this DPoP proof in the same round trip, without waiting for the disk. Of several
        parallel uses of a proof, one succeeds. The end of the block raises ProofReplayed or
        NonceKeyLost for the others, and so what the block has read must not be used before.
        """

    def autocommit(self) -> AbstractAsyncContextManager[Autocommit]:
        """Open a connection for statements that each commit by themselves."""

    async def ping(self) -> None:
        """Make one trivial round trip. Raises: StorageDown."""
