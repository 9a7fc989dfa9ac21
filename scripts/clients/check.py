"""Checks that say what was expected, for the clients beside it."""

import sys

passed = 0


def check(holds, sentence, *seen):
    """Ends the program with the sentence, and what was seen instead, unless it holds."""
    global passed
    if not holds:
        print(f"FAILED: {sentence}", *(f"  got: {value!r}" for value in seen), sep="\n", file=sys.stderr)
        sys.exit(1)
    passed += 1


def same(got, expected, sentence):
    """Both values must be equal."""
    check(got == expected, sentence, got, expected)


def fails(error, call, sentence):
    """Calls, and returns the error, which must be of this type."""
    try:
        answer = call()
    except error as raised:
        check(True, sentence)
        return raised
    check(False, sentence, answer)


def report(client):
    """Says what was checked."""
    print(f"{client}: {passed} checks passed")
