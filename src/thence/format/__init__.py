"""What a session *is*. Pure: no files, no clock, no randomness, no threads.

records     the nouns: the event line and its payloads, what was skipped
codec       bytes <-> events; damage becomes values
schema      versions of the format and the steps between them
nodes       as much of an event as the graph needs, from any agent's log
graph       tips, chains, branches, boundaries; one state per event
repair      a chain made valid for the Messages API
turn        running, waiting, interrupted or done
state       the domains folded over a chain
todos       promises left open in the conversation
intentions  what words promise or report, and what a call shows of it
normal      Session and SessionEvent, the same for every agent
facts       what one record of any log says
gather      facts of several files put in order, pieces joined
whole       a session put together from its facts
lineage     who owns what sessions share
shell       a script cut into the commands it runs
output      the text of a result, clients' envelopes taken off
testruns    which test runner was started and what it counted
kinds       what a tool call is and how it ended
joins       calls with results, usage counted once, derived events
counts      what a file holds, as `thence show --stats` tells it
figures     amounts, sizes and times for the eye
layout      names of files and segments
transcript  all of the above applied to the bytes of one session
"""
