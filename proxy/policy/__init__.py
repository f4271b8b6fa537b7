"""The policy language: YAML files say what is remembered, for how long, and what counts for more when recalled."""
