drop function if exists {queue}_{verb};
