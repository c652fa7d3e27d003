-- A search of the members of an organization looks at the addresses of all, and the index alone shall
-- answer it. So memberships have the address of their user. Triggers set it and keep it equal. The
-- lock makes a concurrent change of the address wait, so that its trigger finds the membership.
alter table memberships add column email text;
update memberships m set email = u.email from users u where u.id = m.user_id;
alter table memberships alter column email set not null;

create function set_member_email() returns trigger language plpgsql as $$
begin
    select email into new.email from users where id = new.user_id for key share;
    return new;
end $$;
create trigger member_email before insert on memberships for each row execute function set_member_email();

create function change_member_email() returns trigger language plpgsql as $$
begin
    update memberships set email = new.email where user_id = new.id;
    return null;
end $$;
create trigger member_email_changed after update of email on users
    for each row when (old.email is distinct from new.email) execute function change_member_email();

create index memberships_by_email on memberships (org_id, email, id) include (role, created_at);
