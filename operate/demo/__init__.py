"""The demo: a small shop, whose tables are replicated while the demo writes to them."""
