"""The pages; each is a function from what is known and what was asked to its content."""
