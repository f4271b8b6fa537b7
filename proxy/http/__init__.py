"""Doors: the endpoints. What knows HTTP is here, and knows nothing else."""
