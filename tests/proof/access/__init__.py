"""Who may call what, and that no tenant learns of another: the access matrix and the leak test, which every new route extends.

A new route gets a row in `MATRIX` (table.py), in `SERVICE_INTERFACE` if it is for API keys, or in `PAGES` if it looks at the cookie of a
browser, with the status for each kind of caller, and a request in `REQUESTS` where a bare call would not succeed; without a row the tests
say which one is missing, and from the row on the leak test tries the route, too. Where the answer depends on what is asked about, each way
to ask has a row of its own (`GET /api/user/devices/<device_id>#other`), and `REFUSES_INSIDE` (test_matrix.py) says why somebody is refused
whom the decorator lets in. A new kind of thing gets rows of its own in every tenant, with the tenant's slug in every text, and a name among
the tenant's `things` (`_add_tenant` in world.py): what `<name>` in a path and `{name}` in a request then mean; what every person has of the
own is in belongings.py. A new kind of caller is a `Caller` in `make_world`, with a session or another credential, and a column of a table
(`PEOPLE`, `KEYS`, `BROWSERS`); the rival tenant's go among the `SPIES` of test_leaks.py. A new access decorator is told to
`refused_at_the_door` (test_matrix.py), which says where the table and the decorators disagree. Where a new answer tells on purpose that
something of another tenant exists, or more of it, or changes it, `TOLD_ON_PURPOSE`, `GIVEN_ON_PURPOSE` or `CHANGED_ON_PURPOSE`
(test_leaks.py) has to say why. A new way to change an organization, or an account that several use, takes part in the storm
(test_storm.py), and what must hold afterwards of accounts is added to `WRONG` there.
"""
