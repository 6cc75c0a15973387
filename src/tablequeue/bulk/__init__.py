"""Many rows at once: Arrow batches, staged writes of many processes, batches that can be read again."""
