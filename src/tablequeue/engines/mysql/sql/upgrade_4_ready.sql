-- From schema version 3 to 4, of a queue in order of due times or of priorities, which has one more index.
alter table {queue} rename index {table}_ready to {table}__ready;
