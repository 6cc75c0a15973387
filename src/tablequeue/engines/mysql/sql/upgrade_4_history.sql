-- From schema version 3 to 4: what belongs to a queue's table is named {table}__part, which is no queue's table.
alter table {history} rename index {table}_finished to {table}__finished;
