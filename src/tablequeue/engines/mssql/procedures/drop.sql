if object_id(N'{queue}_{verb}', N'P') is not null drop procedure {queue}_{verb};
