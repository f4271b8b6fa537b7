"""A transcript put through the policies: what would be written, and what another policy set would write instead."""
