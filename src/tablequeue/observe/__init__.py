"""Reports of a process about itself: counters, metrics, health, spans."""
