"""The broker's files: the disk as two protocols, and small files that survive crashes."""
