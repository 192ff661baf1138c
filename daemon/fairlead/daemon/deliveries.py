"""Intake in the system's instance: clerks hand over what users have dropped, each by himself.

Nothing here waits for a clerk: he has become his user, who may stop him. Users take turns: a pass takes a few files,
as many of everybody who has some, so that a flood by one costs the others nothing. A dropped file keeps its place in
its user's spool, under the id that its task gets, until the store has it.
"""

import math
import os
import select
import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress

from inotify_simple import INotify, flags
from msgspec import Struct

from fairlead.base import frames
from fairlead.base.clock import Clock
from fairlead.base.errors import FairleadError
from fairlead.base.files import names_in
from fairlead.base.ids import created_at, is_made, is_name
from fairlead.base.logs import Log
from fairlead.conductor import errands
from fairlead.conductor.porter import Porter
from fairlead.config.schema import Config
from fairlead.queue.admit import Admission, Claimed, Refusal, Result
from fairlead.queue.errors import NoSuchTaskError
from fairlead.queue.store import Store
from fairlead.systemd.unit import NoManagerError

#: Clerks at the same time; whoever comes later waits for his turn.
MOST_SESSIONS = 32
#: A clerk who has more to hand over after so many seconds is let go when somebody else waits for one.
TURN = 1.0
#: Files, and bytes, that one pass takes of all users together: what it costs is what everybody else waits.
SHARE, SHARE_BYTES = 32, 1 << 17
#: Files of that size can be delivered at the most, whatever the settings say.
LARGEST = 4 << 20
#: A clerk who says nothing for so long is given up, and his user's spool left alone for as long.
PATIENCE = 30.0
#: The porter answers at once, or is just being started anew; then all are left alone for a moment.
PORTER_PATIENCE, AWAY = 5.0, 1.0
#: Once: the next event is of interest when somebody has looked.
_EVENTS = flags.CLOSE_WRITE | flags.MOVED_TO | flags.ONESHOT | flags.ONLYDIR | flags.DONT_FOLLOW
#: While somebody still writes a file, his spool is looked at this often.
SETTLING = 0.5
#: Between two deliveries of one clerk, while others come too, so many times as long as the last one took to enter: what
#: is left of processor and disk is theirs.
REST = 4.0
#: Whoever has dropped something so shortly ago may drop more.
RECENT = 10.0
#: An id that claims to be so much younger than now was made up.
_AHEAD_MS = 60_000
_NOTE = "spool-is-full.error"


class Place(Struct):
    """One user's spool, as far as it can be seen from outside."""

    path: str
    #: Something may have been dropped.
    is_dirty: bool = True
    changed: int = -1
    #: Not to be looked at before then, by the clock that does not jump.
    not_before: float = 0.0
    #: When a clerk was last sent there.
    visited: float = -math.inf


class Session:
    """One conversation with a clerk."""

    def __init__(self, user: str, line: socket.socket, now: float) -> None:
        line.setblocking(False)
        self.user = user
        self.since = now
        self.frames = frames.Frames(line, errands.LONGEST)
        #: Errands that were not answered yet.
        self.open = 0
        self.deadline = now + PATIENCE
        self.is_settling = False
        self.has_more = True
        #: Files have been handed over; when the last of them came, and from when on more may.
        self.is_known = False
        self.received = self.rests_until = now
        #: Ids that wait for their admission.
        self.pending: set[str] = set()

    def send(self, errand: errands.Errand, now: float) -> None:
        """Send the clerk on an errand; short ones fit into the socket's buffer."""
        frames.send(self.frames.sock, errands.encode(errand))
        self.open += 1
        self.deadline = now + PATIENCE

    def replies(self) -> Iterator[errands.Reply]:
        """What the clerk has brought by now."""
        with suppress(BlockingIOError):
            for data in self.frames.take():
                self.open -= 1
                yield errands.decode_reply(data)

    def close(self) -> None:
        """Let the clerk go."""
        self.frames.close()


class Deliveries:
    """All spools, and the conversations about them."""

    def __init__(self, folder: str, porter: Porter, store: Store, clock: Clock, log: Log) -> None:
        self.folder = folder
        self.porter = porter
        self.store = store
        self.clock = clock
        self.log = log
        self.places: dict[str, Place] = {}
        self.sessions: dict[str, Session] = {}
        self._inotify = INotify(nonblocking=True)
        self._watches: dict[int, str] = {}
        self._new_spools = self._inotify.add_watch(folder, flags.CREATE | flags.ATTRIB | flags.ONLYDIR)
        self._over: set[str] = set()
        #: Somebody waits for a clerk, and none is free.
        self._is_crowded = False
        #: The last files came from those who had just begun to drop some.
        self._was_for_new = False
        #: The porter could not be reached: nobody is sent for a clerk before then.
        self._away_until = 0.0
        self._ready = select.epoll()
        self._ready.register(self._inotify, select.EPOLLIN)

    def fileno(self) -> int:
        """Becomes readable when there is something to collect."""
        return self._ready.fileno()

    # ------------------------------------------------------------------ whose spool to look at

    def look_around(self) -> None:
        """Find new spools, and those in which something came or went: a notification may have been lost."""
        names = [name for name in names_in(self.folder) if is_name(name)]
        for user in names:
            place = self.places.get(user)
            if place is None:
                self.places[user] = place = Place(os.path.join(self.folder, user))
                self._watch(user, place)
            changed = _changed(place.path)
            place.is_dirty = place.is_dirty or changed != place.changed
            place.changed = changed
        for user in self.places.keys() - names:
            del self.places[user]

    def _watch(self, user: str, place: Place) -> None:
        with suppress(OSError):  # it is closed to us, or no watch is left: then the poll finds out
            self._watches[self._inotify.add_watch(place.path, _EVENTS)] = user

    def _hear(self) -> None:
        events = []
        with suppress(BlockingIOError):
            events = self._inotify.read(timeout=0)
        if any(event.wd == self._new_spools for event in events):
            self.look_around()
        for event in events:
            user = self._watches.pop(event.wd, "") if event.mask & flags.IGNORED else self._watches.get(event.wd, "")
            if user in self.places:
                self.places[user].is_dirty = True

    # ------------------------------------------------------------------ collecting

    def collect(self, admission: Admission, config: Config) -> list[Claimed]:
        """What clerks have handed over by now, laid where claimed files wait; others are sent for more."""
        self._hear()
        self._open_sessions()
        # Whoever has dropped a few files is not to wait for the entering of a flood: but every other time at the most.
        new = [one for one in self.sessions.values() if not one.is_known] if not self._was_for_new else []
        waiting = self._collect_from(new, admission, config)
        self._was_for_new = bool(waiting)
        if waiting:
            return waiting
        return self._collect_from(list(self.sessions.values()), admission, config)

    def _collect_from(self, sessions: list[Session], admission: Admission, config: Config) -> list[Claimed]:
        waiting: list[Claimed] = []
        for session in sessions:
            try:
                for reply in session.replies():
                    waiting += self._receive(session, reply, admission, config)
                self._go_on(session, config)
            except (OSError, frames.BadFrameError, ValueError) as error:
                self._give_up(session, str(error))
        return waiting

    def _open_sessions(self) -> None:
        now = self.clock.boot()
        waiting = [
            user
            for user, place in self.places.items()
            if place.is_dirty and user not in self.sessions and now >= place.not_before
        ]
        free = MOST_SESSIONS - len(self.sessions)
        self._is_crowded = len(waiting) > free
        for user in waiting[:free]:
            self._open(user, self.places[user], now)

    def _open(self, user: str, place: Place, now: float) -> None:
        if now < self._away_until:
            return
        place.is_dirty = False
        place.visited = now
        self._watch(user, place)  # before the clerk looks: what comes after that is told
        try:
            session = Session(user, self.porter.hire(user), now)
        except NoManagerError as error:
            place.is_dirty, self._away_until = True, self.clock.boot() + AWAY
            self.log.warning("no_porter", error=str(error))
            return
        except (FairleadError, OSError) as error:
            place.is_dirty, place.not_before = True, now + PATIENCE
            self.log.warning("no_clerk", user=user, error=str(error))
            return
        self.sessions[user] = session
        self._ready.register(session.frames.sock, select.EPOLLIN)

    def _go_on(self, session: Session, config: Config) -> None:
        """Send for more, let the clerk go when there is none, give him up when he says nothing."""
        now = self.clock.boot()
        if session.open:
            if now > session.deadline:
                raise TimeoutError("it says nothing")
        elif session.has_more and not session.pending and self._has_had_his_turn(session, now):
            self._line_up(session)
        elif session.has_more and not session.pending:
            if now < session.rests_until:
                return
            largest = min(config.limits.task_file_bytes, LARGEST)
            share = max(1, SHARE // len(self.sessions)), SHARE_BYTES // len(self.sessions)
            session.send(errands.Take(*share, largest, config.intervals.settle), now)
        elif not session.pending:
            self._close(session)

    def _has_had_his_turn(self, session: Session, now: float) -> bool:
        return self._is_crowded and session.is_known and now > session.since + TURN

    def _line_up(self, session: Session) -> None:
        """Its user has had his turn: he comes again after everybody who waits now."""
        self._close(session)
        if place := self.places.pop(session.user, None):
            self.places[session.user] = place
            place.is_dirty = True

    def _receive(
        self, session: Session, reply: errands.Reply, admission: Admission, config: Config
    ) -> Iterator[Claimed]:
        if isinstance(reply, errands.Refused):
            raise OSError(reply.number, reply.error, reply.path)
        if not isinstance(reply, errands.Delivery):
            return
        session.has_more, session.is_settling, session.is_known = reply.more, reply.settling, True
        session.received = self.clock.boot()
        self._mind_quota(session, reply, config)
        settled = errands.Settle([], {})
        for file in reply.files:
            session.pending.add(file.id)
            if claimed := self._lay(session.user, file, admission, settled):
                yield claimed
        names = {file.id: file.name for file in reply.files}
        told = [Refusal(one, session.user, names[one], why) for one, why in settled.refused.items()]
        admission.tell_of_refusals(told)
        self._settle(session, settled)

    def _lay(self, user: str, file: errands.Dropped, admission: Admission, settled: errands.Settle) -> Claimed | None:
        """Lay a file where claimed ones wait, unless it is settled already what becomes of it."""
        owner = self._owner(file.id)
        if error := file.error or self._forged(user, file.id, owner, admission):
            settled.refused[file.id] = f"{file.name}: {error}"
        elif owner:
            settled.accepted.append(file.id)  # it was entered before its clerk could be told
        else:
            return admission.lay(user, file.name, file.data, file.id)
        return None

    def _owner(self, task_id: str) -> str:
        """Whose task it is, if the store knows it."""
        try:
            return self.store.get(task_id).spec.user
        except NoSuchTaskError:
            return ""

    def _forged(self, user: str, task_id: str, owner: str, admission: Admission) -> str:
        """Why an id cannot be right: the user can rename what waits in his spool."""
        if not is_made(task_id) or created_at(task_id, otherwise=1 << 62) > self.clock.wall_ms() + _AHEAD_MS:
            return "its name was changed while it waited; drop it again"
        # What the store has forgotten may still have its record and its logs.
        is_others = owner != user if owner else admission.is_archived(task_id)
        return "its name was changed while it waited, to another task's; drop it again" if is_others else ""

    # ------------------------------------------------------------------ settling

    def settle(self, files: Sequence[Claimed], result: Result) -> None:
        """Tell the clerks what became of what they handed over."""
        refused = {one.id: one.error for one in result.rejected}
        ids = {file.id for file in files}
        for session in list(self.sessions.values()):
            own = session.pending & ids
            if own:
                why = {one: refused[one] for one in own & refused.keys()}
                try:
                    self._settle(session, errands.Settle(sorted(own - why.keys()), why))
                except OSError as error:
                    self._give_up(session, str(error))

    def _settle(self, session: Session, settled: errands.Settle) -> None:
        if not settled.accepted and not settled.refused:
            return
        session.pending -= {*settled.accepted, *settled.refused}
        now = self.clock.boot()
        if not session.pending and self._has_company(session, now):
            session.rests_until = now + REST * (now - session.received)
        session.send(settled, now)

    def leave(self) -> None:
        """Let all clerks go, and send them again later: what was dropped stays where it is."""
        self._hear()
        for session in list(self.sessions.values()):
            self._line_up(session)

    def _has_company(self, session: Session, now: float) -> bool:
        """Whether others have dropped something lately."""
        return any(place.visited > now - RECENT for user, place in self.places.items() if user != session.user)

    def drop_pending(self) -> None:
        """Nobody knows what became of what was handed over: it is delivered again."""
        for session in [one for one in self.sessions.values() if one.pending]:
            self._give_up(session, "its files could not be taken in", is_his_fault=False)

    # ------------------------------------------------------------------ quotas and ends

    def _mind_quota(self, session: Session, reply: errands.Delivery, config: Config) -> None:
        """Whoever has more in his spool than he may is told so, once, where he will look."""
        limits, user = config.limits, session.user
        if reply.count <= limits.spool_files and reply.size <= limits.spool_bytes:
            self._over.discard(user)
            return
        if user in self._over:
            return
        self._over.add(user)
        text = (
            f"{user} has {reply.count} files with {reply.size} bytes in the spool; limits.spool_files is"
            f" {limits.spool_files}, limits.spool_bytes is {limits.spool_bytes}: drop no more until these are taken in."
        )
        self.log.warning("over_quota", user=user, error=text)
        session.send(errands.Note(_NOTE, f"{text}\n"), self.clock.boot())

    def _give_up(self, session: Session, why: str, *, is_his_fault: bool = True) -> None:
        """Look again later: the files are where they were."""
        self.log.warning("clerk_given_up", user=session.user, error=why)
        self._close(session)
        if place := self.places.get(session.user):
            pause = PATIENCE if is_his_fault else AWAY
            place.is_dirty, place.not_before = True, self.clock.boot() + pause

    def _close(self, session: Session) -> None:
        self._ready.unregister(session.frames.sock)
        session.close()
        del self.sessions[session.user]
        if session.is_settling and (place := self.places.get(session.user)):
            place.is_dirty, place.not_before = True, self.clock.boot() + SETTLING

    @property
    def next_at(self) -> float:
        """When a clerk who rests is to be sent for more, by the clock that does not jump."""
        waits = (one.rests_until for one in self.sessions.values() if one.has_more and not one.pending and not one.open)
        return min(waits, default=math.inf)

    @property
    def has_unsettled(self) -> bool:
        """Whether files are still being written, or a spool waits for a free clerk."""
        return any(place.is_dirty for place in self.places.values())

    def close(self) -> None:
        """Let all clerks go."""
        for session in list(self.sessions.values()):
            self._close(session)
        self._inotify.close()
        self._ready.close()
        self.porter.close()


def _changed(path: str) -> int:
    try:
        return os.stat(path, follow_symlinks=False).st_mtime_ns
    except OSError:
        return -1
