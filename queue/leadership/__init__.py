"""What the leading replica builds and runs: planning, controllers, repairs."""
