"""The one exit: random bits, exact variates, and the door that rounds to a public grid."""
