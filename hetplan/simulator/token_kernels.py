"""The loop of machines that make text token by token, iteration by iteration; it compiles.

In an iteration every decoding sequence makes one token, and what room is left in the batch goes to the prompts that
wait, oldest first, in chunks. An iteration costs a few steps, however many sequences decode: their count and the sum of
their KV are kept, and a calendar says which of them end at which iteration (each gains one token, so that is known when
it starts). Requests are rows of `asked`, machines rows of `state`; the columns are named below. Where KV does not
suffice, the sequence that was admitted last gives way and is computed again later, prompt and what it has made.

The longest gap between two tokens is the largest of the gaps of the iterations that a sequence lived through: a stack
of those that no later one exceeds answers that at its end.

A play may stop at any moment and go on: all that is known is in `World` and in its `progress`. Between two stretches
machines come and go (`token_run`); `hand_on` empties the queue of one that goes, `lose` all of one that breaks.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetplan.compiled import bare_kernel, part
from hetplan.dispatch.token_kernels import by_shares, least_work, next_in_turn, split_then_fewest

__all__ = ["Rules", "World", "hand_on", "lose", "play"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Requests: numbers that are whole, and times in milliseconds.
INPUT, OUTPUT, CACHED, MADE, NEXT, BEFORE, AFTER, C_BEFORE, C_AFTER, ENDS, JOINED, LOST, MACHINE, SIZE = range(14)
ARRIVED, FIRST, DONE, LAST, GAP = range(5)
# Machines: their queue, what runs, the prompt that is half done, those that are done with this iteration, their stack.
(KIND, HEAD, TAIL, WAITING, NEWEST, DECODES, READ, HELD, PROMPT, TODO, READY, TICK, RAN, ROUNDS, MOST, LOW, HIGH,
 TOKENS, LASTREADY, UNDER_WAY) = range(20)  # fmt: skip
UNTIL, TICKED, BUSY, LINK, IDLE = range(5)
# Types. Who finds every machine with as many requests as its CAP is refused.
ROOM, CHUNK, SEQS, PREFILL_FIRST, RESERVES, ROLE, CAP = range(7)
MIXED, PREFILL, DECODE = range(3)
EXPERTS, RATE, PROMPT_MS, REQUEST = range(4)
# How far a play is: requests served and come, the size of the heap, iterations, the machine of the last request.
SERVED, COMING, ON_LINKS, ITERATIONS, TURN = range(5)


class World(NamedTuple):
    """Requests and machines while they are played, and what a machine of each type can do."""

    asked: Integers
    times: Floats
    state: Integers
    clock: Floats
    work: Floats
    """Milliseconds outstanding at each machine, as the router counts them."""
    law: Floats
    more: Floats
    """Of each type what is beside the pieces of its law."""
    room: Integers
    link_ms: Floats
    sooner: Floats
    """Work until the first token, per size of request and type."""
    later: Floats
    """Work after it."""
    calendar: Integers
    """Per machine and iteration (a ring): the first of the sequences that end there."""
    want_gaps: bool
    ends: Floats
    """When the last iterations of a machine ended (a ring, as `ticks` and `gaps`: the stack of longest gaps)."""
    ticks: Integers
    gaps: Floats
    handed: Floats
    """When a request arrives over its link."""
    heap: Integers
    """The requests on a link, the next to arrive first."""
    course: Floats
    progress: Integers


class Rules(NamedTuple):
    """How a request gets its machine."""

    rule: int
    takes: Integers
    """A row of types for what arrives, and one for what comes over links."""
    kind: Integers
    """The type of each machine as the router sees it; that of a machine which is shut takes nothing."""
    alone: Floats
    """The emptiest prefill, per size of request and type."""
    limit_ms: Floats
    new_ms: Floats
    """Room for the work of one request, per type."""
    drawn: Floats
    share: Floats


@part
def iteration_ms(law: Floats, more: Floats, kind: int, n: int, v: int, s: int, q: float) -> float:
    """How long an iteration takes: the longest piece of the law, what experts add, and a prompt."""
    longest = 0.0
    for piece in range(law.shape[1]):
        ms = law[kind, piece, 0] + law[kind, piece, 1] * n + law[kind, piece, 2] * v
        ms += law[kind, piece, 3] * s + law[kind, piece, 4] * q
        if ms > longest:
            longest = ms
    if more[kind, EXPERTS] > 0.0:
        longest -= more[kind, EXPERTS] * math.expm1(-more[kind, RATE] * n)
    return longest + (more[kind, PROMPT_MS] if n > s else 0.0)


@part
def start_running(asked: Integers, state: Integers, j: int, r: int) -> None:
    """Append to the sequences that run, oldest first."""
    newest = state[j, NEWEST]
    asked[r, BEFORE] = newest
    asked[r, AFTER] = -1
    if newest >= 0:
        asked[newest, AFTER] = r
    state[j, NEWEST] = r


@part
def stop_running(asked: Integers, state: Integers, j: int, r: int) -> None:
    """Take out of the sequences that run."""
    before, after = asked[r, BEFORE], asked[r, AFTER]
    if before >= 0:
        asked[before, AFTER] = after
    if after >= 0:
        asked[after, BEFORE] = before
    else:
        state[j, NEWEST] = before


@part
def enter_calendar(world: World, j: int, r: int) -> None:
    """Note at which iteration a sequence will have made its last token."""
    asked, state, calendar = world.asked, world.state, world.calendar
    tick = state[j, TICK] + asked[r, OUTPUT] - asked[r, MADE]
    slot = tick % calendar.shape[1]
    first = calendar[j, slot]
    asked[r, ENDS] = tick
    asked[r, C_BEFORE] = -1
    asked[r, C_AFTER] = first
    if first >= 0:
        asked[first, C_BEFORE] = r
    calendar[j, slot] = r


@part
def leave_calendar(world: World, j: int, r: int) -> None:
    """Take a sequence out of the calendar before its end."""
    asked, calendar = world.asked, world.calendar
    before, after = asked[r, C_BEFORE], asked[r, C_AFTER]
    if before >= 0:
        asked[before, C_AFTER] = after
    else:
        calendar[j, asked[r, ENDS] % calendar.shape[1]] = after
    if after >= 0:
        asked[after, C_BEFORE] = before


@part
def note_gap(world: World, j: int, now: float, gap: float) -> None:
    """Keep the gap of this iteration on the stack, and drop those that it exceeds or that are too old to matter."""
    state, ends, ticks, gaps = world.state, world.ends, world.ticks, world.gaps
    size, tick = ticks.shape[1], state[j, TICK]
    low, high = state[j, LOW], state[j, HIGH]
    while low < high and ticks[j, low % size] <= tick - size + 1:
        low += 1
    while low < high and gaps[j, (high - 1) % size] <= gap:
        high -= 1
    ticks[j, high % size] = tick
    gaps[j, high % size] = gap
    state[j, LOW], state[j, HIGH] = low, high + 1
    ends[j, tick % size] = now


@part
def longest_gap(world: World, j: int, r: int) -> float:
    """The longest gap of a sequence since it began to decode."""
    asked, state, ends, ticks, gaps = world.asked, world.state, world.ends, world.ticks, world.gaps
    size, joined = ticks.shape[1], asked[r, JOINED]
    if state[j, TICK] <= joined:
        return 0.0
    # Its first gap begins at its own first token, which may be later than the iteration before.
    longest = float(ends[j, (joined + 1) % size] - world.times[r, LAST])
    low, high = state[j, LOW], state[j, HIGH]
    stop = high
    while low < high:
        middle = (low + high) // 2
        if ticks[j, middle % size] >= joined + 2:
            high = middle
        else:
            low = middle + 1
    if low < stop and gaps[j, low % size] > longest:
        longest = float(gaps[j, low % size])
    return longest


@part
def make_room(world: World, j: int) -> None:
    """Let those admitted last give way until every running sequence has room for its next token."""
    asked, times, state, room = world.asked, world.times, world.state, world.room
    kind = state[j, KIND]
    while state[j, HELD] + state[j, DECODES] > room[kind, ROOM] and state[j, NEWEST] >= 0:
        r = state[j, NEWEST]
        stop_running(asked, state, j, r)
        if r == state[j, PROMPT]:
            state[j, HELD] -= asked[r, INPUT] + asked[r, MADE]
            state[j, PROMPT] = -1
        else:
            if world.want_gaps:
                times[r, GAP] = max(times[r, GAP], longest_gap(world, j, r))
            leave_calendar(world, j, r)
            asked[r, MADE] += state[j, TICK] - asked[r, JOINED]
            stored = asked[r, INPUT] + asked[r, MADE] - 1
            state[j, HELD] -= stored
            state[j, READ] -= stored
            state[j, DECODES] -= 1
            if state[j, TICK] > asked[r, JOINED]:
                times[r, LAST] = world.clock[j, TICKED]
        asked[r, LOST] += 1
        asked[r, NEXT] = state[j, HEAD]
        state[j, HEAD] = r
        if state[j, TAIL] < 0:
            state[j, TAIL] = r
        state[j, WAITING] += 1


@part
def ready_at_end(asked: Integers, state: Integers, j: int, r: int) -> None:
    """Append to the prompts that are done when this iteration ends, oldest first."""
    asked[r, NEXT] = -1
    if state[j, READY] < 0:
        state[j, READY] = r
    else:
        asked[state[j, LASTREADY], NEXT] = r
    state[j, LASTREADY] = r


@part
def take_prompts(world: World, j: int, budget: int, running: int) -> tuple[int, float]:
    """Fill what is left of the batch with prompts: their tokens, and the pairs of prefill attention."""
    asked, state, room = world.asked, world.state, world.room
    kind, n, q = state[j, KIND], 0, 0.0
    growing = running if room[kind, RESERVES] == 0 else 0
    others = state[j, DECODES] + (1 if state[j, PROMPT] >= 0 else 0)
    while budget > 0:
        r = state[j, PROMPT]
        if r < 0:
            r = state[j, HEAD]
            if r < 0 or others >= room[kind, SEQS]:
                break
            came = room[kind, ROLE] == DECODE and asked[r, LOST] == 0
            length = asked[r, INPUT] + asked[r, MADE] - (1 if came else 0)
            keep = asked[r, INPUT] + asked[r, OUTPUT] if room[kind, RESERVES] != 0 else length
            if state[j, HELD] + growing + keep > room[kind, ROOM]:
                break
            state[j, HEAD] = asked[r, NEXT]
            if state[j, HEAD] < 0:
                state[j, TAIL] = -1
            state[j, WAITING] -= 1
            state[j, HELD] += keep
            start_running(asked, state, j, r)
            others += 1
            if came:
                # Its KV came over the link: it decodes from the next iteration on.
                ready_at_end(asked, state, j, r)
                continue
            state[j, PROMPT] = r
            state[j, TODO] = length - asked[r, CACHED]
        end = asked[r, INPUT] + asked[r, MADE] - state[j, TODO]
        taken = min(budget, state[j, TODO])
        q += 0.5 * (float(end + taken) * float(end + taken) - float(end) * float(end))
        n += taken
        budget -= taken
        state[j, TODO] -= taken
        if state[j, TODO] == 0:
            ready_at_end(asked, state, j, r)
            state[j, PROMPT] = -1
    return n, q


@part
def begin_iteration(world: World, j: int, now: float) -> None:
    """Choose what the next iteration computes, and when it ends; a machine with nothing to do ends never."""
    state, clock, room, course = world.state, world.clock, world.room, world.course
    kind = state[j, KIND]
    if room[kind, RESERVES] == 0:
        make_room(world, j)
    decodes = state[j, DECODES]
    n, q = take_prompts(world, j, room[kind, CHUNK] - (0 if room[kind, PREFILL_FIRST] else decodes), decodes)
    state[j, RAN] = decodes
    if room[kind, PREFILL_FIRST] != 0 and n > 0:
        state[j, RAN] = decodes = 0
    if n + decodes == 0 and state[j, READY] < 0:
        clock[j, UNTIL] = np.inf
        clock[j, IDLE] = now
        return
    ms = iteration_ms(
        world.law, world.more, kind, n + decodes, state[j, READ] + decodes if decodes > 0 else 0, decodes, q
    )
    if n + decodes == 0:
        ms = 0.0
    else:
        state[j, ROUNDS] += 1
    clock[j, UNTIL] = now + ms
    clock[j, BUSY] += ms
    state[j, TOKENS] += n + decodes
    if state[j, HELD] > state[j, MOST]:
        state[j, MOST] = state[j, HELD]
    if course.shape[0] > 0:
        bucket = min(int(now / course[0, 0]), course.shape[0] - 2) + 1
        course[bucket, 0] += ms
        course[bucket, 1] += ms * decodes
        course[bucket, 2] += ms * state[j, HELD] / room[kind, ROOM]
        course[bucket, 3] += ms * state[j, WAITING]


@part
def finish(world: World, j: int, r: int, now: float) -> None:
    """The last token of a request."""
    world.times[r, DONE] = now
    world.asked[r, MADE] = world.asked[r, OUTPUT]
    stop_running(world.asked, world.state, j, r)
    world.work[j] -= world.later[world.asked[r, SIZE], world.state[j, KIND]]
    world.state[j, UNDER_WAY] -= 1


@part
def end_decodes(world: World, j: int, now: float) -> int:
    """One more token of every decoding sequence; those with their last token leave. How many left."""
    asked, times, state, clock, calendar = world.asked, world.times, world.state, world.clock, world.calendar
    state[j, TICK] += 1
    reserves = world.room[state[j, KIND], RESERVES] != 0
    state[j, READ] += state[j, DECODES]
    if not reserves:
        state[j, HELD] += state[j, DECODES]
    if world.want_gaps:
        note_gap(world, j, now, now - clock[j, TICKED])
    clock[j, TICKED] = now
    slot = state[j, TICK] % calendar.shape[1]
    r, left = calendar[j, slot], 0
    calendar[j, slot] = -1
    while r >= 0:
        after = asked[r, C_AFTER]
        if world.want_gaps:
            times[r, GAP] = max(times[r, GAP], longest_gap(world, j, r))
        state[j, READ] -= asked[r, INPUT] + asked[r, OUTPUT] - 1
        state[j, HELD] -= asked[r, INPUT] + asked[r, OUTPUT] - (0 if reserves else 1)
        state[j, DECODES] -= 1
        finish(world, j, r, now)
        left += 1
        r = after
    return left


@part
def end_prompts(world: World, heap_size: int, j: int, now: float) -> tuple[int, int]:
    """Every prompt that is done makes a token, and decodes here or elsewhere. The size of the heap; how many left."""
    asked, times, state, clock, room = world.asked, world.times, world.state, world.clock, world.room
    r, left, kind = state[j, READY], 0, state[j, KIND]
    state[j, READY] = -1
    while r >= 0:
        after = asked[r, NEXT]
        stored = asked[r, INPUT] + asked[r, MADE]
        came = room[kind, ROLE] == DECODE and asked[r, LOST] == 0
        if came:
            stored -= 1
        else:
            if asked[r, MADE] > 0:
                times[r, GAP] = max(times[r, GAP], now - times[r, LAST])
            asked[r, MADE] += 1
            times[r, LAST] = now
        if asked[r, MADE] == 1 and not came:
            world.work[j] -= world.sooner[asked[r, SIZE], kind]
            times[r, FIRST] = now
        kept = asked[r, INPUT] + asked[r, OUTPUT] if room[kind, RESERVES] != 0 else stored
        if asked[r, MADE] >= asked[r, OUTPUT]:
            state[j, HELD] -= kept
            finish(world, j, r, now)
            left += 1
        elif room[kind, ROLE] == PREFILL:
            # Off over the link of this machine, which sends one after the other; the first token comes with it.
            clock[j, LINK] = max(clock[j, LINK], now) + world.link_ms[kind] * asked[r, INPUT]
            times[r, FIRST] = times[r, LAST] = clock[j, LINK]
            state[j, HELD] -= kept
            world.work[j] -= world.later[asked[r, SIZE], kind]
            world.state[j, UNDER_WAY] -= 1
            stop_running(asked, state, j, r)
            heap_size = push(world.handed, world.heap, heap_size, r, clock[j, LINK])
        else:
            asked[r, JOINED] = state[j, TICK]
            state[j, DECODES] += 1
            state[j, READ] += stored
            enter_calendar(world, j, r)
        r = after
    return heap_size, left


@part
def push(handed: Floats, heap: Integers, size: int, r: int, at: float) -> int:
    """A request on its way over a link, into the heap of those; the size that it has then."""
    handed[r] = at
    place = size
    while place > 0 and handed[heap[(place - 1) // 2]] > at:
        heap[place] = heap[(place - 1) // 2]
        place = (place - 1) // 2
    heap[place] = r
    return size + 1


@part
def pop(handed: Floats, heap: Integers, size: int) -> int:
    """Take the first out of the heap; the request."""
    first, moved, place = int(heap[0]), int(heap[size - 1]), 0
    while 2 * place + 1 < size - 1:
        child = 2 * place + 1
        if child + 1 < size - 1 and handed[heap[child + 1]] < handed[heap[child]]:
            child += 1
        if handed[heap[child]] >= handed[moved]:
            break
        heap[place] = heap[child]
        place = child
    heap[place] = moved
    return first


@part
def append(world: World, j: int, r: int) -> None:
    """Behind all that wait for a machine."""
    asked, state = world.asked, world.state
    asked[r, NEXT] = -1
    if state[j, TAIL] >= 0:
        asked[state[j, TAIL], NEXT] = r
    else:
        state[j, HEAD] = r
    state[j, TAIL] = r
    state[j, WAITING] += 1


@part
def enqueue(world: World, j: int, r: int) -> None:
    """To the end of a machine's queue, with the work that it is."""
    asked, state = world.asked, world.state
    asked[r, MACHINE] = j
    world.state[j, UNDER_WAY] += 1
    append(world, j, r)
    if asked[r, MADE] == 0:
        world.work[j] += world.sooner[asked[r, SIZE], state[j, KIND]]
    world.work[j] += world.later[asked[r, SIZE], state[j, KIND]]


@part
def machine_for(world: World, rules: Rules, r: int, turn: int, over_link: bool) -> int:
    """The machine that a request goes to, `turn` being where the last one went; -1 where none takes it."""
    takes, size, kind = rules.takes[1 if over_link else 0], world.asked[r, SIZE], rules.kind
    # Columns, and no arrays of their own: a world of two more arrays is passed around half as fast.
    there, cap = world.state[:, UNDER_WAY], world.room[:, CAP]
    if rules.rule == 0 or over_link:
        for own in range(rules.new_ms.shape[0]):
            rules.new_ms[own] = (
                world.later[size, own] if over_link else world.sooner[size, own] + world.later[size, own]
            )
        return least_work(world.work, kind, takes, there, cap, rules.alone[size], rules.limit_ms, rules.new_ms)
    if rules.rule == 1:
        return next_in_turn(turn, kind, takes, there, cap)
    if rules.rule == 2:
        return by_shares(rules.drawn[r], kind, takes, there, cap, rules.share)
    return split_then_fewest(rules.drawn[r], kind, kind, takes, there, cap, rules.share)


@part
def take(world: World, rules: Rules, r: int, over_link: bool, now: float) -> bool:
    """Send a request to its machine, which begins if it was idle; false where none takes it."""
    j = machine_for(world, rules, r, world.progress[TURN], over_link)
    if j < 0:
        return False
    if not over_link:
        world.progress[TURN] = j
    enqueue(world, j, r)
    if world.clock[j, UNTIL] == np.inf:
        world.clock[j, TICKED] = now
        begin_iteration(world, j, now)
    return True


@bare_kernel
def play(world: World, rules: Rules, most_rounds: int, until: float) -> int:
    """Serve what comes before a moment; how many were served so far, also where so many iterations did not suffice."""
    times, state, clock, handed, heap = world.times, world.state, world.clock, world.handed, world.heap
    count, machines, progress = times.shape[0], state.shape[0], world.progress
    served, coming, heap_size, rounds = progress[SERVED], progress[COMING], progress[ON_LINKS], progress[ITERATIONS]
    while served < count and rounds < most_rounds:
        j, first = 0, float(clock[0, UNTIL])
        for other in range(1, machines):
            if clock[other, UNTIL] < first:
                j, first = other, float(clock[other, UNTIL])
        arrives = float(times[coming, ARRIVED]) if coming < count else np.inf
        comes = float(handed[heap[0]]) if heap_size > 0 else np.inf
        if min(first, arrives, comes) >= until:
            break
        if arrives <= first or comes <= first:
            over_link = comes < arrives
            if over_link:
                r, now = pop(handed, heap, heap_size), comes
                heap_size -= 1
            else:
                r, now = coming, arrives
                coming += 1
            take(world, rules, r, over_link, now)  # whom nobody takes is never served
        else:
            rounds += 1
            if state[j, RAN] > 0:
                served += end_decodes(world, j, first)
            if state[j, READY] >= 0:
                if state[j, DECODES] == 0:
                    clock[j, TICKED] = first
                heap_size, left = end_prompts(world, heap_size, j, first)
                served += left
            begin_iteration(world, j, first)
    progress[SERVED], progress[COMING], progress[ON_LINKS], progress[ITERATIONS] = served, coming, heap_size, rounds
    return int(served)


@bare_kernel
def hand_on(world: World, rules: Rules, j: int, now: float) -> None:
    """Send what a machine that is shut has not begun to others; what has begun, or finds no other, ends there."""
    asked, state = world.asked, world.state
    r, state[j, HEAD], state[j, TAIL] = state[j, HEAD], -1, -1
    state[j, WAITING] = 0
    while r >= 0:
        after = asked[r, NEXT]
        to = machine_for(world, rules, r, world.progress[TURN], False) if asked[r, MADE] == 0 else -1
        if to >= 0:
            kind = state[j, KIND]
            world.work[j] -= world.sooner[asked[r, SIZE], kind] + world.later[asked[r, SIZE], kind]
            world.state[j, UNDER_WAY] -= 1
            take(world, rules, r, False, now)
        else:
            append(world, j, r)
        r = after


@bare_kernel
def lose(world: World, rules: Rules, j: int, now: float) -> None:
    """A machine breaks: what ran there starts over on others, oldest first, and what waited follows it.

    Who finds no other is never served. What is on its link arrives.
    """
    asked, times, state, clock = world.asked, world.times, world.state, world.clock
    oldest = state[j, NEWEST]
    while oldest >= 0 and asked[oldest, BEFORE] >= 0:
        oldest = asked[oldest, BEFORE]
    waiting = state[j, HEAD]
    for column in (DECODES, READ, HELD, TODO, RAN, WAITING):
        state[j, column] = 0
    for column in (HEAD, TAIL, NEWEST, PROMPT, READY):
        state[j, column] = -1
    world.calendar[j] = -1
    world.work[j] = 0.0
    world.state[j, UNDER_WAY] = 0
    clock[j, UNTIL] = np.inf
    clock[j, IDLE] = now
    for first, following in ((oldest, AFTER), (waiting, NEXT)):
        r = first
        while r >= 0:
            after = asked[r, following]
            asked[r, MADE], asked[r, LOST], times[r, GAP] = 0, 0, 0.0
            if not take(world, rules, r, False, now):
                append(world, j, r)
            r = after
