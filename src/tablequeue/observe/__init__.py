"""What a process tells of itself: counters, metrics, health, spans."""
