-- From schema version 3 to 4: what belongs to a queue's table is named {table}__part, which is no queue's table.
-- Each statement commits by itself. An index that is not there is passed over: a crash may have come after its
-- statement.
alter table {queue} rename index {table}_state to {table}__state;
alter table {queue} rename index {table}_key to {table}__key;
