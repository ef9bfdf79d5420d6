"""Machine code on graphs of numbered states: counting distinct transitions, and closures backwards."""

from __future__ import annotations

import numpy as np

from policyproof.run.machine_code import njit


@njit(cache=True, nogil=True)
def count_distinct(source, target, label):
    """The numbers of distinct (source, target, label) and (source, target); equal sources stand together."""
    triples, pairs = 0, 0
    first = 0
    count = source.shape[0]
    while first < count:
        last = first + 1
        while last < count and source[last] == source[first]:
            last += 1
        if last - first <= 24:
            for i in range(first, last):
                new_triple, new_pair = 1, 1
                for j in range(first, i):
                    if target[j] == target[i]:
                        new_pair = 0
                        if label[j] == label[i]:
                            new_triple = 0
                            break
                triples += new_triple
                pairs += new_pair
        else:
            order = np.argsort(target[first:last])
            begin = 0
            while begin < order.shape[0]:
                end = begin + 1
                while end < order.shape[0] and target[first + order[end]] == target[first + order[begin]]:
                    end += 1
                pairs += 1
                labels = np.empty(end - begin, dtype=np.int64)
                for k in range(begin, end):
                    labels[k - begin] = label[first + order[k]]
                labels = np.sort(labels)
                triples += 1
                for k in range(1, labels.shape[0]):
                    if labels[k] != labels[k - 1]:
                        triples += 1
                begin = end
        first = last
    return triples, pairs


@njit(cache=True, nogil=True)
def turned_round(offsets, targets, states):
    """The graph turned round, by counting: the predecessors of t are sources[incoming[t]:incoming[t + 1]].

    `targets[offsets[s]:offsets[s + 1]]` follow state s.  The number of states may exceed that of the
    offsets: such states have no known successors.
    """
    expanded = offsets.shape[0] - 1
    incoming = np.zeros(states + 1, dtype=np.int64)
    for k in range(offsets[expanded]):
        incoming[targets[k] + 1] += 1
    for s in range(states):
        incoming[s + 1] += incoming[s]
    sources = np.empty(offsets[expanded], dtype=np.int32)
    place = incoming[:-1].copy()
    for s in range(expanded):
        for k in range(offsets[s], offsets[s + 1]):
            sources[place[targets[k]]] = s
            place[targets[k]] += 1
    return incoming, sources


@njit(cache=True, nogil=True)
def reach_backwards(incoming, sources, marked):
    """Mark every state with a path to a marked one, on the graph `turned_round`."""
    states = marked.shape[0]
    stack = np.empty(states, dtype=np.int64)
    depth = 0
    for s in range(states):
        if marked[s]:
            stack[depth] = s
            depth += 1
    while depth > 0:
        depth -= 1
        t = stack[depth]
        for k in range(incoming[t], incoming[t + 1]):
            s = sources[k]
            if not marked[s]:
                marked[s] = True
                stack[depth] = s
                depth += 1


@njit(cache=True, nogil=True)
def some_successor(offsets, targets, holds, result):
    """result[s]: does some successor of s satisfy `holds`?  A state without successors is its own."""
    for s in range(offsets.shape[0] - 1):
        if offsets[s] == offsets[s + 1]:
            result[s] = holds[s]
            continue
        result[s] = False
        for k in range(offsets[s], offsets[s + 1]):
            if holds[targets[k]]:
                result[s] = True
                break


@njit(cache=True, nogil=True)
def every_successor(offsets, targets, holds, result):
    """result[s]: do all successors of s satisfy `holds`?  A state without successors is its own."""
    for s in range(offsets.shape[0] - 1):
        if offsets[s] == offsets[s + 1]:
            result[s] = holds[s]
            continue
        result[s] = True
        for k in range(offsets[s], offsets[s + 1]):
            if not holds[targets[k]]:
                result[s] = False
                break


@njit(cache=True, nogil=True)
def exists_until(offsets, targets, left, right, result):
    """result = E [left U right]: the least set with right, and with left and a successor in it."""
    states = offsets.shape[0] - 1
    incoming, sources = turned_round(offsets, targets, states)
    stack = np.empty(states, dtype=np.int64)
    depth = 0
    for s in range(states):
        result[s] = right[s]
        if right[s]:
            stack[depth] = s
            depth += 1
    while depth > 0:
        depth -= 1
        t = stack[depth]
        for k in range(incoming[t], incoming[t + 1]):
            s = sources[k]
            if left[s] and not result[s]:
                result[s] = True
                stack[depth] = s
                depth += 1


@njit(cache=True, nogil=True)
def always_until(offsets, targets, left, right, result):
    """result = A [left U right]: the least set with right, and with left and all successors in it.

    Counts down the transitions that still lead outside; a state without successors loops on itself.
    """
    states = offsets.shape[0] - 1
    incoming, sources = turned_round(offsets, targets, states)
    open_transitions = np.diff(offsets)
    stack = np.empty(states, dtype=np.int64)
    depth = 0
    for s in range(states):
        result[s] = right[s]
        if right[s]:
            stack[depth] = s
            depth += 1
    while depth > 0:
        depth -= 1
        t = stack[depth]
        for k in range(incoming[t], incoming[t + 1]):
            s = sources[k]
            open_transitions[s] -= 1
            if open_transitions[s] == 0 and left[s] and not result[s]:
                result[s] = True
                stack[depth] = s
                depth += 1
