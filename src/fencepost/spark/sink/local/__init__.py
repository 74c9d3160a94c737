"""Local files: what the processes of an executor or driver leave for each other, and a checkpoint's own name."""
