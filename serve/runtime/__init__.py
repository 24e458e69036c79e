"""Opened policies: verified, warmed up, found by name and version. Knows no HTTP."""
