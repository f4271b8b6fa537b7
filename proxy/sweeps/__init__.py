"""What sweeps do with stored memories, one noun per file: each looks at one user's records and says what to change."""
