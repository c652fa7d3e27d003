"""Who may call what, and that no tenant learns of another: the access matrix and the leak test, which every new route extends.

A new route gets a row in `MATRIX` (table.py), with the status for each kind of caller, and, where a bare call would not succeed, a request
in `REQUESTS`; without a row the tests say which one is missing, and the leak test takes the route up by itself. A new kind of thing gets a
row or two of its own in every tenant, with the tenant's slug in every text, and a name among the tenant's `things` (`_add_tenant` in
world.py), so that `<name>` in a path and `{name}` in a request mean it. A new kind of caller is a `Caller` in `make_world`, with whatever
headers it sends, and a column of the table (`COLUMNS`); if it belongs to the rival tenant, it goes among the spies of test_leaks.py, too.
What a caller is refused because of the route alone also follows from the route's decorator: `refused_at_the_door` in test_matrix.py learns
every new decorator, and then says where the table and the decorators disagree.
"""
