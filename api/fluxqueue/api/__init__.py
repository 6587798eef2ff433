"""The vocabulary every room shares: names, quantities, durations, hostlists and the shapes of objects. No I/O."""
