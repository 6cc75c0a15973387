-- Free the creator's lock, on the connection that has it.
do release_lock(concat('tablequeue.', md5(coalesce({database}, ''))));
