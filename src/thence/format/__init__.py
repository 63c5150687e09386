"""What a session *is*. Pure: no files, no clock, no randomness, no threads.

The modules, in reading order:

records         the nouns: the event line and its payloads, what was skipped
codec, schema   bytes <-> events, damage becomes values; versions and the steps between them
nodes, graph    as much of an event as the graph needs; tips, chains, branches, states
turn, repair    running, waiting, interrupted or done; a chain made valid for the Messages API
state, todos    the domains folded over a chain; promises left open in the conversation
facts           what one record of any log says
session_graph   a session put together from its facts
fold, stored    the same for a session that grows; its events with all that was derived
lineage         who owns what sessions share
tools, errors   what a tool call does; how it ended
normal          Session and SessionEvent, the same for every agent
derived_events  calls with results, usage counted once, events that follow from others
transcript      all of the above applied to the bytes of one session
"""
