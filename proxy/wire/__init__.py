"""Wire dialects: read a turn, place a block, collect an answer. Pure: bytes and dicts in, values out."""
