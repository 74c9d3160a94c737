"""What is told of a history that was judged: the verdict, and its anomalies as pictures."""
