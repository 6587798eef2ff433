"""What all packages share: names, quantities, durations, hostlists and the structs of API objects. No I/O."""
