"""The desk: every operation that an interface offers, for one caller."""

from fairlead.desk.changing import Changing
from fairlead.desk.locking import Locking
from fairlead.desk.output import ReadingOutput
from fairlead.desk.submitting import SubmittingFiles


class Desk(ReadingOutput, Changing, Locking, SubmittingFiles):
    """What a caller may look at and change; nothing here waits."""
