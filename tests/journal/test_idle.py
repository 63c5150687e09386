"""The timers: never idle in a turn, once per rest, one timer for each open question."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thence.errors import BadArgument
from thence.journal.idle import Idle, IdleDeadline, IdleThread, watch

LONG = 30.0  # seconds after which a thread that should have ended is called stuck


class Clock:
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        """Tell the time."""
        return self.now


def resting(clock: Clock, **options: Any) -> Idle:
    """Timers of a session whose turn just ended."""
    idle = Idle(10.0, 5.0, clock, **options)
    idle.turn_started()
    idle.turn_ended()
    return idle


# -- the idle timer -------------------------------------------------------------------------


def test_a_rest_fires_once_when_its_time_has_come() -> None:
    """Not before, exactly at the deadline, and not again."""
    clock, heard = Clock(), []
    idle = resting(clock, on_idle=lambda: heard.append(clock.now))
    clock.now += 9.9
    early = idle.poll()
    clock.now = 1010.0
    fired = [idle.poll(), idle.poll()]

    assert ([], [[IdleDeadline("idle", 1010.0)], []], [1010.0]) == (early, fired, heard)
    assert None is idle.next_deadline()


def test_nothing_runs_before_the_first_turn_has_ended() -> None:
    """A session that was never asked anything is not idle."""
    clock = Clock()
    idle = Idle(10.0, clock=clock)
    clock.now += 1e9

    assert (None, []) == (idle.next_deadline(), idle.poll())


@pytest.mark.parametrize("verb", ["turn_started", "queued"])
def test_a_turn_or_a_queued_message_ends_the_rest(verb: str) -> None:
    """The timer stops, and runs its full time again after the next turn."""
    clock = Clock()
    idle = resting(clock)
    clock.now += 9
    getattr(idle, verb)()
    clock.now += 1e9
    stopped = (idle.next_deadline(), idle.poll())
    idle.turn_ended()

    assert ((None, []), clock.now + 10) == (stopped, idle.next_deadline())


def test_a_message_queued_in_a_turn_does_not_keep_the_session_awake() -> None:
    """It may be taken within the turn; the rest after the turn is a rest."""
    clock = Clock()
    idle = Idle(10.0, clock=clock)
    idle.turn_started()
    idle.queued()
    idle.turn_ended()

    assert clock.now + 10 == idle.next_deadline()


# -- questions ------------------------------------------------------------------------------


def test_a_question_times_out_within_its_turn_and_the_turn_goes_on() -> None:
    """The callback hears which call it was; the idle timer still does not run."""
    clock = Clock()
    heard: list[str] = []
    idle = Idle(10.0, 5.0, clock, on_approval_timeout=heard.append)
    idle.turn_started()
    idle.approval_asked("c1")
    clock.now += 2
    idle.approval_asked("c2")
    clock.now += 3
    first = idle.poll()
    clock.now += 100

    assert [IdleDeadline("approval", 1005.0, "c1")] == first
    assert [IdleDeadline("approval", 1007.0, "c2")] == idle.poll()
    assert (["c1", "c2"], None) == (heard, idle.next_deadline())


def test_an_answer_counts_if_it_comes_in_time() -> None:
    """One that comes after the timeout is told so, and one to nothing, too."""
    clock = Clock()
    idle = Idle(10.0, 5.0, clock)
    idle.approval_asked("c1")
    idle.approval_asked("c2")
    answered = idle.approval_answered("c1")
    clock.now += 5
    fired = idle.poll()

    assert (True, [IdleDeadline("approval", 1005.0, "c2")]) == (answered, fired)
    assert [False] * 3 == [idle.approval_answered(call) for call in ("c1", "c2", "c3")]


def test_asking_again_gives_no_more_time() -> None:
    """A harness that asks in a loop still gets its timeout."""
    idle = Idle(10.0, 5.0, clock := Clock())
    for _ in range(5):
        idle.approval_asked("c1")
        clock.now += 1

    assert [IdleDeadline("approval", 1005.0, "c1")] == idle.poll()


def test_what_is_due_fires_oldest_first() -> None:
    """Whatever kind it is, when nobody polled for a long time."""
    clock = Clock()
    idle = resting(clock)
    idle.approval_asked("c1")
    clock.now += 7
    idle.approval_asked("c2")
    clock.now += 100

    assert ["c1", None, "c2"] == [due.call_id for due in idle.poll()]


# -- limits ---------------------------------------------------------------------------------


def test_zero_means_never() -> None:
    """No deadline, but an answer still counts."""
    clock = Clock()
    idle = Idle(0, 0, clock)
    idle.turn_ended()
    idle.approval_asked("c1")
    clock.now += 1e12

    assert (None, [], True) == (idle.next_deadline(), idle.poll(), idle.approval_answered("c1"))


def test_nothing_fires_after_close() -> None:
    """Whatever was open, and whatever is told later."""
    clock = Clock()
    idle = resting(clock)
    idle.approval_asked("c1")
    idle.close()
    idle.turn_ended()
    idle.approval_asked("c2")
    clock.now += 1e9

    assert (None, [], True) == (idle.next_deadline(), idle.poll(), idle.closed)


def test_a_callback_may_use_the_timers() -> None:
    """It can close them, or start the next turn, in the middle of a poll."""
    clock = Clock()

    def stop() -> None:
        idle.close()

    idle = resting(clock, on_idle=stop)
    idle.approval_asked("c1")
    clock.now += 10
    idle.approval_asked("c2")
    fired = [due.kind for due in idle.poll()]

    assert (["approval", "idle"], True) == (fired, idle.closed)


def test_a_callback_that_raises_counts_as_fired() -> None:
    """Its error is not swallowed, and the other timers fire at the next poll."""

    def failing(call: str) -> None:
        raise OSError(call)

    clock = Clock()
    idle = resting(clock, on_approval_timeout=failing)
    idle.approval_asked("c1")
    clock.now += 10
    with pytest.raises(OSError, match="c1"):
        idle.poll()

    assert [IdleDeadline("idle", 1010.0)] == idle.poll()


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf")])
def test_a_bad_argument_is_refused(bad: float) -> None:
    """Both timeouts are looked at when the timers are made."""
    with pytest.raises(BadArgument, match=r"^Idle: timeout is .* not a number"):
        Idle(bad)
    with pytest.raises(BadArgument, match=r"^Idle: approval_timeout is .* not a number"):
        Idle(1.0, bad)


# -- against a model ------------------------------------------------------------------------

CALLS = st.sampled_from(["a", "b", "c"])
STEPS = st.one_of(
    st.tuples(st.sampled_from(["turn_started", "turn_ended", "queued", "poll"]), st.none()),
    st.tuples(st.sampled_from(["approval_asked", "approval_answered"]), CALLS),
    st.tuples(st.just("wait"), st.integers(0, 12)),
)


class Model:
    """What should fire, told in the plainest way: by looking at all that happened so far."""

    def __init__(self) -> None:
        self.rest: float | None = None
        self.asked: dict[str, float] = {}

    def tell(self, verb: str, what: Any, now: float) -> list[tuple[str, str | None]]:
        """Take one step; what a poll at this point should fire."""
        if verb in ("turn_started", "queued"):
            self.rest = None
        elif verb == "turn_ended":
            self.rest = now
        elif verb == "approval_asked":
            self.asked.setdefault(what, now)
        elif verb == "approval_answered":
            self.asked.pop(what, None)
        return self.due(now) if verb == "poll" else []

    def due(self, now: float) -> list[tuple[str, str | None]]:
        """What fires now, and is gone then."""
        fired: list[tuple[str, str | None]] = []
        for call, since in list(self.asked.items()):
            if now - since >= 5:
                del self.asked[call]
                fired.append(("approval", call))
        if self.rest is not None and now - self.rest >= 10:
            self.rest = None
            fired.append(("idle", None))
        return sorted(fired, key=str)


@given(st.lists(STEPS, max_size=60))
def test_any_run_fires_what_the_model_says(steps: list[tuple[str, Any]]) -> None:
    """Idle outside of turns only and once per rest; questions on their own; deadlines agree."""
    clock, model = Clock(), Model()
    notified: list[tuple[str, str | None]] = []
    in_turn, rests = False, 0

    def on_idle() -> None:
        assert not in_turn
        notified.append(("idle", None))

    idle = Idle(10, 5, clock, on_idle, lambda call: notified.append(("approval", call)))
    for verb, what in steps:
        in_turn = verb == "turn_started" or (in_turn and verb != "turn_ended")
        rests += verb == "turn_ended"
        if verb == "wait":
            clock.now += what
        else:
            getattr(idle, verb)(*([] if what is None else [what]))
        fired = sorted(notified, key=str)
        notified.clear()
        rests -= ("idle", None) in fired
        deadline = idle.next_deadline()

        assert model.tell(verb, what, clock.now) == fired
        assert rests >= 0
        ends = [since + 5 for since in model.asked.values()]
        ends += [] if model.rest is None else [model.rest + 10]
        assert (min(ends) if ends else None) == deadline


# -- drivers --------------------------------------------------------------------------------


def test_a_thread_fires_what_is_due() -> None:
    """Both kinds, told after it has started, and it ends when the timers are closed."""
    asked, idled = threading.Event(), threading.Event()
    idle = Idle(0.01, 0.01, on_idle=idled.set, on_approval_timeout=lambda _: asked.set())
    thread = IdleThread(idle)
    thread.start()
    idle.turn_started()
    idle.approval_asked("c1")
    answered = asked.wait(LONG)
    in_turn = idled.is_set()
    idle.turn_ended()
    rested = idled.wait(LONG)
    idle.close()
    thread.join(LONG)

    assert (True, False, True) == (answered, in_turn, rested)
    assert (True, False) == (thread.daemon, thread.is_alive())


def test_no_turn_starts_while_the_idle_callback_runs() -> None:
    """The two cannot cross: who starts a turn waits until the callback is through."""
    order: list[str] = []
    entered, go_on = threading.Event(), threading.Event()

    def on_idle() -> None:
        entered.set()
        go_on.wait(LONG)
        order.append("idle")

    idle = Idle(0.01, on_idle=on_idle)
    driver = IdleThread(idle)
    driver.start()
    idle.turn_ended()
    entered.wait(LONG)

    def work() -> None:
        idle.turn_started()
        order.append("turn")

    worker = threading.Thread(target=work)
    worker.start()
    go_on.set()
    worker.join(LONG)
    idle.close()
    driver.join(LONG)

    assert ["idle", "turn"] == order


def test_an_event_loop_fires_what_is_due() -> None:
    """The same with asyncio, told from another thread; the task ends when the timers close."""
    heard: list[str] = []

    def rested() -> None:
        heard.append("idle")
        idle.close()

    def unanswered(call: str) -> None:
        heard.append(call)
        idle.turn_ended()

    idle = Idle(0.01, 0.01, on_idle=rested, on_approval_timeout=unanswered)

    async def run() -> None:
        task = asyncio.create_task(watch(idle))
        await asyncio.sleep(0)
        await asyncio.to_thread(idle.turn_started)
        await asyncio.to_thread(idle.approval_asked, "c1")
        await asyncio.wait_for(task, LONG)
        heard.append(f"wakers {len(idle.wakers)}")

    asyncio.run(run())

    assert ["c1", "idle", "wakers 0"] == heard


def test_a_waiting_driver_may_be_cancelled() -> None:
    """Nothing is left behind that would be called afterwards."""

    async def run() -> Idle:
        idle = Idle()
        task = asyncio.create_task(watch(idle))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return idle

    idle = asyncio.run(run())
    idle.turn_ended()

    assert set() == idle.wakers
