-- One table for all messages of identity providers that work once: SAML assertions and logout requests, and logout tokens
-- (security X-16; Back-Channel Logout section 2.6).
insert into used_assertions (org_id, connection_id, assertion_hash, expires_at)
select org_id, connection_id, token_hash, expires_at from used_logout_tokens on conflict do nothing;
drop table used_logout_tokens;
alter table used_assertions rename to used_provider_messages;
alter table used_provider_messages rename column assertion_hash to message_hash;
alter index used_assertions_pkey rename to used_provider_messages_pkey;
alter index used_assertions_of_organization rename to used_provider_messages_of_organization;
alter index used_assertions_by_age rename to used_provider_messages_by_age;
comment on column used_provider_messages.message_hash is 'SHA-256 of its id, or of jti';
