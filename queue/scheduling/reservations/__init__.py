"""Plans: reservations of pending work, advance reservations, planned ends, and estimates."""
