-- Give a queue another name in the catalogue, and its definition. Its tables keep their names, so whoever has it open
-- goes on. Under the creators' lock. A topic and its subscriptions are renamed in one transaction: a crash leaves all
-- or nothing.
update {catalogue} set name = :new_name, definition = :definition where name = :name;
