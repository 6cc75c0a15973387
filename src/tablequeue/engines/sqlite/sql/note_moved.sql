-- Note messages that came from another database: the id that each had, its token, and its id here. If two moves bring
-- the same one at once, the primary key refuses the second.
-- In one transaction with move: a crash leaves both, or none.
insert into {moved} (id, token, new_id) values (:id, :token, :new_id);
