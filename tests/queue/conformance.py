"""The suite that every store has to pass: `fairlead.queue.store` in tests.

A store's own test file subclasses `StoreConformance` and gives two fixtures: `make_store`, which opens the same store
as often as it is called, and `audit`, which raises if what that store keeps beside its tasks and locks is not what
counting anew gives.
"""

from tests.queue.conforming.accounts import Accounts
from tests.queue.conforming.choosing import Choosing
from tests.queue.conforming.entering import Entering
from tests.queue.conforming.keeping import Keeping
from tests.queue.conforming.locking import Locking
from tests.queue.conforming.running import Running


class StoreConformance(Entering, Choosing, Accounts, Running, Locking, Keeping):
    """All of it."""
