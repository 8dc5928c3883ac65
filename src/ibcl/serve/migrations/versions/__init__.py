"""The steps; a new one names the one before it as its ``down_revision``."""
