-- Whether the catalogue is there.
select to_regclass('{catalogue}') is not null;
