"""Record batches: the header, what is in it, and the ways to write and to read it."""
