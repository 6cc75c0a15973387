drop procedure if exists {queue}_{verb};
