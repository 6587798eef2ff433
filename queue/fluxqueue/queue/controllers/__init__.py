"""The effects: each controller carries out what a pure module decided, in one place of the outside world."""
