"""Records to disk: through a pool of worker processes, or in this one."""
