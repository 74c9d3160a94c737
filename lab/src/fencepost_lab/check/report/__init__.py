"""Reports about a checked history: the verdict as text, and its anomalies as pictures."""
