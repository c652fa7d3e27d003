-- The subscription that a mail is about, so that it can say to which plan of which service, and is not sent when that is over.
alter table mails add column subscription_id uuid;
