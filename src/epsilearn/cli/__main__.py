"""``python -m epsilearn.cli``."""

from epsilearn.cli import main

if __name__ == "__main__":
    main()
