-- The users that the directory of an organization blocks, by deactivating or deleting them. A blocked user has no membership in the
-- organization, and cannot use its services.
create table directory_blocks (
    org_id   uuid not null references organizations on delete cascade,
    user_id  uuid not null references users on delete cascade,
    since    timestamptz not null,
    primary key (org_id, user_id)
);
create index directory_blocks_of_user on directory_blocks (user_id);

-- In scim_users, this release no longer uses deactivated_at, whole_account, role and confirmed_at. While processes of the previous release
-- run, triggers copy its blocks to the new table, and ours to these columns. The next release drops the triggers and the columns.
create function copy_block_of_previous_release() returns trigger language plpgsql as $$
begin
    if new.deactivated_at is not null then
        insert into directory_blocks values (new.org_id, new.user_id, new.deactivated_at) on conflict do nothing;
    elsif tg_op = 'UPDATE' and old.deactivated_at is not null then
        delete from directory_blocks where org_id = old.org_id and user_id = old.user_id;
    end if;
    return null;
end $$;
create trigger copy_block_of_previous_release after insert or update of deactivated_at on scim_users
    for each row when (pg_trigger_depth() = 0) execute function copy_block_of_previous_release();

-- After the trigger, whose lock makes other writers wait: so no block is lost in between.
insert into directory_blocks select org_id, user_id, deactivated_at from scim_users where deactivated_at is not null;

create function copy_block_to_previous_release() returns trigger language plpgsql as $$
begin
    if tg_op = 'INSERT' then
        insert into scim_users (org_id, user_id, provisioned, deactivated_at, updated_at) values (new.org_id, new.user_id, false, new.since, new.since)
        on conflict (org_id, user_id) do update set deactivated_at = excluded.deactivated_at;
    else
        update scim_users set deactivated_at = null, whole_account = false, role = null, confirmed_at = null
        where org_id = old.org_id and user_id = old.user_id;
    end if;
    return null;
end $$;
create trigger copy_block_to_previous_release after insert or delete on directory_blocks
    for each row when (pg_trigger_depth() = 0) execute function copy_block_to_previous_release();

-- Directories could deactivate whole accounts that their organization had not created. Now only the organization that created an account
-- can activate it again.
update users u set deactivated_at = null from scim_users s
where s.user_id = u.id and s.whole_account and u.origin_org_id is distinct from s.org_id;
