-- What tells credentials apart in lists: the start of the secret, or the thumbprint of the key (RFC 7638).
alter table credentials add column hint text;

-- The service account that made a member more than a member. Its end makes them a member again, unless
-- a person has set their role since (security R-4).
alter table memberships add column promoted_by uuid;
create index memberships_promoted on memberships (org_id, promoted_by) where promoted_by is not null;
