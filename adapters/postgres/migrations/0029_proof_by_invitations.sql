-- The token of an invitation in the response to the inviter. Then `token_hash` is that of another token, which only the email contains, and
-- accepting with it proves the mailbox. Null: there is one token for both, which proves nothing.
alter table invitations add column inviter_token_hash bytea constraint invitations_inviter_token_hash_key unique;

-- Accounts and invitations of a domain, with its subdomains: a search by the start of the reversed domain.
create index users_created_by_organizations_by_domain on users (reverse('.' || split_part(email, '@', 2)) text_pattern_ops)
    where origin_org_id is not null;
create index invitations_pending_by_domain on invitations (reverse('.' || split_part(email, '@', 2)) text_pattern_ops)
    where status = 'pending';
