"""Every error epsilearn raises on purpose.

Each message says what was wrong, what was expected and what to do. None of them ever quotes a private
value: an error text leaves the machine as easily as a model does.
"""


class EpsilearnError(Exception):
    """Base class of everything raised on purpose."""


class InvalidInput(EpsilearnError, ValueError):
    """An argument, a file or a column that cannot be used as given. Nothing was spent."""


class LedgerError(EpsilearnError):
    """The ledger is missing, damaged, read-only, full or of another version. Nothing was released."""


class BudgetExceeded(LedgerError):
    """The ledger refused: the request would exceed the budget. Nothing was spent or released."""


class TamperedLedger(LedgerError):
    """The ledger's rows contradict its hash chain, or a head that was published earlier."""


class EntropyError(EpsilearnError):
    """The operating system gave no random bits, or bits that never decided. Nothing was released."""


class ConvergenceError(EpsilearnError):
    """The solver did not reach its certificate. Nothing was released; a debit stands."""


class StateError(EpsilearnError):
    """A live mechanism was used after it ended, or after it was copied or forked."""


class PrivacyWarning(UserWarning):
    """A public number was left at its default, and the model rests on it."""


class RepeatedFitWarning(UserWarning):
    """Clones of one estimator were fitted several times without a ledger: each fit is a release of its own."""
