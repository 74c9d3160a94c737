"""Reports about a judged history: the verdict as text, and its anomalies as pictures."""
