-- The tables of all that was dropped.
select name from {dropped};
