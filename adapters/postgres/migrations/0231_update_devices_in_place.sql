-- Each sign-in updates a device. Without the time in an index, and with room in the page, the update writes no index entries.
drop index devices_of_user;
alter table devices set (fillfactor = 90);
