"""The papers' experiments, one module each, run by name: ``epsilearn study figure1``."""
