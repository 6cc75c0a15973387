-- Enter another definition of a queue in the catalogue, under the creators' lock. A crash leaves the old one.
update {catalogue} set definition = :definition where name = :name;
