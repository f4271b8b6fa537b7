"""Files of other products, read: one format a file, each into the same `Imported`. Pure."""
