"""Private learning through a kernel alone: which language does a word belong to?

The private records are words, not rows of numbers. All the learner ever sees of them is how alike the pairs and triples
of letters of two words are. Any number of questions costs one budget, and a question asked again gets the same answer,
also after a restart: it is learned and asked twice here, and the second time debits nothing.
"""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from functools import cache
from itertools import product
from pathlib import Path

from epsilearn import GaussianProcessRelease
from epsilearn.kernel import UserKernel

# Endings and beginnings.
FRENCH = ("les", "ment", "tion", "eaux", "oir", "ette", "age"), ("ch", "b", "gr", "v", "p", "cl", "j")
GERMAN = ("ung", "heit", "keit", "chen", "lich", "schaft", "en"), ("sch", "b", "kr", "w", "pf", "kl", "z")
VOWELS = ("a", "e", "i", "o", "u")


def words(endings: tuple[str, ...], beginnings: tuple[str, ...]) -> list[str]:
    """Words that look like those of a language."""
    return [first + vowel + last for first, vowel, last in product(beginnings, VOWELS, endings)]


@cache
def pieces(word: str) -> Counter[str]:
    """All stretches of two and three letters, beginning and end marked."""
    marked = f"^{word}$"
    return Counter(marked[i : i + size] for size in (2, 3) for i in range(len(marked) - size + 1))


def alike(first: str, second: str) -> float:
    """The cosine between two words' counts of pieces: 1 for the same word, 0 for words that share none."""
    return product_of(first, second) / math.sqrt(product_of(first, first) * product_of(second, second))


def product_of(first: str, second: str) -> float:
    """The inner product of two words' counts of pieces."""
    other = pieces(second)
    return float(sum(count * other[piece] for piece, count in pieces(first).items()))


def main(folder: Path) -> None:
    """Learn from the words, and ask about a few others."""
    french, german = words(*FRENCH), words(*GERMAN)
    kernel = UserKernel(alike, declared=1.0)  # sqrt(K(x, x)) is 1 for every word
    model = GaussianProcessRelease(
        kernel=kernel, epsilon=2.0, delta=1e-6, classes=["French", "German"], alpha=0.05, state=folder / "words.db"
    )
    model.fit(french + german, ["French"] * len(french) + ["German"] * len(german))
    asked = ["vrage", "klung", "choir", "pfeit", "jette", "zulich"]
    for word, value, label in zip(asked, model.decision_function(asked), model.predict(asked), strict=True):
        print(f"{word:8} {value:+.2f}  {label}")
    print(model.guarantee_)
    print(f"noise of one answer: at most {model.noise_.deviation:.2f}; {model.points_left_} more words may be asked")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
        print("\nThe same again, as after a restart:")
        main(Path(folder))
