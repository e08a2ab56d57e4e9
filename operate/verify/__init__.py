"""Compares source and lake row for row while both move."""

from __future__ import annotations

from operate.verify.table import Difference, Verification, verify_table

__all__ = ["Difference", "Verification", "verify_table"]
