"""Pages, API and live view of what is kept: what `thence serve` listens with. Extra `serve`.

context   all that a page or a call may ask for
gate      who may ask: exact Host and Origin, a cookie or a bearer token, strict headers
app       routes, errors as problem+json, compression, ETags, static files
api       the JSON beside every page
answers   what the API answers with
live      watch, sweep, publish; server-sent events that resume exactly
hosted    clients that write into sessions of our own, and their timers
pages     the HTML pages, each made by a module: now_page, list_page, cost_page, pattern_page,
          store_page, session_page, head and view; cards and days are parts of several
chart     a session laid out from thin facts; charts keeps some at hand
view      rows of a chart as they are drawn: items; outline, clock, texts and agents help
cache     what was made of sessions, the least recently used dropped first
markdown  text to safe markup

Invariants: nothing is sent anywhere but to who asked; no GET has an effect; what a log says is
data, never markup, a path or an instruction; permissions are never restored.
"""
