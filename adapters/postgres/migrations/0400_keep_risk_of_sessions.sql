-- Whether the risk of the sign-in was high. Null: the release before started the session, and the risk is that of its device.
alter table sessions add column risk_is_high boolean;
