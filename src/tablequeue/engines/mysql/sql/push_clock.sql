-- What a bulk push must know first: the time, and how far apart the ids of one statement are.
select {now}, @@auto_increment_increment;
