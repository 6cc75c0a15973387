-- The journal mode, where it is not WAL. Locks: none.
select journal_mode from pragma_journal_mode where journal_mode <> 'wal';
