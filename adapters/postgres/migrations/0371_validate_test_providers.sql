alter table connections validate constraint connections_test_check;
