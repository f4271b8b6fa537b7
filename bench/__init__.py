"""What memory costs a call: every figure against a baseline in the same run. `make bench` runs them all."""
