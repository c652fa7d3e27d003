-- The version of the organization's sign-in policy, beside the other facts that each request reads. Null: it has none.
alter table organizations add column sign_in_policy_version bigint;
