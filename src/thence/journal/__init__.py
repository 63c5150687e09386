"""The write side: what a harness embeds. Needs msgspec only (zstandard to read sealed segments).

log            one append-only file and what is promised about it
session        one session, open for writing
journal        all sessions of one home: create, resume, fork
catalog        where they lie; finding and listing them
lineage        a session read together with those it goes on from
branches       what of an open session can be gone on from, decoded once
known_events   which events an open session has, while others write to it
reader         a session read back from its end, for going on
segments       the bytes of one session, whatever files they lie in
segmented_log  the same, open for appending: on to the next segment over the cap
beginnings     how a log begins: with its header in it, or not at all
batches        a session as a list of another program's records, for the bridges
cleanup        which sessions go and which segments are sealed; only when asked
pending_todos  what the agent still has to do
history        every prompt of the machine, for Up-arrow
notebook       lines of a file of notes: what people write down
sidechain      the channel of one subagent
spill          large results in side files
checkpoint     files as they were before an edit
blobs          bytes addressed by their hash
permissions    the ledger that is never written and never read back
idle           when nobody says anything any more
ids            ids and times for new events
tools          the journal as tools for an agent
signals        what is open brought to the disk when the process is told to end
arguments      what callers pass, checked; errors that say the right form
messages       user, assistant, tool_result: messages recorded by name
aio            a session for harnesses with an event loop
"""

from thence import system

system.refuse_windows("the journal")  # before the modules below, which need more than it has

from thence.journal.catalog import SessionEntry  # noqa: E402
from thence.journal.journal import Journal  # noqa: E402
from thence.journal.session import Receipt, Session  # noqa: E402

__all__ = ["Journal", "Receipt", "Session", "SessionEntry"]
