-- No user signs in through the test provider.
alter table connections
    add constraint connections_test_check check (preset is distinct from 'test' or state = 'draft' and first_activated_at is null) not valid;
