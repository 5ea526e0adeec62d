"""The papers' experiments, one module each, runnable by name: ``python -m epsilearn.studies figure1``."""
