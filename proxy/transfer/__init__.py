"""Records as JSON lines, out of a store and into one."""
