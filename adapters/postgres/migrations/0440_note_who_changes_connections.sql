-- The members and service accounts that changed a connection since its last activation. Null: not known.
alter table connections add column changed_by uuid[];
