"""The list of all rows of the table. A new row is a class in one of the modules named below, and an entry in ROWS."""

from collections.abc import Sequence
from typing import Final

from ops.bench.browser_rows import (
    ApplicationsInConsole,
    AuditInConsole,
    Keys,
    MembersInConsole,
    Metadata,
    OverviewPage,
    SamlSignOn,
    SignInForm,
    SignInPage,
    UnknownPath,
)
from ops.bench.page_rows import (
    AuditPage,
    AuditPageByAction,
    AuditPageByTarget,
    EndUsersPage,
    LoginsByProvider,
    LoginsByService,
    LoginTrends,
    MembersPage,
    RecentLogins,
    Search,
    SearchAll,
    ServiceAnalytics,
    ServiceUsersPage,
    UserReadAmongMany,
)
from ops.bench.process_rows import ReadsOnTwoWorkers, SamlOnTwoWorkers, Start
from ops.bench.request_rows import BillingEvents, BoundRead, Deliveries, DeliveryDelay, DeviceList, Read, SamlResponses, ServiceUserRead
from ops.bench.row import Row
from ops.bench.scim_rows import ScimCreate, ScimFilter, ScimGroup, ScimPage
from ops.bench.sign_in_rows import (
    ClientCredentials,
    CodeExchange,
    Introspection,
    LoginsOnBuild,
    LoginsOnWheel,
    Memory,
    MfaVerify,
    OpenIdExchange,
    ReadsDuringLogins,
    Refresh,
    UserInfo,
)

# The rows about organizations come last, and then those about end users, because the service that
# rows share runs from the first row that needs it to the last.
ROWS: Final[Sequence[type[Row]]] = (
    LoginsOnWheel, LoginsOnBuild, Read, BoundRead,
    ServiceUserRead, DeviceList, Refresh, CodeExchange, OpenIdExchange, UserInfo, Introspection, ClientCredentials,
    MfaVerify, SamlResponses, SamlSignOn, SignInPage, SignInForm, OverviewPage, Keys, Metadata, UnknownPath,
    BillingEvents, Deliveries, DeliveryDelay,
    ReadsDuringLogins, ReadsOnTwoWorkers, SamlOnTwoWorkers, Memory, Start,
    ScimCreate, ScimFilter, ScimPage, ScimGroup,
    MembersPage, MembersInConsole, AuditPage, AuditInConsole, ApplicationsInConsole, AuditPageByTarget, AuditPageByAction,
    UserReadAmongMany, ServiceUsersPage, EndUsersPage, Search, SearchAll,
    LoginTrends, LoginsByService, LoginsByProvider, RecentLogins, ServiceAnalytics,
)  # fmt: skip
