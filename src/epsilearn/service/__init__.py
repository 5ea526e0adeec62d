"""The trusted learner over HTTP: it holds the rows, others ask, and one budget pays for all answers."""
