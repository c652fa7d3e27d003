"""The access matrix and the leak test, which every new route extends.

A new route gets a row in `MATRIX` (table.py), and one for service accounts (robots_table.py) if it belongs to
an organization or the platform, in `SERVICE_INTERFACE` if it is for API keys, or in
`PAGES` if it reads the browser's cookie, with the status for each kind of caller. It gets a request
in `REQUESTS` if it needs a body or special things. The tests name routes without a row, and the
leak test tries every route that has one. If the answer depends on the resource, each variant has a
row (`GET /api/user/devices/<device_id>#other`), and `REFUSES_INSIDE` (test_matrix.py) gives the
reason for refusals that the decorator does not make.

The leak test needs nothing for a new table: it finds the private texts of its rows, and adds a row of the
decoy (decoys.py). The test of effects needs an entry: effects/rows.py lists the kind of the table's changes. A request changes
something, and sends each field without power, because its changes are compared with the effect of its route.

A new kind of thing gets rows in every tenant, with the tenant's slug in every text, and a name
among the tenant's `things` (`_add_tenant` in world.py), which replaces `<name>` in paths and
`{name}` in requests. Personal things are in belongings.py.

A new kind of caller is a `Caller` in `make_world`, with a session or another credential, and a
column of a table (`PEOPLE`, `KEYS`, `BROWSERS`). Callers of the rival tenant are added to `SPIES`
(attempts.py).

A new access decorator is added to `decorator_refusal` (refusals.py). If a new response reveals
or changes something of another tenant on purpose, `EXISTENCE_SHOWN_ON_PURPOSE`, `DATA_SHOWN_ON_PURPOSE` or
`CHANGED_ON_PURPOSE` (test_leaks.py) gives the reason. A new way to change an organization or a
shared account takes part in the storm (test_storm.py), and new invariants of accounts are added to
`VIOLATIONS` there.
"""
